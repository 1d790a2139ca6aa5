//! What a shell opens by its name under `/proc/<outpost>/fd`: pipes, and files in memory.

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

pub(super) fn memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?))
}

pub(super) fn refill(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// A pipe that others write to by opening it under its name.
///
/// The outpost keeps a writing end too: without one, every writer that comes or goes would wake it.
#[derive(Debug)]
pub(crate) struct NamedPipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

impl NamedPipe {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { read, write })
    }

    /// Gives this pipe's name to a new one. What is left of the old one goes to the caller, for whoever still
    /// writes to it.
    pub(crate) fn renew(read: &mut OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
        let old = rustix::io::fcntl_dupfd_cloexec(&*read, 3)?;
        let fresh = Self::new()?;
        rustix::io::dup3(&fresh.read, read, rustix::io::DupFlags::CLOEXEC)?;
        Ok((old, fresh.write))
    }

    /// Makes a whole pipe of a reading end whose writers have all gone.
    pub(crate) fn again(read: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let write = rustix::fs::open(format!("/proc/self/fd/{}", read.as_raw_fd()), flags, Mode::empty())?;
        Ok(Self { read, write })
    }
}

/// The name under which a child opens one of our descriptors.
pub(crate) fn name_of(fd: &impl AsRawFd) -> String {
    static ME: LazyLock<u32> = LazyLock::new(std::process::id);
    format!("/proc/{}/fd/{}", *ME, fd.as_raw_fd())
}

/// A memory file that a child can source by its name.
pub(crate) fn script_file(script: &[u8]) -> io::Result<File> {
    let file = memory_file("script")?;
    refill(&file, script)?;
    Ok(file)
}
