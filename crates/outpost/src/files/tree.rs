//! Making directories, removing entries and trees.

use super::failure::{failed, invalid};
use super::path::{Entry, Named};
use super::stat::kind;
use super::temp::new_name;
use super::{Call, Context, check};
use farshell_protocol::Failure;
use farshell_protocol::file::{FileReply, FileType};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) fn make_dir(
    context: &Context,
    raw: &[u8],
    parents: bool,
    mode: Option<u32>,
) -> Result<FileReply, Failure> {
    let named = Named::new(context, raw)?;
    let path = named.path.as_path();
    if parents && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(FileReply::Done);
    }
    let mut made = MadeDirs::default();
    if parents && let Some(parent) = path.parent() {
        made.make(parent)?;
    }
    let entry = named.entry("make directory")?;
    let fail = |error: Errno| failed("make directory", path, error);
    match rustix::fs::mkdirat(entry.dir(), &entry.name, Mode::from_raw_mode(0o777)) {
        Ok(()) => {}
        // Somebody else made it since we looked.
        Err(Errno::EXIST) if parents && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) => {
            return Ok(FileReply::Done);
        }
        Err(error) => return Err(fail(error)),
    }
    made.keep();
    if let Some(mode) = mode {
        let dir = open_dir(entry.dir(), entry.name.as_os_str().as_bytes()).map_err(fail)?;
        rustix::fs::fchmod(dir, Mode::from_raw_mode(mode & 0o7777)).map_err(fail)?;
    }
    Ok(FileReply::Done)
}

/// Directories that were made for the sake of something else, and go if that fails.
#[derive(Debug, Default)]
pub(super) struct MadeDirs {
    made: Vec<PathBuf>,
}

impl MadeDirs {
    /// Makes `path` and what is missing above it.
    pub(super) fn make(&mut self, path: &Path) -> Result<(), Failure> {
        let mut missing = vec![path];
        while let Some(&next) = missing.last() {
            match rustix::fs::mkdir(next, Mode::from_raw_mode(0o777)) {
                Ok(()) => {
                    self.made.push(next.to_owned());
                    missing.pop();
                }
                Err(Errno::NOENT) => match next.parent() {
                    // A dangling link: its name can't be made, though its parent is there.
                    Some(parent) if !missing.contains(&parent) && rustix::fs::lstat(next).is_err() => {
                        missing.push(parent);
                    }
                    _ => return Err(failed("make directory", next, Errno::NOENT)),
                },
                // EEXIST, or a file system that says something else first (EROFS, EACCES on automounts).
                Err(error) => {
                    if !std::fs::metadata(next).is_ok_and(|metadata| metadata.is_dir()) {
                        let error = if error == Errno::EXIST { Errno::NOTDIR } else { error };
                        return Err(failed("make directory", next, error));
                    }
                    missing.pop();
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in self.made.iter().rev() {
            // Only empty ones go: what others have put there since is theirs.
            let _ = rustix::fs::rmdir(dir.as_path());
        }
    }
}

/// How to remove.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    pub(super) recursive: bool,
    pub(super) missing_ok: bool,
}

pub(super) fn remove(
    context: &Context,
    raw: &[u8],
    how: Removal,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let missing = |failure: Failure| {
        let gone = [Some(Errno::NOENT.raw_os_error()), Some(Errno::NOTDIR.raw_os_error())];
        if how.missing_ok && gone.contains(&failure.errno) {
            Ok(FileReply::Removed { entries: 0 })
        } else {
            Err(failure)
        }
    };
    let named = match Named::new(context, raw) {
        Ok(named) => named,
        Err(failure) => return missing(failure),
    };
    let entry = match named.entry("remove") {
        Ok(entry) => entry,
        Err(failure) => return missing(failure),
    };
    let fail = |error: Errno| failed("remove", &entry.path, error);
    let stat = match entry.lstat().map_err(fail).and_then(|stat| stat.ok_or_else(|| fail(Errno::NOENT))) {
        Ok(stat) => stat,
        Err(failure) => return missing(failure),
    };
    if kind(&stat) != FileType::Dir && named.slash {
        return Err(fail(Errno::NOTDIR));
    }
    remove_found(context, &entry, &stat, how.recursive, call)
}

/// Removes what is there.
pub(super) fn remove_found(
    context: &Context,
    entry: &Entry,
    stat: &Stat,
    recursive: bool,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let fail = |error: Errno| failed("remove", &entry.path, error);
    if kind(stat) != FileType::Dir {
        rustix::fs::unlinkat(entry.dir(), &entry.name, AtFlags::empty()).map_err(fail)?;
        return Ok(FileReply::Removed { entries: 1 });
    }
    refuse_precious("remove", context, &entry.path, stat)?;
    if recursive {
        let entries = remove_tree(entry, Some(call))?;
        return Ok(FileReply::Removed { entries });
    }
    match rustix::fs::unlinkat(entry.dir(), &entry.name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(FileReply::Removed { entries: 1 }),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            let mut failure = invalid(
                "remove",
                &entry.path,
                "the directory is not empty and `recursive` was not asked for",
            );
            failure.errno = Some(Errno::NOTEMPTY.raw_os_error());
            Err(failure)
        }
        Err(error) => Err(fail(error)),
    }
}

/// The home directory and all above it are never removed or moved, under whatever name they are reached.
pub(super) fn refuse_precious(
    what: &str,
    context: &Context,
    path: &Path,
    stat: &Stat,
) -> Result<(), Failure> {
    let home = std::fs::canonicalize(&context.home).unwrap_or_else(|_| context.home.clone());
    for dir in home.ancestors() {
        if let Ok(other) = rustix::fs::stat(dir)
            && (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino)
        {
            let why = if dir == home { "it is the home directory" } else { "the home directory is in it" };
            return Err(invalid(what, path, why));
        }
    }
    Ok(())
}

/// Removes what stands under a temporary name.
pub(super) fn discard(entry: &Entry) -> Result<(), Errno> {
    match remove_tree(entry, None) {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.errno.map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Directories that are open at once. What lies deeper is first moved up, so that no tree is too deep.
const MAX_OPEN: usize = 64;
/// Names that are held of one directory at once.
const BATCH: usize = 4096;
/// How often a directory may turn out not to be empty after it was emptied.
const PATIENCE: u32 = 16;

/// One directory on the way down.
struct Level {
    dir: Dir,
    name: CString,
    pending: Vec<(CString, rustix::fs::FileType)>,
    rounds: u32,
}

/// Removes a directory and all that is in it, and counts the entries.
///
/// Each step is relative to an open directory and never follows a link, so that whoever swaps a directory for
/// a link meanwhile loses the link and nothing else. Without a `call` (what is removed is a temporary, or was
/// just copied elsewhere) nothing stops it half way.
pub(super) fn remove_tree(top: &Entry, mut call: Option<&mut dyn Call>) -> Result<u64, Failure> {
    let fail = |error: Errno| failed("remove", &top.path, error);
    let name = CString::new(top.name.as_bytes()).map_err(|_| fail(Errno::INVAL))?;
    let fd = open_dir(top.dir(), top.name.as_bytes()).map_err(fail)?;
    let device = rustix::fs::fstat(&fd).map_err(fail)?.st_dev;
    let mut levels = vec![Level::new(fd, name).map_err(fail)?];
    let mut removed: u64 = 0;

    while let Some(level) = levels.last_mut() {
        if removed.is_multiple_of(64)
            && let Some(call) = call.as_deref_mut()
        {
            check(call)?;
        }
        let (name, kind) = match level.next() {
            Ok(Some(next)) => next,
            Err(error) => return Err(inside(&levels, top, None, error)),
            Ok(None) => {
                // Empty: out of it, and away with it.
                let Some(done) = levels.pop() else { break };
                let parent = match levels.last() {
                    Some(parent) => parent.dir.fd().map_err(fail)?,
                    None => top.dir(),
                };
                match rustix::fs::unlinkat(parent, &done.name, AtFlags::REMOVEDIR) {
                    Ok(()) => removed += 1,
                    Err(Errno::NOENT) => {}
                    // Somebody is filling it while we empty it.
                    Err(Errno::NOTEMPTY | Errno::EXIST) if done.rounds < PATIENCE => {
                        levels.push(Level { rounds: done.rounds + 1, ..done });
                    }
                    Err(error) => return Err(inside(&levels, top, Some(&done.name), error)),
                }
                continue;
            }
        };
        match step(&levels, &name, kind, device) {
            Ok(Step::Removed) => removed += 1,
            Ok(Step::Gone) => {}
            Ok(Step::Enter(level)) => {
                if call.is_none() {
                    // What we discard is ours, and a directory without write permission was made so by us.
                    let _ = level.dir.fd().and_then(|fd| rustix::fs::fchmod(fd, Mode::from_raw_mode(0o700)));
                }
                levels.push(level);
            }
            Err(error) => return Err(inside(&levels, top, Some(&name), error)),
        }
    }
    Ok(removed)
}

enum Step {
    Removed,
    /// Already removed by another, or moved to where it will be met again.
    Gone,
    Enter(Level),
}

fn step(levels: &[Level], name: &CString, kind: rustix::fs::FileType, device: u64) -> Result<Step, Errno> {
    let (Some(top), Some(level)) = (levels.first(), levels.last()) else { return Ok(Step::Gone) };
    let dir = level.dir.fd()?;
    let unlink = || match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(Step::Removed),
        Err(Errno::NOENT) => Ok(Step::Gone),
        Err(error) => Err(error),
    };
    if !matches!(kind, rustix::fs::FileType::Directory | rustix::fs::FileType::Unknown) {
        return unlink();
    }
    let fd = match open_dir(dir, name.to_bytes()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Step::Gone),
        // A link or a file, now or (kind unknown) all along.
        Err(Errno::NOTDIR | Errno::LOOP) => return unlink(),
        Err(Errno::ACCESS) => {
            // It can't be looked into. If it is empty, that does not matter.
            rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(|_| Errno::ACCESS)?;
            return Ok(Step::Removed);
        }
        Err(error) => return Err(error),
    };
    // What is mounted here belongs to somebody else, and the mount point could not be removed anyway.
    if rustix::fs::fstat(&fd)?.st_dev != device {
        return Err(Errno::XDEV);
    }
    if levels.len() >= MAX_OPEN {
        let up = new_name()?;
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(Step::Removed),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        rustix::fs::renameat(dir, name, top.dir.fd()?, up)?;
        return Ok(Step::Gone);
    }
    Ok(Step::Enter(Level::new(fd, name.clone())?))
}

impl Level {
    fn new(fd: OwnedFd, name: CString) -> Result<Self, Errno> {
        Ok(Self { dir: Dir::new(fd)?, name, pending: Vec::new(), rounds: 0 })
    }

    /// The next entry to remove; `None` if the directory is empty.
    fn next(&mut self) -> Result<Option<(CString, rustix::fs::FileType)>, Errno> {
        if self.pending.is_empty() {
            // From the start each time: a position among entries that go away means nothing.
            self.dir.rewind();
            while self.pending.len() < BATCH
                && let Some(entry) = self.dir.read()
            {
                let entry = entry?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    self.pending.push((entry.file_name().to_owned(), entry.file_type()));
                }
            }
        }
        Ok(self.pending.pop())
    }
}

/// A failure somewhere below `top`.
fn inside(levels: &[Level], top: &Entry, name: Option<&CString>, error: Errno) -> Failure {
    let mut path = top.path.clone();
    for name in levels.iter().skip(1).map(|level| &level.name).chain(name) {
        path.push(std::ffi::OsStr::from_bytes(name.to_bytes()));
    }
    if error == Errno::XDEV {
        let mut failure = invalid("remove", &path, "another file system is mounted there");
        failure.errno = Some(error.raw_os_error());
        return failure;
    }
    failed("remove", &path, error)
}

/// Opens a directory that is a directory and no link to one.
pub(super) fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
