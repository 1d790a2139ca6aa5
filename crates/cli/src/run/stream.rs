//! Output to where it belongs, as it arrives.

use farshell_engine::capture::Sink;
use farshell_protocol::process::{Chunk, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Our standard output and error, without buffers in between.
///
/// Writing blocks, and so a slow reader slows the command down instead of filling memory.
#[derive(Debug)]
pub(crate) struct Streams {
    out: File,
    err: File,
    trouble: Trouble,
    /// After trouble, nothing more is written.
    stopped: bool,
    /// The last byte was no line end.
    line_begun: bool,
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

/// Where the writer leaves the reason why it stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    shared: Arc<(Mutex<Option<Broken>>, Notify)>,
}

impl Trouble {
    fn report(&self, why: Broken) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.shared.1.notify_one();
    }

    pub(crate) fn take(&self) -> Option<Broken> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for trouble.
    pub(crate) async fn wait(&self) -> Broken {
        loop {
            if let Some(why) = self.take() {
                return why;
            }
            self.shared.1.notified().await;
        }
    }
}

impl Streams {
    pub(crate) fn open() -> io::Result<Self> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let err = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self { out, err, trouble: Trouble::default(), stopped: false, line_begun: false })
    }

    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    pub(crate) fn line_begun(&self) -> bool {
        self.line_begun
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if self.stopped {
            return;
        }
        let (file, name) = match stream {
            Stream::Stdout => (&mut self.out, "output"),
            Stream::Stderr => (&mut self.err, "error"),
        };
        self.line_begun = bytes.last().map_or(self.line_begun, |last| *last != b'\n');
        if let Err(error) = write_all(file, bytes) {
            self.stopped = true;
            self.trouble.report(match error.kind() {
                io::ErrorKind::BrokenPipe => Broken::NoReader,
                _ => Broken::Failed { stream: name, error },
            });
        }
    }
}

impl Sink for Streams {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.write(chunk.stream, chunk.bytes);
    }

    fn gap(&mut self, from: u64, to: u64) {
        // Lost output is told to everybody, not only at a terminal.
        let text = format!(
            "\nfarshell: {} bytes of output are lost (offsets {from} to {to})\n",
            to.saturating_sub(from)
        );
        self.write(Stream::Stderr, text.as_bytes());
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
