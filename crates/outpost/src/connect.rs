//! Finding the daemon of a directory, starting it if there is none, and the bridge to it.

use crate::daemon::{Daemon, Door, MESSAGES, Refusal, private_dir};
use crate::spawn::own_environment;
use crate::sys::{self, Spawn, Stdio};
use farshell_protocol::text::{Decoder, Encoder, GRANT, Side, empty_lines};
use rustix::event::{PollFd, PollFlags};
use rustix::termios::OptionalActions;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a daemon may take to answer, or an ending one to make room.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a daemon says on its standard output once it listens.
const READY: &str = "ready";
/// What it says if there is another.
const RUNNING: &str = "running";

/// A connection to the daemon of this directory.
fn connect(dir: &Path, door: &Door) -> io::Result<UnixStream> {
    let (dir, name) = door.place(dir);
    // By way of a descriptor, since a socket's address is shorter than a path can be.
    let handle =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(dir)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", handle.as_raw_fd())).join(name))
}

/// Waits for a daemon that somebody else starts.
fn join(dir: &Path, door: &Door) -> io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connect(dir, door) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Makes sure that a daemon listens: returns once one accepts connections.
pub(crate) fn start(dir: &Path, lease: Duration) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if connect(dir, &Door::Own).is_ok() {
            return Ok(());
        }
        private_dir(dir)?;
        match launch(dir, lease) {
            Ok(true) => return Ok(()),
            // Another one is just starting, or just ending.
            Ok(false) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(false) => {
                let text = format!("another outpost holds {} and does not answer", dir.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts a daemon. False if there is one already.
fn launch(dir: &Path, lease: Duration) -> io::Result<bool> {
    let open = |path: &Path| File::options().create(true).append(true).mode(0o600).open(path);
    let log = open(&dir.join(MESSAGES)).or_else(|_| open(Path::new("/dev/null")))?;
    let (said, out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let null = File::open("/dev/null")?;
    let program = std::env::current_exe()?;
    let lease = lease.as_secs().to_string();
    let argv = [
        program.as_os_str(),
        "daemon".as_ref(),
        "--dir".as_ref(),
        dir.as_os_str(),
        "--lease".as_ref(),
        lease.as_ref(),
    ];
    let argv: Vec<CString> = argv.iter().map(|a| CString::new(a.as_bytes())).collect::<Result<_, _>>()?;
    let env = own_environment()
        .map(|(name, value)| CString::new([name, value].join(&b'=')))
        .collect::<Result<Vec<_>, _>>()?;
    let spawn = |program: &OsStr| {
        sys::spawn(&Spawn {
            program,
            argv: &argv,
            env: &env,
            stdio: [Stdio::Fd(null.as_fd()), Stdio::Fd(out.as_fd()), Stdio::Fd(log.as_fd())],
            cwd: None,
        })
    };
    // Whoever put the same program there at the same moment has taken the name of ours.
    spawn(program.as_os_str()).or_else(|_| spawn("/proc/self/exe".as_ref()))?;
    drop(out);
    let mut answer = String::new();
    File::from(said).read_to_string(&mut answer)?;
    match answer.trim_end() {
        READY => Ok(true),
        RUNNING => Ok(false),
        "" => Err(io::Error::other("the outpost ended before it could say why")),
        other => Err(io::Error::other(format!("the outpost did not start: {other}"))),
    }
}

/// Runs the daemon in this process.
pub(crate) fn daemon(dir: &Path, lease: Duration, door: Door) -> i32 {
    // Whoever started us may have left descriptors open by accident: a daemon must not keep them, nor pass them on.
    sys::close_from(3);
    let daemon = match Daemon::new(dir, lease, door) {
        Ok(daemon) => daemon,
        Err(Refusal::Running) => return say(RUNNING, 0),
        Err(Refusal::Io(what, error)) => return say(&format!("{what}: {error}"), 1),
    };
    say(READY, 0);
    // Whoever started us waits no longer, and must not be kept from seeing the end of our output.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    daemon.run();
    0
}

fn say(text: &str, code: i32) -> i32 {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    code
}

/// How a bridge speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speech {
    /// In lines of plain text.
    pub(crate) text: bool,
    /// The engine is never silent for longer than this: if it is, nobody is there any more.
    pub(crate) quiet: Option<Duration>,
    /// Bytes that may be under way to the engine, which says with empty lines how many have arrived.
    pub(crate) window: Option<u64>,
}

/// How many bytes may be sent to the engine now.
struct Pace {
    window: u64,
    left: Mutex<u64>,
    more: Condvar,
}

impl Pace {
    fn new(window: u64) -> Self {
        Self { window, left: Mutex::new(window), more: Condvar::new() }
    }

    /// The engine has received so many more. A window is the most that is ever allowed.
    fn grant(&self, bytes: u64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_add(bytes).min(self.window);
        self.more.notify_one();
    }

    /// Waits until something may be sent, and says how much.
    fn allowed(&self) -> u64 {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *self.more.wait_while(left, |left| *left == 0).unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self, bytes: usize) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(bytes as u64);
    }
}

/// A daemon's stream, read no faster than the engine takes it.
struct Paced<'a> {
    stream: &'a UnixStream,
    pace: Option<&'a Pace>,
}

impl Read for Paced<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(pace) = self.pace else { return self.stream.read(buf) };
        let most = usize::try_from(pace.allowed()).unwrap_or(usize::MAX).min(buf.len());
        let n = self.stream.read(&mut buf[..most])?;
        pace.spend(n);
        Ok(n)
    }
}

/// Standard input, which ends when nothing has come for too long.
struct Attentive {
    quiet: Option<Duration>,
}

impl Read for Attentive {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let stdin = rustix::stdio::stdin();
        if let Some(quiet) = self.quiet {
            let limit = rustix::event::Timespec::try_from(quiet).ok();
            let mut wait = [PollFd::new(&stdin, PollFlags::IN)];
            if rustix::event::poll(&mut wait, limit.as_ref())? == 0 {
                return Ok(0);
            }
        }
        Ok(rustix::io::read(stdin, buf)?)
    }
}

/// A terminal in between must pass on what it gets, and not answer itself.
fn make_raw() -> io::Result<()> {
    let stdin = rustix::stdio::stdin();
    if rustix::termios::isatty(stdin) {
        let mut settings = rustix::termios::tcgetattr(stdin)?;
        settings.make_raw();
        rustix::termios::tcsetattr(stdin, OptionalActions::Now, &settings)?;
    }
    Ok(())
}

/// Connects standard input and output to the daemon, until either side ends. With `lease`, one is started if there is
/// none; without, there will be one.
pub(crate) fn bridge(dir: &Path, door: &Door, lease: Option<Duration>, speech: Speech) -> io::Result<()> {
    let Speech { text, quiet, window } = speech;
    if text {
        make_raw()?;
    }
    if let Some(lease) = lease {
        start(dir, lease)?;
    }
    let stream = join(dir, door)?;
    let upstream = stream.try_clone()?;
    let pace = window.map(|window| Arc::new(Pace::new(window)));
    let grants = pace.clone();
    std::thread::Builder::new().spawn(move || {
        let mut to = &upstream;
        let mut decode = text.then(|| Decoder::new(Side::Outpost));
        let mut last = 0;
        let _ = copy(&mut Attentive { quiet }, &mut to, |bytes, out| {
            if let Some(pace) = &grants {
                pace.grant(GRANT.saturating_mul(empty_lines(&mut last, bytes)));
            }
            match &mut decode {
                Some(decoder) => {
                    decoder.push(out, bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
                }
                None => {
                    out.extend_from_slice(bytes);
                    Ok(())
                }
            }
        });
        if quiet.is_some() {
            // Nobody is there any more. The other direction may wait for ever: for room, or to be allowed more.
            std::process::exit(0);
        }
        let _ = upstream.shutdown(Shutdown::Write);
    })?;
    let mut from = Paced { stream: &stream, pace: pace.as_deref() };
    let mut encode = text.then(|| Encoder::new(Side::Outpost));
    // Not the library's own standard output: that writes what is before the last line's end apart from the rest.
    let mut to = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
    copy(&mut from, &mut to, |bytes, out| {
        match &mut encode {
            Some(encoder) => encoder.encode(out, bytes),
            None => out.extend_from_slice(bytes),
        }
        Ok(())
    })
}

fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    mut change: impl FnMut(&[u8], &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut buf = vec![0; 256 << 10];
    let mut out = Vec::new();
    loop {
        let n = match from.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        out.clear();
        change(&buf[..n], &mut out)?;
        to.write_all(&out)?;
        to.flush()?;
    }
}
