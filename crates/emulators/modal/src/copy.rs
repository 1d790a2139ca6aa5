//! Copies the upper directory of an overlay, so that the copy is a layer of its own: deletions, attributes, owners, times,
//! links and holes kept.

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat,
    lgetxattr, llistxattr, lsetxattr, mknodat, utimensat,
};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Marks of the overlay that mean something only on the directories below: which file this was copied from, and hints.
/// What says that a directory hides the one below is kept.
const LEFT_OUT: &[&str] =
    &["trusted.overlay.origin", "trusted.overlay.impure", "trusted.overlay.nlink", "trusted.overlay.uuid"];
const CHUNK: usize = 1 << 20;

/// `to` is there, and empty.
pub(crate) fn tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut links = HashMap::new();
    directory(from, to, &mut links)
}

fn directory(from: &Path, to: &Path, links: &mut HashMap<(u64, u64), PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let name = entry?.file_name();
        let (from, to) = (from.join(&name), to.join(&name));
        match one(&from, &to, links) {
            // It is gone meanwhile: then it is not in the snapshot.
            Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => {}
            done => done?,
        }
    }
    // Last, because what was made in it changed its time.
    let stat = rustix::fs::lstat(from)?;
    dress(from, to, &stat)
}

fn one(from: &Path, to: &Path, links: &mut HashMap<(u64, u64), PathBuf>) -> io::Result<()> {
    let stat = rustix::fs::lstat(from)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Directory {
        std::fs::create_dir(to)?;
        return directory(from, to, links);
    }
    if stat.st_nlink > 1 {
        if let Some(first) = links.get(&(stat.st_dev, stat.st_ino)) {
            return std::fs::hard_link(first, to);
        }
        links.insert((stat.st_dev, stat.st_ino), to.to_owned());
    }
    match kind {
        FileType::RegularFile => content(from, to, stat.st_size.unsigned_abs())?,
        FileType::Symlink => symlink(std::fs::read_link(from)?, to)?,
        // Also what says that a file was deleted: a character device of number nought.
        _ => mknodat(CWD, to, kind, Mode::from_raw_mode(stat.st_mode), stat.st_rdev)?,
    }
    dress(from, to, &stat)
}

/// The bytes, without those that were never written.
fn content(from: &Path, to: &Path, size: u64) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    to.set_len(size)?;
    let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK)).max(1)];
    let mut at = 0;
    while at < size {
        // A filesystem that knows no holes says that all of it is data.
        let begin = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = rustix::fs::seek(&from, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
        at = begin;
        while at < end {
            let most = buffer.len().min(usize::try_from(end - at).unwrap_or(CHUNK));
            let got = from.read_at(&mut buffer[..most], at)?;
            if got == 0 {
                return Ok(());
            }
            to.write_all_at(&buffer[..got], at)?;
            at += got as u64;
        }
        at = at.max(end);
    }
    Ok(())
}

/// Owner, mode, attributes and times, in the order in which none undoes another.
fn dress(from: &Path, to: &Path, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(CWD, to, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(stat.st_mode & 0o7777))?;
    }
    attributes(from, to)?;
    let time = |secs: i64, nanos: u64| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or(0) };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Ok(utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0_u8; 64 << 10];
    let length = match llistxattr(from, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if LEFT_OUT.iter().any(|left| left.as_bytes() == name) {
            continue;
        }
        let mut value = vec![0_u8; 64 << 10];
        let size = lgetxattr(from, name, &mut value)?;
        lsetxattr(to, name, &value[..size], XattrFlags::empty())?;
    }
    Ok(())
}
