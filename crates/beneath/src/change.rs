//! Directories, modes and times, removal.

use crate::put::times;
use crate::{Root, Spot, names};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

/// Directories within directories that are followed into: each holds a descriptor open.
const MAX_DEPTH: usize = 200;

impl Spot {
    /// Makes a directory that only its owner can use until [`Root::set`] says otherwise. One that is there stays as it
    /// is. Says whether it was made.
    ///
    /// # Errors
    /// `NOTDIR`: something else has the name, a link to a directory included.
    pub fn make_dir(&self) -> Result<bool, Errno> {
        match rustix::fs::mkdirat(self.dir(), &self.name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match self.lstat()? {
                Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(false),
                _ => Err(Errno::NOTDIR),
            },
            Err(error) => Err(error),
        }
    }

    /// Removes an entry, with all that is in it. Links are removed, never followed.
    ///
    /// # Errors
    /// Something can't be removed; that nothing is there is no error.
    pub fn remove(&self) -> Result<(), Errno> {
        remove(self.dir(), &self.name, 0)
    }
}

fn remove(dir: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (open, inside) = names(rustix::fs::openat(dir, name, flags, Mode::empty())?)?;
    let open = open.fd()?;
    for name in inside {
        remove(open.as_fd(), &name, depth + 1)?;
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Root {
    /// Sets the mode and the time of a file or a directory; of the root itself if the path is empty.
    ///
    /// # Errors
    /// It is a link or something special, or not ours.
    pub fn set(&self, path: &[u8], mode: Option<u32>, mtime_ns: Option<i64>) -> Result<(), Errno> {
        let fd = if path.is_empty() {
            self.dir(path)?
        } else {
            let spot = self.spot(path)?;
            let kind = spot.lstat()?.map(|stat| FileType::from_raw_mode(stat.st_mode)).ok_or(Errno::NOENT)?;
            match kind {
                FileType::RegularFile | FileType::Directory => {}
                FileType::Symlink => return Err(Errno::LOOP),
                _ => return Err(Errno::INVAL),
            }
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::openat(spot.dir(), &spot.name, flags, Mode::empty())?
        };
        if let Some(mode) = mode {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o1777))?;
        }
        if let Some(time) = mtime_ns {
            rustix::fs::futimens(&fd, &times(time))?;
        }
        Ok(())
    }
}
