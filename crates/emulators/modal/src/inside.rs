//! The first process of a sandbox: it mounts the private root, starts processes when it is told to, and says how they
//! ended. When the emulator ends, however it ends, so does this process, and with it everything in the sandbox.
//!
//! It stays outside of the root, so that nothing of the emulator is needed or found in there: what it starts is this same
//! program as `spawn`, which enters the root and becomes the process that is wanted.

use crate::files;
use crate::wire::{Event, Order, Setup, Spawn, Status, Terminal, receive, send};
use farshell_emulator_inside as inside;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which process has which id. Held while one is started, so that none ends unknown.
#[derive(Debug, Default)]
struct Running {
    ids: Mutex<HashMap<i32, u64>>,
    started: Condvar,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, u64>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `init`, with a socket to the emulator as its standard input.
///
/// # Errors
/// That is not what its standard input is.
pub fn run() -> io::Result<()> {
    let emulator = Arc::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?));
    let Some((Order::Setup(setup), _)) = receive(&emulator)? else {
        return Err(io::Error::other("init is told first what to set up"));
    };
    match make(&setup) {
        Ok(()) => send(&emulator, &Event::Ready, &[])?,
        Err(error) => {
            let _ = send(&emulator, &Event::Failed(error.to_string()), &[]);
            return Ok(());
        }
    }
    let running = Arc::new(Running::default());
    let said = Arc::new(Mutex::new(()));
    {
        let (running, emulator, said) = (Arc::clone(&running), Arc::clone(&emulator), Arc::clone(&said));
        std::thread::spawn(move || reap(&running, &emulator, &said));
    }
    while let Ok(Some((order, files))) = receive(&emulator) {
        match order {
            Order::Setup(_) => {}
            Order::Spawn(wish) => {
                let mut ids = running.lock();
                let begun = start(&setup, &wish, files);
                let _one = said.lock();
                let _ = match begun {
                    Ok((pid, control)) => {
                        ids.insert(pid, wish.id);
                        running.started.notify_one();
                        let beside: Vec<_> = control.iter().map(AsFd::as_fd).collect();
                        send(&emulator, &Event::Started(wish.id), &beside)
                    }
                    Err(error) => send(&emulator, &Event::Refused(wish.id, error.to_string()), &[]),
                };
            }
            Order::Kill(id) => {
                let pid = running.lock().iter().find(|(_, one)| **one == id).map(|(pid, _)| *pid);
                if let Some(pid) = pid.and_then(Pid::from_raw) {
                    let _ = kill_process_group(pid, Signal::KILL);
                }
            }
        }
    }
    // What is frozen can't be killed, and the emulator may have ended in the middle of a snapshot.
    if let Some(freezer) = &setup.freezer {
        crate::cgroup::thaw(freezer);
    }
    Ok(())
}

/// Waits for whatever ends, orphans as well.
fn reap(running: &Running, emulator: &UnixStream, said: &Mutex<()>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let Some(id) = running.lock().remove(&pid.as_raw_pid()) else { continue };
                let how = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Status::Code(code),
                    (None, signal) => Status::Signal(signal.unwrap_or(9)),
                };
                let _one = said.lock();
                let _ = send(emulator, &Event::Exited(id, how), &[]);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            // Nobody is left. What is started from here on is waited for at once.
            Err(_) => {
                let ids = running.lock();
                if ids.is_empty() {
                    drop(running.started.wait(ids));
                }
            }
        }
    }
}

fn make(setup: &Setup) -> io::Result<()> {
    inside::private()?;
    // Lower directories are named relative to this.
    std::env::set_current_dir(&setup.layers)?;
    for tree in &setup.trees {
        let at = setup.root.join(&tree.at);
        std::fs::create_dir_all(&at)?;
        overlay(&tree.lower, &tree.upper, &tree.work, &at)?;
    }
    std::env::set_current_dir("/")?;
    inside::skeleton(&setup.root, &[])?;
    inside::proc(&setup.root)?;
    // On a directory of its own: devices are no part of the filesystem that is snapshotted.
    mount(c"dev", setup.root.join("dev"), c"tmpfs", MountFlags::NOSUID, Some(c"mode=755"))?;
    inside::devices(&setup.root.join("dev"))?;
    let _ = rustix::system::sethostname(setup.hostname.as_bytes());
    // In a network namespace of its own even loopback is down. Where `ip` is missing it stays so.
    let _ = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    Ok(())
}

fn overlay(lower: &[PathBuf], upper: &Path, work: &Path, at: &Path) -> io::Result<()> {
    let mut options = b"lowerdir=".to_vec();
    for (number, dir) in lower.iter().enumerate() {
        if number > 0 {
            options.push(b':');
        }
        options.extend_from_slice(dir.as_os_str().as_bytes());
    }
    options.extend_from_slice(b",upperdir=");
    options.extend_from_slice(upper.as_os_str().as_bytes());
    options.extend_from_slice(b",workdir=");
    options.extend_from_slice(work.as_os_str().as_bytes());
    // Without these an upper directory means something only together with the lower one it was made on; with them, it
    // can be copied and be a layer elsewhere.
    options.extend_from_slice(b",redirect_dir=off,index=off,metacopy=off,xino=off");
    let options = CString::new(options)?;
    Ok(mount(c"overlay", at, c"overlay", MountFlags::empty(), Some(options.as_c_str()))?)
}

/// The process, and the controlling side of its terminal.
fn start(setup: &Setup, wish: &Spawn, files: Vec<OwnedFd>) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut command = Command::new("/proc/self/exe");
    command.env_clear().arg("spawn").arg(&setup.root).arg(&wish.workdir);
    command.arg(setup.freezer.as_deref().unwrap_or(Path::new("")));
    command.arg(if wish.terminal.is_some() { "terminal" } else { "" });
    // Not as variables: some would mean something to this program's loader, outside of the root.
    command.arg(wish.env.len().to_string());
    command.args(wish.env.iter().map(|(name, value)| format!("{name}={value}"))).args(&wish.args);
    let mut control = None;
    let mut files = files.into_iter();
    match &wish.terminal {
        Some(size) => {
            let (ours, theirs) = terminal(&setup.root, size)?;
            command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
            control = Some(ours);
        }
        None => {
            let mut next = || files.next().map_or_else(Stdio::null, Stdio::from);
            command.stdin(next()).stdout(next()).stderr(next());
        }
    }
    // Waited for with all others; dropping the handle does nothing.
    let child = command.spawn()?;
    Ok((i32::try_from(child.id()).unwrap_or(0), control))
}

fn terminal(root: &Path, size: &Terminal) -> io::Result<(OwnedFd, OwnedFd)> {
    let ours: OwnedFd =
        std::fs::OpenOptions::new().read(true).write(true).open(root.join("dev/pts/ptmx"))?.into();
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let size = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&theirs, size)?;
    Ok((ours, theirs))
}

/// `spawn ROOT WORKDIR FREEZER terminal|'' COUNT [NAME=VALUE…] PROGRAM [ARGUMENT…]`: becomes that program, in a session of its
/// own. What keeps it from that is said on standard error, with the exit codes of shells.
///
/// # Errors
/// The arguments are not these.
pub fn spawn(args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let mut args = args;
    let mut next = || args.next().ok_or_else(|| io::Error::other("spawn needs more arguments"));
    let (root, workdir, freezer) = (next()?, next()?, next()?);
    let (terminal, count) = (next()? == "terminal", next()?);
    let count: usize = count.to_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let env = (0..count).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
    let program = next()?;
    if !freezer.is_empty() {
        crate::cgroup::enter(Path::new(&freezer))?;
    }
    let entered = enter(Path::new(&root), Path::new(&workdir), terminal);
    let error = match entered {
        Err(error) => error,
        Ok(()) if program == files::PROGRAM => {
            let wish = args.next().unwrap_or_default();
            std::process::exit(files::run(&wish.to_string_lossy()));
        }
        Ok(()) => {
            let mut command = Command::new(&program);
            command.args(args).env_clear();
            for pair in &env {
                let bytes = pair.as_bytes();
                let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
                let value = bytes.get(at + 1..).unwrap_or_default();
                command.env(std::ffi::OsStr::from_bytes(&bytes[..at]), std::ffi::OsStr::from_bytes(value));
            }
            // Its search for the program uses the path that was given.
            let error = command.exec();
            io::Error::new(error.kind(), format!("{}: {error}", program.to_string_lossy()))
        }
    };
    let _ = writeln!(io::stderr(), "exec failed: {error}");
    std::process::exit(if error.kind() == io::ErrorKind::PermissionDenied { 126 } else { 127 });
}

fn enter(root: &Path, workdir: &Path, terminal: bool) -> io::Result<()> {
    rustix::process::setsid()?;
    if terminal {
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    rustix::process::chroot(root)?;
    std::env::set_current_dir("/")?;
    std::env::set_current_dir(workdir)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", workdir.display())))
}
