//! A process in a sandbox, as seen from outside: its output by offset, its input by offset, and how it ended.

use crate::log::Log;
use crate::root::Root;
use crate::wire::{Spawn, Status, Terminal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};

/// What a terminal takes for the end of input.
const END_OF_INPUT: &[u8] = &[4];

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) stdout: Arc<Log>,
    pub(crate) stderr: Arc<Log>,
    stdin: tokio::sync::Mutex<Stdin>,
    /// The index of the last message, where input is counted so.
    messages: tokio::sync::Mutex<u64>,
    /// Whoever is writing is to stop: someone asks how far they came.
    evict: Notify,
    status: watch::Sender<Option<Status>>,
    ended: Mutex<Option<Instant>>,
    /// It ended with its sandbox: nobody knows how.
    lost: AtomicBool,
}

#[derive(Debug)]
struct Stdin {
    to: Option<Arc<AsyncFd<OwnedFd>>>,
    terminal: bool,
    accepted: u64,
    closed: bool,
}

/// What becomes of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    All,
    /// Bytes between what was accepted so far and the offset are missing.
    Gap(u64),
    /// The process has ended, or its input is closed.
    Closed,
    /// Someone asked for the status meanwhile.
    Evicted,
}

/// What a process is started with.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: String,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) keep_stdout: bool,
    pub(crate) keep_stderr: bool,
}

impl Process {
    pub(crate) fn new(number: u64, stdout: Arc<Log>, stderr: Arc<Log>) -> Self {
        Self {
            number,
            stdout,
            stderr,
            stdin: tokio::sync::Mutex::new(Stdin { to: None, terminal: false, accepted: 0, closed: false }),
            messages: tokio::sync::Mutex::default(),
            evict: Notify::new(),
            status: watch::Sender::new(None),
            ended: Mutex::new(None),
            lost: AtomicBool::new(false),
        }
    }

    /// Started in that root, with logs in that directory. An error means that nothing was started.
    pub(crate) async fn start(root: &Arc<Root>, dir: &Path, wish: Wish) -> io::Result<Arc<Self>> {
        let log = |kept: bool| if kept { Log::new(dir).map(Arc::new) } else { Ok(Arc::new(Log::empty())) };
        let terminal = wish.terminal.is_some();
        let (stdout, stderr) = (log(wish.keep_stdout)?, log(wish.keep_stderr && !terminal)?);
        let process = Arc::new(Self::new(root.number(), Arc::clone(&stdout), Arc::clone(&stderr)));
        let order = Spawn {
            id: process.number,
            args: wish.args,
            env: wish.env,
            workdir: wish.workdir,
            terminal: wish.terminal,
        };
        if terminal {
            let control = root.spawn(&process, order, Vec::new()).await?;
            let control =
                Arc::new(nonblocking(control.ok_or_else(|| io::Error::other("no terminal came"))?)?);
            tokio::spawn(pump(Arc::clone(&control), stdout));
            process.stdin.lock().await.to = Some(control);
        } else {
            let (input, to) = io::pipe()?;
            let mut theirs: Vec<OwnedFd> = vec![input.into()];
            let mut ours = Vec::new();
            for (kept, log) in [(wish.keep_stdout, stdout), (wish.keep_stderr, stderr)] {
                if kept {
                    let (from, output) = io::pipe()?;
                    theirs.push(output.into());
                    ours.push((nonblocking(from.into())?, log));
                } else {
                    theirs.push(std::fs::File::options().write(true).open("/dev/null")?.into());
                }
            }
            root.spawn(&process, order, theirs).await?;
            for (from, log) in ours {
                tokio::spawn(pump(Arc::new(from), log));
            }
            process.stdin.lock().await.to = Some(Arc::new(nonblocking(to.into())?));
        }
        process.stdin.lock().await.terminal = terminal;
        tokio::spawn({
            let process = Arc::clone(&process);
            async move {
                process.wait().await;
                process.stdin.lock().await.to = None;
            }
        });
        Ok(process)
    }

    pub(crate) fn exited(&self, status: Status) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        // The first word counts.
        self.status.send_if_modified(|now| now.is_none() && now.replace(status).is_none());
    }

    /// The sandbox is gone.
    pub(crate) fn gone(&self) {
        if self.status().is_none() {
            self.lost.store(true, Ordering::SeqCst);
        }
        self.exited(Status::Signal(9));
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn status(&self) -> Option<Status> {
        *self.status.borrow()
    }

    /// When it ended.
    pub(crate) fn ended(&self) -> Option<Instant> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn wait(&self) -> Status {
        let mut changes = self.status.subscribe();
        let status = changes.wait_for(Option::is_some).await.ok().and_then(|now| *now);
        status.unwrap_or(Status::Signal(9))
    }

    /// How much of its input was accepted, and whether that is all. A write under way ends here.
    pub(crate) async fn input_status(&self) -> (u64, bool) {
        loop {
            self.evict.notify_waiters();
            // One that begins to wait just now has missed it.
            let lock = tokio::time::timeout(std::time::Duration::from_millis(20), self.stdin.lock());
            if let Ok(stdin) = lock.await {
                return (stdin.accepted, stdin.closed);
            }
        }
    }

    /// Bytes that were accepted before are not written again. Whoever stops waiting for this leaves the count right.
    pub(crate) async fn write(&self, offset: u64, data: &[u8], eof: bool) -> Wrote {
        let mut stdin = self.stdin.lock().await;
        if offset > stdin.accepted {
            return Wrote::Gap(stdin.accepted);
        }
        let known = usize::try_from(stdin.accepted - offset).unwrap_or(usize::MAX).min(data.len());
        let mut rest = &data[known..];
        if rest.is_empty() && (!eof || stdin.closed) {
            return Wrote::All;
        }
        if stdin.closed || self.status().is_some() {
            return Wrote::Closed;
        }
        let Some(to) = stdin.to.clone() else { return Wrote::Closed };
        while !rest.is_empty() {
            match self.write_some(&to, rest).await {
                Ok(count) => {
                    stdin.accepted += count as u64;
                    rest = &rest[count..];
                }
                Err(wrote) => return wrote,
            }
        }
        if eof {
            stdin.closed = true;
            if stdin.terminal {
                let _ = self.write_some(&to, END_OF_INPUT).await;
            } else {
                stdin.to = None;
            }
        }
        Wrote::All
    }

    /// As [`Self::write`], for clients that count messages: the first is 1.
    pub(crate) async fn write_message(&self, index: u64, data: &[u8], eof: bool) -> Wrote {
        let mut seen = self.messages.lock().await;
        if index <= *seen {
            return Wrote::All;
        }
        if index != *seen + 1 {
            return Wrote::Gap(*seen);
        }
        let at = self.stdin.lock().await.accepted;
        let wrote = self.write(at, data, eof).await;
        if wrote == Wrote::All {
            *seen = index;
        }
        wrote
    }

    async fn write_some(&self, to: &AsyncFd<OwnedFd>, bytes: &[u8]) -> Result<usize, Wrote> {
        let writing = to.async_io(Interest::WRITABLE, |to| Ok(rustix::io::write(to, bytes)?));
        tokio::select! {
            biased;
            done = writing => done.map_err(|_| Wrote::Closed),
            // A grandchild may hold the other end open.
            _ = self.wait() => Err(Wrote::Closed),
            () = self.evict.notified() => Err(Wrote::Evicted),
        }
    }
}

#[expect(
    deprecated,
    reason = "what owns a descriptor has the same one for life, which is what the unsafe successor asks for"
)]
fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(fd.as_fd(), true)?;
    AsyncFd::new(fd)
}

/// From a process into its log, until nobody can write any more.
async fn pump(from: Arc<AsyncFd<OwnedFd>>, to: Arc<Log>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.async_io(Interest::READABLE, |from| Ok(rustix::io::read(from, &mut buffer)?)).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if to.append(&buffer[..count]).is_err() {
                    break;
                }
            }
        }
    }
    to.end();
}
