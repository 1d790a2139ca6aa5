//! One connection to the server's socket.

use crate::home::Files;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use tokio::net::UnixStream;

/// Connects, once.
///
/// # Errors
/// Nobody listens; see [`nobody`] and [`crowded`].
pub async fn socket(files: &Files) -> io::Result<UnixStream> {
    // By way of a descriptor, since a socket's address is shorter than a path can be.
    let flags = (rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH).bits().cast_signed();
    let dir = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&files.dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/sock", dir.as_raw_fd())).await
}

/// No server is there: not now, or not yet.
#[must_use]
pub fn nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

/// A server is there, and has not come round to those who knocked before.
#[must_use]
pub fn crowded(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_may_be_longer_than_an_address() {
        let home = tempfile::tempdir().unwrap();
        let files = Files::of(&home.path().join("x".repeat(200)));
        assert!(nobody(&socket(&files).await.unwrap_err()));
        std::fs::create_dir_all(&files.dir).unwrap();
        assert!(nobody(&socket(&files).await.unwrap_err()));
        let dir = std::fs::File::open(&files.dir).unwrap();
        let address = format!("/proc/self/fd/{}/sock", dir.as_raw_fd());
        let listener = std::os::unix::net::UnixListener::bind(address).unwrap();
        socket(&files).await.unwrap();
        drop(listener);
        // The file is still there, and nobody behind it.
        assert!(nobody(&socket(&files).await.unwrap_err()));
    }
}
