//! Directories, devices and bind mounts of a root.

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Nothing that is mounted from here on is seen elsewhere.
///
/// # Errors
/// This process has no mount namespace of its own, or may not.
pub fn private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// The directories that every root has, and `more`, where they are missing.
///
/// # Errors
/// A directory can't be made.
pub fn skeleton(root: &Path, more: &[(&str, u32)]) -> io::Result<()> {
    const ALWAYS: &[(&str, u32)] = &[
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
    ];
    for (name, mode) in ALWAYS.iter().chain(more) {
        let dir = root.join(name);
        if !dir.is_dir() {
            std::fs::create_dir_all(&dir)?;
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(*mode))?;
        }
    }
    Ok(())
}

/// `bin`, `lib` and the like as this machine has them: links are made, and for a real directory `found` is called with
/// the one here and the one there.
///
/// # Errors
/// A link can't be made, or `found` fails.
pub fn host_links(root: &Path, mut found: impl FnMut(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
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
                found(&here, &there)?;
            }
        }
    }
    Ok(())
}

/// # Errors
/// It can't be mounted.
pub fn bind_read_only(from: &Path, to: &Path) -> io::Result<()> {
    mount_bind_recursive(from, to)?;
    // In a user namespace flags that the mount already has can't be dropped; then it stays writable for its owner.
    let _ = mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, c"");
    Ok(())
}

/// The processes of the namespace that the caller is in.
///
/// # Errors
/// It can't be mounted.
pub fn proc(root: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(c"proc", root.join("proc"), c"proc", flags, None)?)
}

/// Harmless devices, and terminals and shared memory of its own.
///
/// # Errors
/// One of them can't be mounted.
pub fn devices(dev: &Path) -> io::Result<()> {
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
