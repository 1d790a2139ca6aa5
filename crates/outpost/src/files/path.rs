//! From the bytes of a request to an absolute path, and to the directory entry it names.

use super::Context;
use super::failure::{failed, invalid};
use farshell_protocol::{ErrorKind, Failure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a path of a request means.
#[derive(Debug)]
pub(super) struct Named {
    /// Absolute, without `.`, `..` and doubled slashes. Links are kept, but for one that a `..` stepped back
    /// from: there the kernel goes to the parent of the link's target, and so does this.
    pub(super) path: PathBuf,
    /// The path ends in a slash, so that only a directory (or a link to one) will do.
    pub(super) slash: bool,
    /// The path ends in `.` or `..`, so that it does not name an entry.
    dots: bool,
}

impl Named {
    pub(super) fn new(context: &Context, raw: &[u8]) -> Result<Self, Failure> {
        if raw.is_empty() {
            return Err(Failure::new(ErrorKind::Invalid, "the path is empty"));
        }
        if raw.contains(&0) {
            let path = Path::new(OsStr::from_bytes(raw));
            return Err(invalid("use", path, "the path has a NUL byte in it"));
        }
        let (base, rest) = match raw {
            [b'/', ..] => (None, raw),
            b"~" => (Some(&context.home), &raw[1..]),
            [b'~', b'/', ..] => (Some(&context.home), &raw[2..]),
            _ => (Some(&context.cwd), raw),
        };
        let mut path = PathBuf::from("/");
        let base = base.map_or(&[][..], |base| base.as_os_str().as_bytes());
        for component in base.split(|&byte| byte == b'/').chain(rest.split(|&byte| byte == b'/')) {
            match component {
                b"" | b"." => {}
                b".." => step_back(&mut path)?,
                name => path.push(OsStr::from_bytes(name)),
            }
        }
        let last = raw.split(|&byte| byte == b'/').rfind(|component| !component.is_empty());
        Ok(Self { path, slash: raw.ends_with(b"/"), dots: matches!(last, Some(b"." | b"..")) && raw != b"~" })
    }

    /// The entry that the path names, for operations that change it.
    pub(super) fn entry(&self, what: &str) -> Result<Entry, Failure> {
        if self.dots {
            return Err(invalid(what, &self.path, "the last part of the path may not be `.` or `..`"));
        }
        Entry::open(&self.path, what)
    }
}

/// `path/..`, as the kernel would.
fn step_back(path: &mut PathBuf) -> Result<(), Failure> {
    if path.parent().is_none() {
        return Ok(());
    }
    let stat = rustix::fs::lstat(path.as_path()).map_err(|error| failed("resolve", path, error))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => {
            *path = std::fs::canonicalize(&path).map_err(|error| failed("resolve", path, error))?;
        }
        _ => return Err(failed("resolve", path, Errno::NOTDIR)),
    }
    path.pop();
    Ok(())
}

/// A name in an open directory. The directory stays the same one whatever happens to the path that led to it.
#[derive(Debug)]
pub(super) struct Entry {
    dir: OwnedFd,
    pub(super) name: OsString,
    /// For messages.
    pub(super) path: PathBuf,
}

impl Entry {
    /// `path` is absolute and normalised.
    pub(super) fn open(path: &Path, what: &str) -> Result<Self, Failure> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(invalid(what, path, "it is the root directory"));
        };
        // O_PATH: a directory in which one may make entries need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| failed(&format!("{what} {:?} in", name.to_string_lossy()), parent, error))?;
        Ok(Self { dir, name: name.to_owned(), path: path.to_owned() })
    }

    /// What was found below a directory.
    pub(super) fn found(spot: farshell_beneath::Spot, path: &Path) -> Self {
        let (dir, name) = spot.into_parts();
        Self { dir, name, path: path.to_owned() }
    }

    /// Another name in the same directory.
    pub(super) fn sibling(&self, name: &OsStr) -> Result<Self, Errno> {
        let dir = rustix::io::fcntl_dupfd_cloexec(&self.dir, 0)?;
        Ok(Self { dir, name: name.to_owned(), path: self.path.with_file_name(name) })
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// What is there, the link itself if it is a link; `None` if nothing is.
    pub(super) fn lstat(&self) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read_link(&self) -> Result<PathBuf, Errno> {
        let target = rustix::fs::readlinkat(&self.dir, &self.name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Makes changes of the directory's entries last. Where the directory may not be read it can't be opened
    /// for this, and then the file system's own order has to do.
    pub(super) fn sync_dir(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, ".", flags, Mode::empty()) {
            Ok(dir) => match rustix::fs::fsync(dir) {
                // Some network and FUSE file systems have no sync for directories.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) | Ok(()) => Ok(()),
                Err(error) => Err(error),
            },
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::Scene;
    use std::os::unix::fs::symlink;

    fn path_of(scene: &Scene, raw: &[u8]) -> Vec<u8> {
        Named::new(&scene.context, raw).unwrap().path.into_os_string().into_vec()
    }

    #[test]
    fn home_cwd_and_absolute_paths() {
        let scene = Scene::new();
        let home = scene.context.home.as_os_str().as_bytes().to_vec();
        let cwd = scene.context.cwd.as_os_str().as_bytes().to_vec();
        assert_eq!(path_of(&scene, b"~"), home);
        assert_eq!(path_of(&scene, b"~/x"), [&home[..], b"/x"].concat());
        assert_eq!(path_of(&scene, b"~user"), [&cwd[..], b"/~user"].concat());
        assert_eq!(path_of(&scene, b"a//./b/"), [&cwd[..], b"/a/b"].concat());
        assert_eq!(path_of(&scene, b"//usr/./\xffbin\n"), b"/usr/\xffbin\n");
        assert_eq!(path_of(&scene, b"/../.."), b"/");
    }

    #[test]
    fn nul_and_empty_are_invalid() {
        let scene = Scene::new();
        for raw in [&b""[..], b"a\0b"] {
            assert_eq!(Named::new(&scene.context, raw).unwrap_err().kind, ErrorKind::Invalid);
        }
    }

    #[test]
    fn dots_after_a_link_go_where_the_kernel_goes() {
        let scene = Scene::new();
        std::fs::create_dir_all(scene.path("far/deep")).unwrap();
        symlink(scene.path("far/deep"), scene.path("link")).unwrap();
        let expected = std::fs::canonicalize(scene.path("far")).unwrap().into_os_string().into_vec();
        assert_eq!(path_of(&scene, b"link/../x"), [&expected[..], b"/x"].concat());
        let kept = scene.path("link/x").into_os_string().into_vec();
        assert_eq!(path_of(&scene, b"far/../link/x"), kept);
        let missing = Named::new(&scene.context, b"missing/../x").unwrap_err();
        assert_eq!((missing.kind, missing.errno), (ErrorKind::NotFound, Some(2)));
    }
}
