//! Files that hold settings: read whole, replaced whole, one writer at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Only the owner may read and write.
pub(crate) const PRIVATE: u32 = 0o600;

/// How long one change waits for another to finish. Changes take milliseconds; a longer wait means that
/// somebody hangs.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);

/// A settings file larger than this is not one, and is not read into memory.
const MAX_SIZE: u64 = 16 * 1024 * 1024;

/// A file as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// The file's content; `None` if there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Option<Stored>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("larger than a settings file can be"));
    }
    Ok(Some(Stored { bytes, mode: metadata.mode() & 0o7777 }))
}

/// The file that a path means after all links, whether or not it is there.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // The limit is that of the system's own walk over links.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

pub(crate) fn create_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => DirBuilder::new().recursive(true).mode(0o700).create(parent),
        None => Ok(()),
    }
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    Busy,
    Io(io::Error),
}

/// Where the lock of a file lies.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{}.lock", name.trim_start_matches('.')))
}

/// Waits until nobody else changes the file. The lock lasts as long as the returned value, and ends with its process.
pub(crate) fn lock(path: &Path) -> Result<File, LockError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(PRIVATE)
        .open(lock_path(path))
        .map_err(LockError::Io)?;
    let deadline = Instant::now() + LOCK_DEADLINE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => return Err(LockError::Busy),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
    }
}

/// Puts `bytes` in the place of the file in one step: a reader sees the old or the new, and so does a crash.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.{number}.tmp", std::process::id()));
    let result = write_new(path, &temporary, bytes, mode).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // The error that matters is the one being returned.
        let _ = fs::remove_file(&temporary);
        return result;
    }
    // The rename itself is on disk only after the directory is.
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn write_new(path: &Path, temporary: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(temporary)?;
    file.write_all(bytes)?;
    if let Ok(old) = fs::metadata(path) {
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            // Only a privileged user can give a file away; for everyone else it becomes their own.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}
