//! Finding the daemon of a directory, starting it if there is none, and the bridge to it.

use crate::daemon::{Daemon, Door, MESSAGES, Refusal, private_dir};
use crate::spawn::own_environment;
use crate::sys::{self, Spawn, Stdio};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
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
    sys::spawn(&Spawn {
        program: program.as_os_str(),
        argv: &argv,
        env: &env,
        stdio: [Stdio::Fd(null.as_fd()), Stdio::Fd(out.as_fd()), Stdio::Fd(log.as_fd())],
        cwd: None,
    })?;
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

/// Connects standard input and output to the daemon, until either side ends. With `lease`, one is started if there is
/// none; without, there will be one.
pub(crate) fn bridge(dir: &Path, door: &Door, lease: Option<Duration>, text: bool) -> io::Result<()> {
    if let Some(lease) = lease {
        start(dir, lease)?;
    }
    let stream = join(dir, door)?;
    let upstream = stream.try_clone()?;
    std::thread::Builder::new().spawn(move || {
        let mut to = &upstream;
        let mut decode =
            text.then(|| farshell_protocol::text::Decoder::new(farshell_protocol::text::Side::Outpost));
        let _ = copy(&mut io::stdin().lock(), &mut to, |bytes, out| match &mut decode {
            Some(decoder) => {
                decoder.push(out, bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
            }
            None => {
                out.extend_from_slice(bytes);
                Ok(())
            }
        });
        let _ = upstream.shutdown(Shutdown::Write);
    })?;
    let mut from = &stream;
    let mut encode =
        text.then(|| farshell_protocol::text::Encoder::new(farshell_protocol::text::Side::Outpost));
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
