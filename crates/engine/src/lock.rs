//! One at a time, among all processes of a home: whoever makes, ends or removes a place, or builds an image.

use crate::error::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// A file that is locked. It is free again when this is dropped, or when the process that holds it is gone.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Waits until nobody else holds it. `wait` is called now and then meanwhile.
    ///
    /// # Errors
    /// The file can't be made, or somebody holds the lock for longer than `patience`.
    pub async fn take(path: &Path, patience: Duration, mut wait: impl FnMut()) -> Result<Self> {
        let what = || format!("locking {}", path.display());
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| Error::io(what(), e))?;
        }
        loop {
            let options = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).clone();
            let file = options.open(path).map_err(|e| Error::io(what(), e))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Whoever held it may have removed it: a lock on a file that is gone guards nothing.
                    let here = std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
                    if file.metadata().ok().map(|meta| (meta.dev(), meta.ino())) == here && here.is_some() {
                        return Ok(Self { path: path.to_owned(), file });
                    }
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if Instant::now() >= deadline {
                        let message = "somebody else holds it and does not come to an end";
                        return Err(Error::new(Kind::TimedOut, what(), message));
                    }
                    wait();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                Err(error) => return Err(Error::io(what(), error.into())),
            }
        }
    }

    /// The same lock for a child: it is held until that is gone, too.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn share(&self) -> Result<File> {
        self.file.try_clone().map_err(|e| Error::io(format!("locking {}", self.path.display()), e))
    }

    /// Frees it, and leaves no file.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn one_holds_it_also_when_it_is_removed_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/lock");
        let inside = AtomicU32::new(0);
        let one = || async {
            for _ in 0..50 {
                let lock = Lock::take(&path, Duration::from_secs(20), || ()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                lock.remove();
            }
        };
        tokio::join!(one(), one(), one());
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_child_holds_is_waited_for_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path, Duration::from_secs(1), || ()).await.unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("600").stdin(lock.share().unwrap()).spawn().unwrap();
        drop(lock);
        let error = Lock::take(&path, Duration::from_millis(50), || ()).await.unwrap_err();
        assert_eq!(error.kind, Kind::TimedOut);
        child.kill().unwrap();
        child.wait().unwrap();
        Lock::take(&path, Duration::from_secs(5), || ()).await.unwrap();
    }
}
