//! Output to where it belongs, as it arrives.
//!
//! A thread writes, since writing blocks: a slow reader slows the command down instead of filling memory, and
//! signals are heard meanwhile. A command that prints nothing needs no thread.

use bytes::Bytes;
use farshell_client::stream::Stream;
use farshell_engine::Error;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use tokio::sync::{mpsc, oneshot};

/// Pieces that wait for the thread.
const AHEAD: usize = 4;

type Piece = (Stream, Bytes);

/// Our standard output and error, without buffers in between.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    thread: Option<Thread>,
    /// What the thread has no room for yet.
    waiting: Option<Piece>,
    closing: bool,
    /// The last byte was no line end.
    line_begun: bool,
}

#[derive(Debug)]
struct Thread {
    /// Absent once everything was handed over.
    pieces: Option<mpsc::Sender<Piece>>,
    done: oneshot::Receiver<Result<(), Broken>>,
}

/// Why output can't be delivered.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nobody reads it any more.
    NoReader,
    Failed {
        stream: &'static str,
        error: io::Error,
    },
}

/// What the writer has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// There is room again.
    Room,
    /// Everything, after [`Writer::close`].
    All,
}

impl Writer {
    pub(crate) fn line_begun(&self) -> bool {
        self.line_begun
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_none()
    }

    /// Takes a piece. Only if there is room.
    pub(crate) fn write(&mut self, stream: Stream, bytes: Bytes) -> Result<(), Error> {
        self.line_begun = bytes.last().map_or(self.line_begun, |last| *last != b'\n');
        let thread = match &mut self.thread {
            Some(thread) => thread,
            empty => empty.insert(Thread::start()?),
        };
        let Some(pieces) = &thread.pieces else { return Ok(()) };
        match pieces.try_send((stream, bytes)) {
            Err(mpsc::error::TrySendError::Full(piece)) => self.waiting = Some(piece),
            // Why it ended is told by [`Writer::work`].
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
        Ok(())
    }

    /// Nothing more will come.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        if self.waiting.is_none()
            && let Some(thread) = &mut self.thread
        {
            thread.pieces = None;
        }
    }

    /// Waits for a change. Nothing is lost if the future is dropped.
    pub(crate) async fn work(&mut self) -> Result<Written, Broken> {
        let Some(thread) = &mut self.thread else {
            return if self.closing { Ok(Written::All) } else { std::future::pending().await };
        };
        if let (Some(_), Some(pieces)) = (&self.waiting, &thread.pieces) {
            tokio::select! {
                biased;
                done = &mut thread.done => return finished(done),
                permit = pieces.reserve() => match (permit, self.waiting.take()) {
                    (Ok(permit), Some(piece)) => permit.send(piece),
                    // It has ended, and says why at once.
                    _ => return finished((&mut thread.done).await),
                },
            }
            if self.closing {
                thread.pieces = None;
            }
            return Ok(Written::Room);
        }
        finished((&mut thread.done).await)
    }
}

fn finished(done: Result<Result<(), Broken>, oneshot::error::RecvError>) -> Result<Written, Broken> {
    match done {
        Ok(Ok(())) => Ok(Written::All),
        Ok(Err(broken)) => Err(broken),
        Err(_) => Err(Broken::Failed { stream: "output", error: io::Error::other("the writer is gone") }),
    }
}

impl Thread {
    fn start() -> Result<Self, Error> {
        let opening = |e| Error::io("opening standard output", e);
        let mut out = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(opening)?);
        let mut err = File::from(io::stderr().as_fd().try_clone_to_owned().map_err(opening)?);
        let (sender, mut pieces) = mpsc::channel::<Piece>(AHEAD);
        let (tell, done) = oneshot::channel();
        let mut write = move || {
            while let Some((stream, bytes)) = pieces.blocking_recv() {
                let (file, stream) = match stream {
                    Stream::Stdout => (&mut out, "output"),
                    Stream::Stderr => (&mut err, "error"),
                };
                if let Err(error) = write_all(file, &bytes) {
                    return Err(match error.kind() {
                        io::ErrorKind::BrokenPipe => Broken::NoReader,
                        _ => Broken::Failed { stream, error },
                    });
                }
            }
            Ok(())
        };
        std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                // Nobody may be waiting any more.
                let _ = tell.send(write());
            })
            .map_err(|e| Error::io("starting a thread", e))?;
        Ok(Self { pieces: Some(sender), done })
    }
}

/// Writes everything, also to a descriptor that somebody else made non-blocking.
fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
