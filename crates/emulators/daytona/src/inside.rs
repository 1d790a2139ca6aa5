//! The first process of a sandbox: it makes the private root, starts the daemon, and waits for whatever ends.
//!
//! Programs are this machine's, read-only. Everything that is written stays in the sandbox's own directory.

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// The daemon's socket, as seen from inside without the first slash.
pub const SOCKET: &str = ".daytona/sock";
const PROGRAM: &str = ".daytona/daemon";

/// `init ROOT [NAME=VALUE…]`
///
/// # Errors
/// The root can't be made.
pub fn run(args: &[String]) -> io::Result<()> {
    let (root, env) = args.split_first().ok_or_else(|| io::Error::other("init needs a directory"))?;
    let root = Path::new(root);
    make(root)?;
    rustix::process::chroot(root)?;
    std::env::set_current_dir("/root")?;
    let _ = std::fs::remove_file(Path::new("/").join(SOCKET));
    let mut daemon = Command::new(Path::new("/").join(PROGRAM));
    daemon.args(["daemon", &format!("/{SOCKET}")]).env_clear();
    daemon.envs([
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
    ]);
    daemon.envs(env.iter().filter_map(|pair| pair.split_once('=')));
    // The daemon says that it is ready to whoever waits for us.
    daemon.stdin(Stdio::null()).spawn()?;
    // Whoever made the sandbox holds the other end. With us, everything in here ends.
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    // Orphans become ours.
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Nobody is left, not even the daemon: a sandbox stays started, as the real ones do.
            Err(_) => std::thread::sleep(std::time::Duration::from_secs(1)),
        }
    }
}

fn make(root: &Path) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for (name, mode) in [
        (".daytona", 0o755),
        ("dev", 0o755),
        ("home", 0o755),
        ("mnt", 0o755),
        ("opt", 0o755),
        ("proc", 0o755),
        ("root", 0o700),
        ("run", 0o755),
        ("tmp", 0o1777),
        ("var", 0o755),
        ("var/tmp", 0o1777),
        ("workspace", 0o755),
    ] {
        let dir = root.join(name);
        if !dir.is_dir() {
            std::fs::create_dir_all(&dir)?;
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))?;
        }
    }
    for name in ["usr", "etc", "bin", "sbin", "lib", "lib64", "lib32"] {
        let here = Path::new("/").join(name);
        let there = root.join(name);
        match std::fs::symlink_metadata(&here) {
            Err(_) => {}
            Ok(meta) if meta.is_symlink() => {
                if std::fs::symlink_metadata(&there).is_err() {
                    symlink(std::fs::read_link(&here)?, &there)?;
                }
            }
            Ok(_) => {
                std::fs::create_dir_all(&there)?;
                bind_read_only(&here, &there)?;
            }
        }
    }
    mount(
        c"proc",
        root.join("proc"),
        c"proc",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        None,
    )?;
    devices(&root.join("dev"))?;
    let program = root.join(PROGRAM);
    std::fs::write(&program, b"")?;
    bind_read_only(&std::env::current_exe()?, &program)
}

fn bind_read_only(from: &Path, to: &Path) -> io::Result<()> {
    mount_bind_recursive(from, to)?;
    // In a user namespace flags that the mount already has can't be dropped; then it stays writable for its owner.
    let _ = mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, c"");
    Ok(())
}

fn devices(dev: &Path) -> io::Result<()> {
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let file = dev.join(name);
        std::fs::OpenOptions::new().create(true).append(true).open(&file)?;
        mount_bind_recursive(Path::new("/dev").join(name), &file)?;
    }
    for name in ["pts", "shm"] {
        std::fs::create_dir_all(dev.join(name))?;
    }
    mount(
        c"devpts",
        dev.join("pts"),
        c"devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(c"newinstance,ptmxmode=0666,mode=0620"),
    )?;
    mount(c"shm", dev.join("shm"), c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let link = dev.join(name);
        if std::fs::symlink_metadata(&link).is_err() {
            symlink(target, link)?;
        }
    }
    Ok(())
}

/// Says to whoever started the sandbox that its daemon listens.
pub(crate) fn say_ready() {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
}
