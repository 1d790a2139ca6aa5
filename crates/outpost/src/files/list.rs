//! The entries of one directory.

use super::failure::failed;
use super::path::Named;
use super::stat::{mode, mtime_ns, size, to_kind};
use super::{Call, Context, EVENT_BYTES, check};
use farshell_protocol::Failure;
use farshell_protocol::file::{Entry, FileEvent, FileReply, FileType};
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Encoded size of an entry without its name and link: field names and numbers.
const ENTRY_BYTES: usize = 80;

pub(super) fn serve(
    context: &Context,
    raw: &[u8],
    limit: u64,
    call: &mut dyn Call,
) -> Result<FileReply, Failure> {
    let named = Named::new(context, raw)?;
    let path = named.path.as_path();
    let fail = |error: Errno| failed("list", path, error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
    list(fd, path, limit, call)
}

/// The entries of an open directory.
pub(super) fn list(fd: OwnedFd, path: &Path, limit: u64, call: &mut dyn Call) -> Result<FileReply, Failure> {
    let fail = |error: Errno| failed("list", path, error);
    let mut dir = Dir::new(fd).map_err(fail)?;

    let mut first = First::new(limit);
    while let Some(entry) = dir.read() {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if first.total.is_multiple_of(1024) {
            check(call)?;
        }
        first.add(name.to_owned(), to_kind(entry.file_type()));
    }
    let (names, mut total, truncated) = first.finish();

    let fd = dir.fd().map_err(fail)?;
    let mut batch = Vec::new();
    let mut bytes = 0;
    for (name, kind) in names {
        let Some(entry) = look(fd, name, kind) else {
            // Removed since the directory was read.
            total -= 1;
            continue;
        };
        bytes += ENTRY_BYTES + entry.name.len() + entry.link.as_ref().map_or(0, |link| link.len());
        batch.push(entry);
        if bytes >= EVENT_BYTES {
            check(call)?;
            call.event(FileEvent::Entries(std::mem::take(&mut batch)))?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        call.event(FileEvent::Entries(batch))?;
    }
    Ok(FileReply::Listed { total, truncated })
}

/// The first names in order, without holding many more than are wanted.
struct First {
    names: Vec<(CString, FileType)>,
    limit: usize,
    total: u64,
}

impl First {
    fn new(limit: u64) -> Self {
        let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        Self { names: Vec::new(), limit, total: 0 }
    }

    fn add(&mut self, name: CString, kind: FileType) {
        self.total += 1;
        self.names.push((name, kind));
        // Sorting at each doubling costs no more than one sort of everything would.
        if self.names.len() / 2 >= self.limit.max(1024) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.names.truncate(self.limit);
    }

    fn finish(mut self) -> (Vec<(CString, FileType)>, u64, bool) {
        self.cut();
        let truncated = (self.names.len() as u64) < self.total;
        (self.names, self.total, truncated)
    }
}

fn look(dir: BorrowedFd<'_>, name: CString, kind: FileType) -> Option<Entry> {
    let stat = match rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => return None,
        // A directory that may be read but not searched: the name and the kind are known, the rest is not.
        Err(_) => None,
    };
    let kind = stat.as_ref().map_or(kind, super::stat::kind);
    let link = if kind == FileType::Symlink {
        rustix::fs::readlinkat(dir.as_fd(), &name, Vec::new())
            .ok()
            .map(|link| ByteBuf::from(link.into_bytes()))
    } else {
        None
    };
    Some(Entry {
        name: ByteBuf::from(name.into_bytes()),
        kind,
        mode: stat.as_ref().map_or(0, mode),
        size: stat.as_ref().map_or(0, size),
        mtime_ns: stat.as_ref().map_or(0, mtime_ns),
        link,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::{Caller, Scene, skipped_as_root};
    use farshell_protocol::ErrorKind;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn list(scene: &Scene, path: &[u8], limit: u64) -> (Result<FileReply, Failure>, Vec<Entry>, usize) {
        let mut caller = Caller::default();
        let reply = serve(&scene.context, path, limit, &mut caller);
        let events = caller.events.len();
        let entries = caller
            .events
            .into_iter()
            .flat_map(|event| match event {
                FileEvent::Entries(entries) => entries,
                other => panic!("{other:?}"),
            })
            .collect();
        (reply, entries, events)
    }

    #[test]
    fn sorted_by_bytes_with_links_and_names_that_are_no_text() {
        let scene = Scene::new();
        scene.file("b", "12345");
        scene.file("B", "");
        std::fs::write(scene.context.cwd.join(OsStr::from_bytes(b"\xff\nx")), "").unwrap();
        std::fs::create_dir(scene.path("a")).unwrap();
        symlink("nowhere", scene.path("c")).unwrap();
        let (reply, entries, _) = list(&scene, b".", 0);
        assert_eq!(reply, Ok(FileReply::Listed { total: 5, truncated: false }));
        let seen: Vec<_> = entries.iter().map(|entry| (&entry.name[..], entry.kind)).collect();
        assert_eq!(
            seen,
            [
                (&b"B"[..], FileType::File),
                (b"a", FileType::Dir),
                (b"b", FileType::File),
                (b"c", FileType::Symlink),
                (b"\xff\nx", FileType::File),
            ]
        );
        assert_eq!(entries[2].size, 5);
        assert_eq!(entries[3].link, Some(ByteBuf::from("nowhere")));

        let (reply, entries, _) = list(&scene, b".", 2);
        assert_eq!(reply, Ok(FileReply::Listed { total: 5, truncated: true }));
        assert_eq!(entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"B", b"a"]);
        let (reply, ..) = list(&scene, b".", 5);
        assert_eq!(reply, Ok(FileReply::Listed { total: 5, truncated: false }));
    }

    #[test]
    fn fifty_thousand_entries_in_bounded_events() {
        let scene = Scene::new();
        for n in 0..50_000 {
            std::fs::File::create(scene.path(&format!("{n:05}"))).unwrap();
        }
        let (reply, entries, events) = list(&scene, b".", 0);
        assert_eq!(reply, Ok(FileReply::Listed { total: 50_000, truncated: false }));
        assert_eq!(entries.len(), 50_000);
        assert!(entries.is_sorted_by(|a, b| a.name < b.name));
        assert!(events > 10, "{events} events");
        let (reply, entries, _) = list(&scene, b".", 3);
        assert_eq!(reply, Ok(FileReply::Listed { total: 50_000, truncated: true }));
        assert_eq!(
            entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(),
            [b"00000", b"00001", b"00002"]
        );
    }

    #[test]
    fn what_is_no_directory_is_an_error() {
        let scene = Scene::new();
        scene.file("file", "");
        assert_eq!(list(&scene, b"file", 0).0.unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(list(&scene, b"missing", 0).0.unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn a_caller_that_is_gone_ends_the_work() {
        let scene = Scene::new();
        scene.file("file", "");
        let mut caller = Caller { patience: Some(0), ..Caller::default() };
        serve(&scene.context, b".", 0, &mut caller).unwrap_err();
    }

    #[test]
    fn a_directory_that_may_not_be_read() {
        if skipped_as_root("a_directory_that_may_not_be_read") {
            return;
        }
        let scene = Scene::new();
        std::fs::create_dir(scene.path("dir")).unwrap();
        std::fs::set_permissions(scene.path("dir"), std::fs::Permissions::from_mode(0o300)).unwrap();
        assert_eq!(list(&scene, b"dir", 0).0.unwrap_err().kind, ErrorKind::PermissionDenied);
    }
}
