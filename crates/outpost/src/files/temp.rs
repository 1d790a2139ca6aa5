//! Names for what is not finished yet.
//!
//! A file is written under a temporary name in the directory where it will stand, and takes its real name in
//! one step when it is whole. If the step is never reached, the temporary is removed; if the outpost itself is
//! killed first, it stays, under a name that [`is_leftover`] knows.

use super::path::Entry;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;

/// Whether a file of this name is an unfinished write of an outpost that was killed.
pub(crate) fn is_leftover(name: &[u8]) -> bool {
    farshell_beneath::is_ours(name)
}

pub(super) fn new_name() -> Result<OsString, Errno> {
    farshell_beneath::temporary_name()
}

/// A temporary entry, removed when dropped unless it got its real name.
#[derive(Debug)]
pub(super) struct Temp {
    entry: Entry,
    kind: Kind,
    armed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Dir,
}

impl Temp {
    /// A new empty file beside `target`, which only its owner can open.
    pub(super) fn file(target: &Entry) -> Result<(Self, File), Errno> {
        let entry = target.sibling(&new_name()?)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(entry.dir(), &entry.name, flags, Mode::from_raw_mode(0o600))?;
        Ok((Self { entry, kind: Kind::File, armed: true }, File::from(fd)))
    }

    /// A new empty directory beside `target`, which only its owner can enter.
    pub(super) fn dir(target: &Entry) -> Result<Self, Errno> {
        let entry = target.sibling(&new_name()?)?;
        rustix::fs::mkdirat(entry.dir(), &entry.name, Mode::from_raw_mode(0o700))?;
        Ok(Self { entry, kind: Kind::Dir, armed: true })
    }

    /// A new symbolic link beside `target`.
    pub(super) fn link(target: &Entry, to: &std::path::Path) -> Result<Self, Errno> {
        let entry = target.sibling(&new_name()?)?;
        rustix::fs::symlinkat(to, entry.dir(), &entry.name)?;
        Ok(Self { entry, kind: Kind::File, armed: true })
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Gives the temporary its real name. Without `replace`, fails with `EXIST` if something is there.
    pub(super) fn place(mut self, target: &Entry, replace: bool) -> Result<(), Errno> {
        rename(&self.entry, target, replace)?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Nobody is left to tell if this fails; the name says what it is.
        let _ = match self.kind {
            Kind::File => rustix::fs::unlinkat(self.entry.dir(), &self.entry.name, AtFlags::empty()),
            Kind::Dir => super::tree::discard(&self.entry),
        };
    }
}

/// Renames in one step. Without `replace`, fails with `EXIST` if something is there already.
pub(super) fn rename(from: &Entry, to: &Entry, replace: bool) -> Result<(), Errno> {
    if replace {
        return rustix::fs::renameat(from.dir(), &from.name, to.dir(), &to.name);
    }
    let result =
        rustix::fs::renameat_with(from.dir(), &from.name, to.dir(), &to.name, RenameFlags::NOREPLACE);
    match result {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_new(from, to),
        other => other,
    }
}

/// For file systems that can't refuse to replace (NFS, some FUSE): a hard link can't replace either.
fn rename_new(from: &Entry, to: &Entry) -> Result<(), Errno> {
    match rustix::fs::linkat(from.dir(), &from.name, to.dir().as_fd(), &to.name, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(from.dir(), &from.name, AtFlags::empty()),
        // A directory, or no hard links either. What is left is to look first, and that is not atomic.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            if to.lstat()?.is_some() {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(from.dir(), &from.name, to.dir(), &to.name)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::Scene;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn leftovers_are_known_by_their_names() {
        let name = new_name().unwrap();
        assert!(is_leftover(name.as_bytes()));
        assert_ne!(name, new_name().unwrap());
        for other in
            [&b".farshell-tmp-"[..], b".farshell-tmp-mine", b"farshell-tmp-0123456789abcdef01234567", b""]
        {
            assert!(!is_leftover(other));
        }
    }

    #[test]
    fn the_way_without_renameat2_does_not_replace_either() {
        let scene = Scene::new();
        let from = Entry::open(&scene.file("from", "new"), "test").unwrap();
        let to = Entry::open(&scene.file("to", "old"), "test").unwrap();
        assert_eq!(rename_new(&from, &to), Err(Errno::EXIST));
        std::fs::remove_file(scene.path("to")).unwrap();
        rename_new(&from, &to).unwrap();
        assert_eq!(scene.names(), ["to"]);
        assert_eq!(std::fs::read(scene.path("to")).unwrap(), b"new");

        std::fs::create_dir(scene.path("dir")).unwrap();
        let dir = Entry::open(&scene.path("dir"), "test").unwrap();
        assert_eq!(rename_new(&dir, &to), Err(Errno::EXIST));
        rename_new(&dir, &Entry::open(&scene.path("moved"), "test").unwrap()).unwrap();
        assert_eq!(scene.names(), ["moved", "to"]);
    }
}
