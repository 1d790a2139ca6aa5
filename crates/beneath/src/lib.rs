//! Files below a directory: nothing outside of it is reached, whatever names and links are there.
//!
//! A copy writes below a directory that somebody chose, under names that somebody else chose. So a path is walked one
//! name after the other, each from the open directory before it and never through a link. A directory that is swapped
//! for a link in the middle of it ends the walk; one that is moved away takes what is written into it along. That is
//! what `openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS` promises, without a kernel or a sandbox that has to
//! have it.
//!
//! The outpost works with this in a place, and `farshell cp` on this machine: both sides of a copy keep the same rules.
//!
//! | file | owns |
//! |---|---|
//! | `lib` | the walk, and looking at what is there |
//! | `put` | a file that appears whole or not at all, and can be gone on with |
//! | `change` | directories, links, modes and times, removal |

mod change;
mod put;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

pub use put::{Put, is_ours, part_name, temporary_name};

/// A directory below which somebody works.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
}

impl Root {
    /// Opens a directory. Links in its path are followed: who names it is trusted.
    ///
    /// # Errors
    /// It is not there, or is no directory.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        // O_PATH: a directory in which one may make entries need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { dir: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// The entry that a relative path names. It need not be there, but the directories before it have to.
    ///
    /// # Errors
    /// `INVAL`: the path is empty, absolute, or has `.` or `..` in it. `NOTDIR`: something on the way is no directory,
    /// a link to one included.
    pub fn spot(&self, path: &[u8]) -> Result<Spot, Errno> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (before, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        if !is_name(name) || cut == Some(0) {
            return Err(Errno::INVAL);
        }
        Ok(Spot { dir: self.walk(before)?, name: OsString::from_vec(name.to_vec()) })
    }

    /// The directory that a relative path names, open to be read; the root itself if the path is empty.
    ///
    /// # Errors
    /// As for [`Root::spot`].
    pub fn dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let dir = self.walk(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, ".", flags, Mode::empty())
    }

    fn walk(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?;
        if path.is_empty() {
            return Ok(dir);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let names = || path.split(|byte| *byte == b'/');
        if !names().all(is_name) {
            return Err(Errno::INVAL);
        }
        for name in names() {
            dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
        }
        Ok(dir)
    }

    /// Everything that was written below is on the disk when this returns.
    ///
    /// # Errors
    /// The disk says so.
    pub fn sync(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(self.dir(b"")?)
    }
}

/// Whether this can be the name of an entry.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// A name in an open directory. The directory stays the same one whatever happens to the path that led to it.
#[derive(Debug)]
pub struct Spot {
    dir: OwnedFd,
    name: OsString,
}

impl Spot {
    /// # Errors
    /// It can't be looked at; that there is nothing is none.
    pub fn lstat(&self) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a link says.
    ///
    /// # Errors
    /// It is no link.
    pub fn read_link(&self) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(&self.dir, &self.name, Vec::new())?.into_bytes())
    }

    /// Opens a regular file to be read. Nothing else is opened, and nothing is waited for.
    ///
    /// # Errors
    /// `LOOP`: it is a link. `INVAL`: it is something else that is no regular file.
    pub fn open(&self) -> Result<(File, Stat), Errno> {
        let seen = self.lstat()?.ok_or(Errno::NOENT)?;
        refuse_special(&seen)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())?);
        // It may be another one by now.
        let stat = rustix::fs::fstat(&file)?;
        refuse_special(&stat)?;
        Ok((file, stat))
    }

    /// The directory and the name.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, OsString) {
        (self.dir, self.name)
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    fn sibling(&self, name: &OsStr) -> Result<Self, Errno> {
        Ok(Self { dir: rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?, name: name.to_owned() })
    }
}

fn refuse_special(stat: &Stat) -> Result<(), Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// A time of modification in nanoseconds. Saturates in the years 1677 and 2262.
#[must_use]
pub fn mtime_ns(stat: &Stat) -> i64 {
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

/// Names in a directory, without `.` and `..`, in order.
///
/// # Errors
/// It can't be read.
pub fn names(dir: OwnedFd) -> Result<(rustix::fs::Dir, Vec<OsString>), Errno> {
    let mut dir = rustix::fs::Dir::new(dir)?;
    let mut names = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if is_name(name) {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok((dir, names))
}
