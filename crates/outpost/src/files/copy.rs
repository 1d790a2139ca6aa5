//! Copy and move.
//!
//! Both end with one rename: whatever is copied is whole before it gets its name, and if anything fails before,
//! nothing is there. Copies are made under a temporary name beside the target (see `temp`).
//!
//! A copy keeps modes, and links inside a tree stay links; it belongs to who made it, now. A move across file
//! systems also keeps owners (where allowed) and times. Neither keeps hard links among the copied files,
//! extended attributes, or the holes of sparse files.

use super::failure::{failed, invalid};
use super::path::{Entry, Named};
use super::stat::{it_is, kind, mode};
use super::temp::{Temp, rename};
use super::tree::{open_dir, refuse_precious, remove_tree};
use super::write::keep_owner;
use super::{Call, Context, check};
use farshell_protocol::Failure;
use farshell_protocol::file::{FileReply, FileType};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories within directories that a copy follows: each level holds two descriptors open.
const MAX_DEPTH: usize = 200;
/// Bytes between two looks at whether the caller still wants the copy.
const CHUNK: u64 = 64 << 20;

pub(super) fn serve_copy(
    context: &Context,
    from: &[u8],
    to: &[u8],
    replace: bool,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let from = Named::new(context, from)?;
    let to = Named::new(context, to)?;
    let path = from.path.as_path();
    let stat = rustix::fs::stat(path).map_err(|error| failed("copy", path, error))?;
    let target = to.entry("copy to")?;
    check_pair("copy", &from, &stat, &to, &target, replace)?;
    // The links at the end of the path are followed here, once; below, none is.
    let real = std::fs::canonicalize(path).map_err(|error| failed("copy", path, error))?;
    let source = Entry::open(&real, "copy")?;
    let mut copier = Copier { keep: Keep::Mode, bytes: 0, call };
    copier.copy(&source, &stat, &target, replace)?;
    Ok(FileReply::Copied { bytes: copier.bytes })
}

pub(super) fn serve_move(
    context: &Context,
    from: &[u8],
    to: &[u8],
    replace: bool,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let from = Named::new(context, from)?;
    let to = Named::new(context, to)?;
    let source = from.entry("move")?;
    let fail = |error: Errno| failed("move", &source.path, error);
    let stat = source.lstat().map_err(fail)?.ok_or_else(|| fail(Errno::NOENT))?;
    let target = to.entry("move to")?;
    if same_entry(&source, &target) {
        return Ok(FileReply::Done);
    }
    if kind(&stat) == FileType::Dir {
        refuse_precious("move", context, &source.path, &stat)?;
    }
    let old = check_pair("move", &from, &stat, &to, &target, replace)?;
    if old.is_some_and(|old| same_file(&old, &stat)) {
        // Two hard links to one file: rename would do nothing, and say that it had.
        rustix::fs::unlinkat(source.dir(), &source.name, AtFlags::empty()).map_err(fail)?;
        return Ok(FileReply::Done);
    }
    match rename(&source, &target, replace) {
        Ok(()) => return Ok(FileReply::Done),
        // Another file system; or, on an overlay, a directory that is still in a lower layer.
        Err(Errno::XDEV) => {}
        Err(error) => return Err(failed("move to", &target.path, error)),
    }
    Copier { keep: Keep::All, bytes: 0, call }.copy(&source, &stat, &target, replace)?;
    let removed = match kind(&stat) {
        // From here on there is no way back, so nobody is asked whether to go on.
        FileType::Dir => remove_tree(&source, None).map(|_| ()),
        _ => rustix::fs::unlinkat(source.dir(), &source.name, AtFlags::empty()).map_err(fail),
    };
    removed.map_err(|mut failure| {
        failure.message.push_str("; the copy at the new place is whole, the old one is not all removed");
        failure
    })?;
    Ok(FileReply::Done)
}

/// What has to be true of the two ends of a copy or move. Gives what is at the target.
fn check_pair(
    what: &str,
    from: &Named,
    stat: &Stat,
    to: &Named,
    target: &Entry,
    replace: bool,
) -> Result<Option<Stat>, Failure> {
    let dir = kind(stat) == FileType::Dir;
    if from.slash && !dir {
        return Err(failed(what, &from.path, Errno::NOTDIR));
    }
    if to.slash && !dir {
        return Err(invalid(
            &format!("{what} a file to"),
            &to.path,
            "a path that ends in `/` names a directory",
        ));
    }
    if dir && is_inside(&to.path, &from.path) {
        let why = format!("{} is inside of it or the same", super::failure::quoted(&to.path));
        return Err(invalid(what, &from.path, &why));
    }
    let old = target.lstat().map_err(|error| failed(&format!("{what} to"), &target.path, error))?;
    let Some(old) = old else { return Ok(None) };
    if !replace {
        return Err(failed(&format!("{what} to"), &target.path, Errno::EXIST));
    }
    if what == "copy" && same_file(&old, stat) {
        return Err(invalid(what, &from.path, "source and target are the same file"));
    }
    match (dir, kind(&old) == FileType::Dir) {
        (true, false) => Err(failed(&format!("{what} a directory to"), &target.path, Errno::NOTDIR)),
        (false, true) => Err(failed(&format!("{what} a file to"), &target.path, Errno::ISDIR)),
        _ => Ok(Some(old)),
    }
}

fn same_file(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn same_entry(a: &Entry, b: &Entry) -> bool {
    let dirs = (rustix::fs::fstat(a.dir()), rustix::fs::fstat(b.dir()));
    a.name == b.name && matches!(dirs, (Ok(a), Ok(b)) if same_file(&a, &b))
}

/// Whether `path` (whose last part need not exist) is the directory `dir` or lies below it.
fn is_inside(path: &Path, dir: &Path) -> bool {
    let Ok(dir) = std::fs::canonicalize(dir) else { return false };
    if std::fs::canonicalize(path).is_ok_and(|path| path == dir) {
        return true;
    }
    path.parent()
        .is_some_and(|parent| std::fs::canonicalize(parent).is_ok_and(|parent| parent.starts_with(dir)))
}

/// What a copy takes over from its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Mode,
    /// Mode, owner and times; and the copy is on the disk when it is done.
    All,
}

struct Copier<'a> {
    keep: Keep,
    bytes: u64,
    call: &'a mut dyn Call,
}

impl Copier<'_> {
    fn copy(&mut self, source: &Entry, stat: &Stat, target: &Entry, replace: bool) -> Result<(), Failure> {
        let fail = |error: Errno| failed("copy to", &target.path, error);
        let temp = match kind(stat) {
            FileType::File => {
                let (temp, file) = Temp::file(target).map_err(fail)?;
                self.file(source.dir(), &source.name, &file, &source.path)?;
                file.sync_all().map_err(|error| failed("copy to", &target.path, error))?;
                temp
            }
            FileType::Dir => {
                let temp = Temp::dir(target).map_err(fail)?;
                let into = open_dir(temp.entry().dir(), temp.entry().name.as_bytes()).map_err(fail)?;
                self.dir(source.dir(), &source.name, &into, &source.path, 0)?;
                if self.keep == Keep::All {
                    // One sync of the file system costs less than one for each of many files.
                    rustix::fs::syncfs(&into).map_err(fail)?;
                }
                temp
            }
            FileType::Symlink => {
                let to = source.read_link().map_err(|error| failed("copy", &source.path, error))?;
                Temp::link(target, &to).map_err(fail)?
            }
            other => return Err(invalid("copy", &source.path, it_is(other))),
        };
        temp.place(target, replace).map_err(fail)?;
        target.sync_dir().map_err(fail)
    }

    /// Copies the content and what else is kept of one regular file.
    fn file(&mut self, dir: BorrowedFd<'_>, name: &OsStr, into: &File, path: &Path) -> Result<(), Failure> {
        let fail = |error: Errno| failed("copy", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let from = File::from(rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(fail)?);
        let stat = rustix::fs::fstat(&from).map_err(fail)?;
        if kind(&stat) != FileType::File {
            return Err(invalid("copy", path, it_is(kind(&stat))));
        }
        loop {
            check(self.call)?;
            // Within the kernel, or as a shared extent, where the file systems can do that.
            let copied = std::io::copy(&mut (&from).take(CHUNK), &mut &*into)
                .map_err(|error| failed("copy", path, error))?;
            self.bytes += copied;
            if copied < CHUNK {
                break;
            }
        }
        self.dress(into, &stat).map_err(fail)
    }

    /// Copies what is in a directory into one that is there and empty.
    fn dir(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        into: &OwnedFd,
        path: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        let fail = |error: Errno| failed("copy", path, error);
        if depth > MAX_DEPTH {
            return Err(invalid("copy", path, "the directories are nested too deep"));
        }
        let mut from = Dir::new(open_dir(parent, name.as_bytes()).map_err(fail)?).map_err(fail)?;
        let mut names = Vec::new();
        while let Some(entry) = from.read() {
            let entry = entry.map_err(fail)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
            }
        }
        let from = from.fd().map_err(fail)?;
        for name in names {
            check(self.call)?;
            self.child(from, &name, into, &path.join(&name), depth)?;
        }
        let stat = rustix::fs::fstat(from).map_err(fail)?;
        self.dress(into, &stat).map_err(fail)
    }

    fn child(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        into: &OwnedFd,
        path: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        let fail = |error: Errno| failed("copy", path, error);
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
        match kind(&stat) {
            FileType::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(into, name, flags, Mode::from_raw_mode(0o600)).map_err(fail)?;
                self.file(from, name, &File::from(fd), path)
            }
            FileType::Dir => {
                rustix::fs::mkdirat(into, name, Mode::from_raw_mode(0o700)).map_err(fail)?;
                let made = open_dir(into.as_fd(), name.as_bytes()).map_err(fail)?;
                self.dir(from, name, &made, path, depth + 1)
            }
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(from, name, Vec::new()).map_err(fail)?;
                rustix::fs::symlinkat(to, into, name).map_err(fail)
            }
            other => Err(invalid("copy", path, it_is(other))),
        }
    }

    /// Gives the copy what it keeps of the source.
    fn dress(&self, copy: impl AsFd, stat: &Stat) -> Result<(), Errno> {
        let bits = match self.keep {
            // With another owner a set-id bit means another thing.
            Keep::Mode => mode(stat) & 0o1777,
            Keep::All if keep_owner(copy.as_fd(), stat)? => mode(stat),
            Keep::All => mode(stat) & 0o1777,
        };
        rustix::fs::fchmod(copy.as_fd(), Mode::from_raw_mode(bits))?;
        if self.keep == Keep::All {
            let time = |tv_sec, nanoseconds: u64| Timespec {
                tv_sec,
                tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
            };
            let times = Timestamps {
                last_access: time(stat.st_atime, stat.st_atime_nsec),
                last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
            };
            rustix::fs::futimens(copy.as_fd(), &times)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
