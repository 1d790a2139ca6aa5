//! What a path names.

use super::Context;
use super::failure::failed;
use super::path::Named;
use farshell_protocol::Failure;
use farshell_protocol::file::{FileReply, FileType, Stat, Version};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn serve(context: &Context, raw: &[u8], follow: bool) -> Result<FileReply, Failure> {
    let named = Named::new(context, raw)?;
    let path = named.path.as_path();
    let flags = if follow || named.slash { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat =
        rustix::fs::statat(rustix::fs::CWD, path, flags).map_err(|error| failed("look at", path, error))?;
    let mut stat = to_stat(path, &stat);
    if named.slash && stat.kind != FileType::Dir {
        return Err(failed("look at", path, Errno::NOTDIR));
    }
    if stat.kind == FileType::Symlink {
        // Gone or replaced since: then what was seen first stands without its target.
        stat.link = rustix::fs::readlink(path, Vec::new()).ok().map(|link| ByteBuf::from(link.into_bytes()));
    }
    Ok(FileReply::Stat(stat))
}

pub(super) fn to_stat(path: &Path, stat: &rustix::fs::Stat) -> Stat {
    Stat {
        path: ByteBuf::from(path.as_os_str().as_bytes()),
        kind: kind(stat),
        mode: mode(stat),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: size(stat),
        version: version(stat),
        link: None,
    }
}

/// Permission bits.
pub(super) fn mode(stat: &rustix::fs::Stat) -> u32 {
    stat.st_mode & 0o7777
}

pub(super) fn size(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn version(stat: &rustix::fs::Stat) -> Version {
    Version {
        inode: stat.st_ino,
        size: size(stat),
        mtime_ns: mtime_ns(stat),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

pub(super) fn mtime_ns(stat: &rustix::fs::Stat) -> i64 {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec)
}

/// Saturates in the years 1677 and 2262: a file's time is whatever its owner set it to.
fn nanoseconds(seconds: i64, rest: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(rest).unwrap_or(0))
}

pub(super) fn kind(stat: &rustix::fs::Stat) -> FileType {
    to_kind(rustix::fs::FileType::from_raw_mode(stat.st_mode))
}

pub(super) fn to_kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::RegularFile => FileType::File,
        rustix::fs::FileType::Directory => FileType::Dir,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::Fifo,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::Unknown => FileType::Unknown,
    }
}

/// "it is a …", for messages.
pub(super) fn it_is(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "it is a regular file",
        FileType::Dir => "it is a directory",
        FileType::Symlink => "it is a symbolic link",
        FileType::Fifo => "it is a named pipe, not a regular file",
        FileType::Socket => "it is a socket, not a regular file",
        FileType::CharDevice => "it is a character device, not a regular file",
        FileType::BlockDevice => "it is a block device, not a regular file",
        FileType::Unknown => "it is not a regular file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::{Scene, mkfifo};
    use farshell_protocol::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn stat(scene: &Scene, path: &[u8], follow: bool) -> Result<Stat, Failure> {
        match serve(&scene.context, path, follow)? {
            FileReply::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_a_link_and_what_is_not_there() {
        let scene = Scene::new();
        std::fs::write(scene.path("file"), "hello").unwrap();
        std::fs::set_permissions(scene.path("file"), std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", scene.path("link")).unwrap();

        let file = stat(&scene, b"x/../file", true);
        assert_eq!(file.unwrap_err().kind, ErrorKind::NotFound);
        let file = stat(&scene, b"./file", true).unwrap();
        assert_eq!((file.kind, file.mode, file.size, file.link), (FileType::File, 0o640, 5, None));
        assert_eq!(file.path, scene.path("file").as_os_str().as_bytes());

        let link = stat(&scene, b"link", false).unwrap();
        assert_eq!((link.kind, link.link), (FileType::Symlink, Some(ByteBuf::from("file"))));
        assert_eq!(link.path, scene.path("link").as_os_str().as_bytes());
        let followed = stat(&scene, b"link", true).unwrap();
        assert_eq!((followed.kind, followed.version), (FileType::File, file.version));
        assert_eq!(followed.path, scene.path("link").as_os_str().as_bytes());

        assert_eq!(stat(&scene, b"file/", true).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(stat(&scene, b"file/x", true).unwrap_err().errno, Some(20));
        assert_eq!(stat(&scene, b"nothing", true).unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(stat(&scene, &[b'a'; 5000], true).unwrap_err().kind, ErrorKind::Invalid);
    }

    #[test]
    fn every_kind_of_file() {
        let scene = Scene::new();
        mkfifo(&scene.path("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(scene.path("socket")).unwrap();
        assert_eq!(stat(&scene, b"fifo", true).unwrap().kind, FileType::Fifo);
        assert_eq!(stat(&scene, b"socket", true).unwrap().kind, FileType::Socket);
        assert_eq!(stat(&scene, b"/dev/null", true).unwrap().kind, FileType::CharDevice);
        assert_eq!(stat(&scene, b".", true).unwrap().kind, FileType::Dir);
        assert_eq!(stat(&scene, b"/", true).unwrap().path, &b"/"[..]);
    }
}
