//! One server for one home: whoever holds the lock.

use crate::paths::Directory;
use farshell_engine::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;
use tokio::net::UnixStream;

const WHAT: &str = "becoming the server of this home";
/// How long a holder that does not answer is waited for: it is starting, or ending.
#[cfg(not(test))]
const PATIENCE: Duration = Duration::from_secs(10);
#[cfg(test)]
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// # Errors
    /// Another server has it: `already_exists`, with its pid. Its socket has answered then.
    pub(crate) async fn take(directory: &Directory) -> Result<Self> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = Self::attempt(directory)? {
                return Ok(lock);
            }
            if answers(directory).await {
                return Err(taken(directory, "serves this home already"));
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(taken(directory, "holds this home and does not answer"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn attempt(directory: &Directory) -> Result<Option<Self>> {
        let path = &directory.paths.lock;
        let io = |error| Error::io(format!("{WHAT}: opening {}", path.display()), error);
        // By its full name: a home that was replaced has a lock of its own.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(io(error.into())),
        }
        let lock = Self { file };
        // A lock on a file that is no longer there keeps nobody out.
        if !lock.is_in(directory) {
            return Ok(None);
        }
        let pid = format!("{}\n", std::process::id());
        lock.file.set_len(0).and_then(|()| lock.file.write_all_at(pid.as_bytes(), 0)).map_err(io)?;
        Ok(Some(lock))
    }

    /// Is the file that is locked still the one that others find?
    pub(crate) fn is_in(&self, directory: &Directory) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), std::fs::metadata(&directory.paths.lock)) else {
            return false;
        };
        (there.dev(), there.ino()) == (ours.dev(), ours.ino())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Nobody is to look for a process that has ended.
        let _ = self.file.set_len(0);
    }
}

/// Does somebody listen? One with a long queue before its door does.
async fn answers(directory: &Directory) -> bool {
    match UnixStream::connect(directory.short("sock")).await {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn taken(directory: &Directory, does: &str) -> Error {
    let mut text = String::new();
    if let Ok(file) = File::open(&directory.paths.lock) {
        let _ = file.take(32).read_to_string(&mut text);
    }
    let who = match text.trim() {
        "" => "another server".to_owned(),
        pid => format!("another server (pid {pid})"),
    };
    Error::new(Kind::AlreadyExists, WHAT, format!("{who} {does}"))
        .with_hint("use it, or stop it with `farshell server stop`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn the_second_is_told_who_has_it() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let lock = Lock::take(&directory).await.unwrap();
        let error = Lock::take(&directory).await.unwrap_err();
        assert_eq!(error.kind, Kind::AlreadyExists);
        let expected =
            format!("another server (pid {}) holds this home and does not answer", std::process::id());
        assert_eq!(error.message, expected);
        let _listener = UnixListener::bind(directory.short("sock")).unwrap();
        let error = Lock::take(&directory).await.unwrap_err();
        assert!(error.message.ends_with("serves this home already"), "{error}");
        drop(lock);
        assert_eq!(std::fs::read_to_string(&directory.paths.lock).unwrap(), "");
        Lock::take(&directory).await.unwrap();
    }

    #[tokio::test]
    async fn one_that_is_about_to_end_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let lock = Lock::take(&directory).await.unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(lock);
        };
        let (second, ()) = tokio::join!(Lock::take(&directory), release);
        second.unwrap();
    }

    #[tokio::test]
    async fn a_removed_lock_file_is_not_trusted() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let first = Lock::take(&directory).await.unwrap();
        std::fs::remove_file(&directory.paths.lock).unwrap();
        let second = Lock::take(&directory).await.unwrap();
        drop(first);
        let text = std::fs::read_to_string(&directory.paths.lock).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
        drop(second);
    }
}
