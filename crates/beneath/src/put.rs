//! A file that appears whole or not at all.
//!
//! The bytes go into a file beside the target and get its name in one step when they are complete. A small file has a
//! temporary one, which goes if that is never reached. A large one has a *part*: it stays, so that the next attempt
//! goes on where this one stopped. A target has one part, whose name follows from its own; whoever writes it holds a
//! lock on it, and whoever goes on with one has compared it with the source before.

use crate::Spot;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

const TEMPORARY: &str = ".farshell-tmp-";
const PART: &str = ".farshell-part-";
/// Hexadecimal digits after the prefix: 96 bits, so that nobody can guess a name and wait there.
const DIGITS: usize = 24;

/// Whether a file of this name is an unfinished one of ours.
#[must_use]
pub fn is_ours(name: &[u8]) -> bool {
    [TEMPORARY, PART].iter().any(|prefix| {
        name.strip_prefix(prefix.as_bytes()).is_some_and(|rest| {
            rest.len() == DIGITS && rest.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
    })
}

/// A name that nobody else has.
///
/// # Errors
/// The system has no randomness.
pub fn temporary_name() -> Result<OsString, Errno> {
    let mut random = [0; DIGITS / 2];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    Ok(named(TEMPORARY, random))
}

/// The name of the part of a file of this name.
#[must_use]
pub fn part_name(name: &[u8]) -> OsString {
    // Two sums with different beginnings: names of one directory that collide by chance are not to be expected, and
    // those that do on purpose only keep each other from being gone on with.
    let sum = |seed: u64| {
        name.iter().fold(seed, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let [a, b] = [0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142].map(|seed: u64| sum(seed).to_be_bytes());
    let mut bytes = [0; DIGITS / 2];
    bytes[..8].copy_from_slice(&a);
    bytes[8..].copy_from_slice(&b[4..]);
    named(PART, bytes)
}

fn named(prefix: &str, bytes: [u8; DIGITS / 2]) -> OsString {
    let mut name = String::from(prefix);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            name.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    name.into()
}

/// A file that is being written.
#[derive(Debug)]
pub struct Put {
    target: Spot,
    at: Spot,
    file: File,
    /// What is not finished goes.
    temporary: bool,
}

impl Spot {
    /// Begins a file that goes if it is not finished.
    ///
    /// # Errors
    /// Nothing can be written here.
    pub fn put(self) -> Result<Put, Errno> {
        let at = self.sibling(&temporary_name()?)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(at.dir(), &at.name, flags, Mode::from_raw_mode(0o600))?);
        Ok(Put { target: self, at, file, temporary: true })
    }

    /// Begins a file that stays if it is not finished, or goes on with one after so many bytes; what it has beyond
    /// them is cut off.
    ///
    /// # Errors
    /// `AGAIN`: somebody else is writing it. `STALE`: it has not so many bytes. `INVAL`: what has its name is not a
    /// file of ours.
    pub fn go_on(self, offset: u64) -> Result<Put, Errno> {
        let at = self.part()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(at.dir(), &at.name, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(Errno::INVAL),
            other => other?,
        };
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            // A file system without locks is one that nobody else can be told about.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
        let stat = rustix::fs::fstat(&fd)?;
        // Who had the lock before may have finished the file: then this is the target itself.
        let still = at.lstat()?.is_some_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino));
        if !still {
            return Err(Errno::AGAIN);
        }
        let mine = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !mine {
            return Err(Errno::INVAL);
        }
        if u64::try_from(stat.st_size).unwrap_or(0) < offset {
            return Err(Errno::STALE);
        }
        rustix::fs::ftruncate(&fd, offset)?;
        let mut file = File::from(fd);
        file.seek(std::io::SeekFrom::Start(offset)).map_err(|_| Errno::IO)?;
        Ok(Put { target: self, at, file, temporary: false })
    }

    /// Where the part of this file is.
    ///
    /// # Errors
    /// Descriptors have run out.
    pub fn part(&self) -> Result<Self, Errno> {
        self.sibling(&part_name(self.name.as_bytes()))
    }
}

impl Put {
    /// # Errors
    /// The disk is full, say.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name, in the place of whatever else but a directory has it. It is not synced: see
    /// [`crate::Root::sync`].
    ///
    /// # Errors
    /// `ISDIR`: a directory has the name.
    pub fn finish(mut self, mode: u32, mtime_ns: Option<i64>) -> Result<Stat, Errno> {
        // Nobody is lent the right to be who wrote this.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o1777))?;
        if let Some(time) = mtime_ns {
            rustix::fs::futimens(&self.file, &times(time))?;
        }
        let (from, to) = (&self.at, &self.target);
        rustix::fs::renameat(from.dir(), &from.name, to.dir(), &to.name)?;
        self.temporary = false;
        rustix::fs::fstat(&self.file)
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        if self.temporary {
            // Nobody is left to tell if this fails; the name says what it is.
            let _ = rustix::fs::unlinkat(self.at.dir(), &self.at.name, AtFlags::empty());
        }
    }
}

/// Only the time of modification.
pub(crate) fn times(mtime_ns: i64) -> Timestamps {
    let at =
        Timespec { tv_sec: mtime_ns.div_euclid(1_000_000_000), tv_nsec: mtime_ns.rem_euclid(1_000_000_000) };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: at }
}

impl Spot {
    /// Makes a link with this text, in the place of whatever else but a directory has the name.
    ///
    /// # Errors
    /// `ISDIR`: a directory has the name.
    pub fn link(&self, to: &[u8], mtime_ns: Option<i64>) -> Result<(), Errno> {
        let at = self.sibling(&temporary_name()?)?;
        rustix::fs::symlinkat(OsStr::from_bytes(to), at.dir().as_fd(), &at.name)?;
        if let Some(time) = mtime_ns {
            // Some file systems have no times for links.
            let _ = rustix::fs::utimensat(at.dir(), &at.name, &times(time), AtFlags::SYMLINK_NOFOLLOW);
        }
        let renamed = rustix::fs::renameat(at.dir(), &at.name, self.dir(), &self.name);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(at.dir(), &at.name, AtFlags::empty());
        }
        renamed
    }
}
