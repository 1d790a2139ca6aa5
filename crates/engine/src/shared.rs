//! The outpost's socket in a directory that a container shares with this machine, and into which it may put anything.

use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use tokio::net::UnixStream;

/// Connects to the socket of this name: only a socket is taken, and no link is followed, since it could lead to a socket
/// of this machine.
///
/// # Errors
/// Nobody listens there, or there is something else ([`is_hostile`]).
pub async fn dial(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags | OFlags::DIRECTORY, Mode::empty())?;
    let socket = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode);
    if kind != FileType::Socket {
        return Err(io::Error::other(Hostile(kind)));
    }
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
}

/// Something else than a socket is where the socket should be.
#[derive(Debug)]
struct Hostile(FileType);

impl std::fmt::Display for Hostile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.0 {
            FileType::Symlink => "a symbolic link",
            FileType::Directory => "a directory",
            FileType::RegularFile => "a file",
            _ => "something else",
        };
        write!(f, "something in the container has put {what} in the place of the outpost's socket")
    }
}

impl std::error::Error for Hostile {}

/// Not that nobody listens: somebody in there wants us to connect to something else.
#[must_use]
pub fn is_hostile(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Hostile>())
}
