//! Reading a file, or a part of it, in pieces.

use super::failure::{failed, invalid};
use super::path::Named;
use super::stat::{it_is, kind, size, to_stat, version};
use super::{Call, Context, check};
use farshell_protocol::Failure;
use farshell_protocol::file::{FileReply, FileType};
use farshell_protocol::frame::MAX_DATA;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Files of `/proc` and `/sys` say that they have no bytes, and then have some.
const UNKNOWN_SIZE_BUFFER: usize = 64 << 10;

pub(super) fn serve(
    context: &Context,
    raw: &[u8],
    offset: u64,
    len: Option<u64>,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let named = Named::new(context, raw)?;
    let path = named.path.as_path();
    if named.slash {
        return Err(invalid("read", path, "a path that ends in `/` names a directory"));
    }
    let (file, before) = open_regular(path)?;
    send((&file, &before), path, offset, len, call)
}

/// Sends a range of an open file.
pub(super) fn send(
    (file, before): (&File, &Stat),
    path: &Path,
    offset: u64,
    len: Option<u64>,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let (bytes, changed) =
        range((file, before), path, offset, len, &mut |piece, call| Ok(call.send(piece)?), call)?;
    Ok(FileReply::Read { stat: to_stat(path, before), bytes, changed })
}

/// What is done with each piece.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[u8], &mut dyn Call) -> Result<(), Failure>;

/// Reads a range of an open file. Gives how many bytes there were, and whether the file changed meanwhile.
pub(super) fn range(
    (file, before): (&File, &Stat),
    path: &Path,
    offset: u64,
    len: Option<u64>,
    each: Each<'_>,
    call: &mut dyn Call,
) -> Result<(u64, bool), Failure> {
    let mut left = len.unwrap_or(u64::MAX);
    let mut buffer = vec![0; buffer_size(size(before), offset, left)];
    let mut at = offset;
    let mut bytes = 0;
    // The kernel has no offsets above i64::MAX, and so no bytes there.
    while left > 0 && i64::try_from(at).is_ok() {
        check(call)?;
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let got = match rustix::io::pread(file, &mut buffer[..want], at) {
            Ok(0) => break,
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed("read", path, error)),
        };
        each(&buffer[..got], call)?;
        at = at.saturating_add(got as u64);
        bytes += got as u64;
        left -= got as u64;
    }

    let after = rustix::fs::fstat(file).map_err(|error| failed("read", path, error))?;
    Ok((bytes, version(before) != version(&after)))
}

/// One byte more than the file has, so that a whole file is read in one piece; small requests stay cheap.
fn buffer_size(size: u64, offset: u64, len: u64) -> usize {
    let expected = if size == 0 { UNKNOWN_SIZE_BUFFER as u64 } else { size.saturating_sub(offset) + 1 };
    usize::try_from(expected.min(len)).unwrap_or(MAX_DATA).clamp(1, MAX_DATA)
}

/// Opens what is a regular file, and never waits: a named pipe without a writer, or a device with a mind of
/// its own, is refused before it is opened, and if it takes the file's place in that moment, after.
fn open_regular(path: &Path) -> Result<(File, Stat), Failure> {
    let stat = rustix::fs::stat(path).map_err(|error| failed("read", path, error))?;
    refuse_special(path, &stat)?;
    open_seen(path)
}

/// As above, for a path that was seen to be a regular file a moment ago.
pub(super) fn open_seen(path: &Path) -> Result<(File, Stat), Failure> {
    let fail = |error: Errno| failed("read", path, error);
    // Kept non-blocking: a few regular files of the kernel (/proc/kmsg, trace pipes) wait for news.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
    let stat = rustix::fs::fstat(&fd).map_err(fail)?;
    refuse_special(path, &stat)?;
    Ok((File::from(fd), stat))
}

fn refuse_special(path: &Path, stat: &Stat) -> Result<(), Failure> {
    match kind(stat) {
        FileType::File => Ok(()),
        other => Err(invalid("read", path, it_is(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::{Caller, Scene, mkfifo, skipped_as_root};
    use farshell_protocol::ErrorKind;
    use farshell_protocol::file::Stat;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

    fn read(
        scene: &Scene,
        path: &str,
        offset: u64,
        len: Option<u64>,
    ) -> (Vec<u8>, Result<FileReply, Failure>) {
        let mut caller = Caller::default();
        let reply = serve(&scene.context, path.as_bytes(), offset, len, &mut caller);
        (caller.bytes(), reply)
    }

    fn stat_of(reply: Result<FileReply, Failure>) -> (Stat, u64, bool) {
        match reply.unwrap() {
            FileReply::Read { stat, bytes, changed } => (stat, bytes, changed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whole_ranges_and_beyond_the_end() {
        let scene = Scene::new();
        scene.file("file", "0123456789");
        symlink("file", scene.path("link")).unwrap();
        for (offset, len, expected) in [
            (0, None, "0123456789"),
            (3, None, "3456789"),
            (3, Some(4), "3456"),
            (8, Some(100), "89"),
            (0, Some(0), ""),
            (10, None, ""),
            (1 << 40, None, ""),
            (u64::MAX, Some(u64::MAX), ""),
        ] {
            let (bytes, reply) = read(&scene, "link", offset, len);
            assert_eq!(bytes, expected.as_bytes(), "{offset} {len:?}");
            let (stat, count, changed) = stat_of(reply);
            assert_eq!((stat.size, count, changed), (10, expected.len() as u64, false));
        }
    }

    #[test]
    fn a_big_file_comes_in_bounded_pieces() {
        let scene = Scene::new();
        let path = scene.file("big", "");
        let file = File::options().write(true).open(&path).unwrap();
        // Sparse: five gigabytes that are no burden.
        file.set_len(5 << 30).unwrap();
        file.write_all_at(b"here", (4 << 30) + 7).unwrap();
        let (bytes, _) = read(&scene, "big", (4 << 30) + 7, Some(4));
        assert_eq!(bytes, b"here");

        file.set_len(3_000_000).unwrap();
        let mut caller = Caller::default();
        serve(&scene.context, b"big", 1, None, &mut caller).unwrap();
        assert_eq!(caller.bytes().len(), 2_999_999);
        assert!(caller.sent.iter().all(|piece| piece.len() <= MAX_DATA));
    }

    #[test]
    fn files_that_claim_to_be_empty() {
        let scene = Scene::new();
        let (bytes, reply) = read(&scene, "/proc/self/status", 0, None);
        assert!(String::from_utf8(bytes).unwrap().contains("Pid:"));
        assert_eq!(stat_of(reply).0.size, 0);
        let (bytes, _) = read(&scene, "/proc/self/status", 6, Some(3));
        assert_eq!(bytes.len(), 3);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let scene = Scene::new();
        mkfifo(&scene.path("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(scene.path("socket")).unwrap();
        for (path, word) in [
            ("fifo", "named pipe"),
            ("socket", "socket"),
            ("/dev/null", "character device"),
            (".", "directory"),
        ] {
            let failure = read(&scene, path, 0, None).1.unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Invalid);
            assert!(failure.message.contains(word), "{failure}");
        }
        assert_eq!(read(&scene, "missing", 0, None).1.unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn a_change_during_the_read_is_told() {
        let scene = Scene::new();
        let path = scene.file("file", vec![b'x'; MAX_DATA * 2]);
        let mut file = File::options().append(true).open(path).unwrap();
        let mut caller =
            Caller { at_send: Some(Box::new(move || file.write_all(b"more").unwrap())), ..Caller::default() };
        let reply = serve(&scene.context, b"file", 0, Some(MAX_DATA as u64 * 2), &mut caller);
        assert!(stat_of(reply).2);
    }

    #[test]
    fn a_cancelled_read_ends() {
        let scene = Scene::new();
        scene.file("file", "text");
        let mut caller = Caller { cancelled: true, ..Caller::default() };
        serve(&scene.context, b"file", 0, None, &mut caller).unwrap_err();
        assert!(caller.sent.is_empty());
    }

    #[test]
    fn a_file_that_may_not_be_read() {
        if skipped_as_root("a_file_that_may_not_be_read") {
            return;
        }
        let scene = Scene::new();
        let path = scene.file("file", "");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(read(&scene, "file", 0, None).1.unwrap_err().kind, ErrorKind::PermissionDenied);
    }
}
