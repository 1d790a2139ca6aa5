//! The Unix socket: replaced only by whoever holds the lock, and left without losing anybody.

use crate::lock::Lock;
use crate::paths::Directory;
use farshell_engine::{Error, Result};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use tokio::net::{UnixListener, UnixStream};

const NAME: &str = "sock";
const NEW: &str = "sock.new";

#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
}

impl Socket {
    /// Listens. A socket that an earlier server left is replaced: the lock says that nobody is behind it.
    pub(crate) fn bind(directory: &Directory, _held: &Lock) -> Result<Self> {
        let bind = || {
            let new = directory.short(NEW);
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = StdListener::bind(&new)?;
            listener.set_nonblocking(true)?;
            // Under its name it has never had another mode.
            std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            std::fs::rename(&new, directory.short(NAME))?;
            UnixListener::from_std(listener)
        };
        let listener =
            bind().map_err(|e| Error::io(format!("listening on {}", directory.paths.socket.display()), e))?;
        Ok(Self { listener })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Lets nobody in any more, and gives back those who were at the door already. Everybody else finds the
    /// connection refused or the socket gone; nobody is accepted and then dropped.
    pub(crate) fn close(self, directory: &Directory) -> Vec<UnixStream> {
        let _ = std::fs::remove_file(directory.short(NAME));
        // From here on the kernel refuses connections, also to those who looked the name up before.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Read);
        let mut waiting = Vec::new();
        let Ok(listener) = self.listener.into_std() else { return waiting };
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = UnixStream::from_std(stream)
                    {
                        waiting.push(stream);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return waiting,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::os::unix::net::UnixStream as StdStream;

    async fn open(home: &std::path::Path) -> (Directory, Lock) {
        let directory = Directory::open(home).unwrap();
        let lock = Lock::take(&directory).await.unwrap();
        (directory, lock)
    }

    #[tokio::test]
    async fn who_is_at_the_door_is_let_in_and_the_next_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (directory, lock) = open(home.path()).await;
        let socket = Socket::bind(&directory, &lock).unwrap();
        let early = StdStream::connect(&directory.paths.socket).unwrap();
        // A second name for it stands for a client that has looked the first one up already.
        let alias = directory.paths.dir.join("alias");
        std::fs::hard_link(&directory.paths.socket, &alias).unwrap();
        let listener = socket.listener.into_std().unwrap();
        let socket = Socket { listener: UnixListener::from_std(listener.try_clone().unwrap()).unwrap() };
        assert_eq!(socket.close(&directory).len(), 1);
        assert_eq!(StdStream::connect(&alias).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(StdStream::connect(&directory.paths.socket).unwrap_err().kind(), ErrorKind::NotFound);
        drop(early);
    }

    #[tokio::test]
    async fn a_stale_socket_and_a_long_path_are_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("d".repeat(120));
        let (directory, lock) = open(&deep).await;
        drop(Socket::bind(&directory, &lock).unwrap());
        assert_eq!(
            StdStream::connect(directory.short(NAME)).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        let socket = Socket::bind(&directory, &lock).unwrap();
        StdStream::connect(directory.short(NAME)).unwrap();
        socket.accept().await.unwrap();
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&directory.paths.socket), 0o600);
        assert_eq!(mode(&directory.paths.dir), 0o700);
    }

    #[tokio::test]
    async fn a_directory_that_others_may_enter_is_closed_to_them() {
        let home = tempfile::tempdir().unwrap();
        let dir = crate::paths(home.path()).dir;
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        let directory = Directory::open(home.path()).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
        drop(directory);
        std::fs::remove_dir(&dir).unwrap();
        std::os::unix::fs::symlink("/tmp", &dir).unwrap();
        assert!(Directory::open(home.path()).is_err());
    }
}
