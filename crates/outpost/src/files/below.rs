//! What lies below a directory, for who copies trees: see [`farshell_beneath`] for how nothing else is reached.

use super::failure::{failed, invalid};
use super::path::{Entry, Named};
use super::sha256::Sha256;
use super::stat::{it_is, kind, to_stat};
use super::{Call, Context, list, read, tree};
use farshell_beneath::{Root, Spot};
use farshell_protocol::file::{Below, BelowOp, FileReply, FileType};
use farshell_protocol::{ErrorKind, Failure};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) fn serve(context: &Context, below: &Below, call: &mut dyn Call) -> Result<FileReply, Failure> {
    let named = Named::new(context, &below.root)?;
    let root = Root::open(&named.path).map_err(|error| failed("enter", &named.path, error))?;
    let at = At {
        path: if below.path.is_empty() {
            named.path
        } else {
            named.path.join(OsStr::from_bytes(&below.path))
        },
        root,
        raw: &below.path,
    };
    match below.op {
        BelowOp::Stat => at.stat(),
        BelowOp::List => {
            let dir = at.root.dir(at.raw).map_err(at.fail("list"))?;
            list::list(dir, &at.path, below.len.unwrap_or(0), call)
        }
        BelowOp::Read => {
            let (file, stat) = at.spot("read")?.open().map_err(at.fail("read"))?;
            read::send((&file, &stat), &at.path, below.offset.unwrap_or(0), below.len, call)
        }
        BelowOp::Hash => at.hash(below.len, call),
        BelowOp::Put => at.put(below, call),
        BelowOp::MakeDir => done(at.spot("make directory")?.make_dir().map(drop), at.fail("make directory")),
        BelowOp::Link => {
            let to = below.link.as_deref().map_or(&[][..], |to| to);
            done(at.spot("make link")?.link(to, below.mtime_ns), at.fail("make link"))
        }
        BelowOp::Set => {
            done(at.root.set(at.raw, below.mode, below.mtime_ns), at.fail("set the mode and time of"))
        }
        BelowOp::Remove => at.remove(context, call),
        BelowOp::Sync => done(at.root.sync(), at.fail("sync")),
    }
}

fn done(result: Result<(), Errno>, fail: impl FnOnce(Errno) -> Failure) -> Result<FileReply, Failure> {
    result.map(|()| FileReply::Done).map_err(fail)
}

struct At<'a> {
    root: Root,
    raw: &'a [u8],
    /// For messages, and for answers.
    path: PathBuf,
}

impl At<'_> {
    fn fail<'a>(&'a self, what: &'a str) -> impl Fn(Errno) -> Failure + 'a {
        move |error| fail(what, &self.path, error)
    }

    fn spot(&self, what: &str) -> Result<Spot, Failure> {
        self.root.spot(self.raw).map_err(self.fail(what))
    }

    fn stat(&self) -> Result<FileReply, Failure> {
        if self.raw.is_empty() {
            let dir = self.root.dir(self.raw).map_err(self.fail("look at"))?;
            let stat = rustix::fs::fstat(dir).map_err(self.fail("look at"))?;
            return Ok(FileReply::Stat(to_stat(&self.path, &stat)));
        }
        let spot = self.spot("look at")?;
        let found = spot.lstat().and_then(|stat| stat.ok_or(Errno::NOENT)).map_err(self.fail("look at"))?;
        let mut stat = to_stat(&self.path, &found);
        if stat.kind == FileType::Symlink {
            stat.link = spot.read_link().ok().map(ByteBuf::from);
        }
        Ok(FileReply::Stat(stat))
    }

    fn hash(&self, len: Option<u64>, call: &mut dyn Call) -> Result<FileReply, Failure> {
        let (file, stat) = self.spot("read")?.open().map_err(self.fail("read"))?;
        let mut hash = Sha256::new();
        let mut each = |piece: &[u8], _: &mut dyn Call| {
            hash.update(piece);
            Ok(())
        };
        let (bytes, changed) = read::range((&file, &stat), &self.path, 0, len, &mut each, call)?;
        call.send(&hash.finish())?;
        Ok(FileReply::Read { stat: to_stat(&self.path, &stat), bytes, changed })
    }

    fn remove(&self, context: &Context, call: &mut dyn Call) -> Result<FileReply, Failure> {
        let entry = Entry::found(self.spot("remove")?, &self.path);
        match entry.lstat().map_err(self.fail("remove"))? {
            Some(stat) => tree::remove_found(context, &entry, &stat, true, call),
            None => Ok(FileReply::Removed { entries: 0 }),
        }
    }

    fn put(&self, put: &Below, call: &mut dyn Call) -> Result<FileReply, Failure> {
        let spot = self.spot("write")?;
        let old = spot.lstat().map_err(self.fail("write"))?;
        // Before the data comes: what can't succeed should not cost an upload.
        if let Some(old) = old.as_ref().filter(|old| kind(old) == FileType::Dir) {
            return Err(invalid("write", &self.path, it_is(kind(old))));
        }
        let mut file = match put.offset {
            Some(offset) => spot.go_on(offset),
            None => spot.put(),
        }
        .map_err(self.fail("write"))?;
        while let Some(piece) = call.receive()? {
            file.write(&piece).map_err(|error| failed("write", &self.path, error))?;
        }
        let stat = file.finish(put.mode.unwrap_or(0o600), put.mtime_ns).map_err(self.fail("write"))?;
        Ok(FileReply::Written { stat: to_stat(&self.path, &stat), created: old.is_none() })
    }
}

fn fail(what: &str, path: &Path, error: Errno) -> Failure {
    let mut failure = failed(what, path, error);
    match error {
        Errno::AGAIN => failure.kind = ErrorKind::Busy,
        Errno::STALE => failure.kind = ErrorKind::Stale,
        _ => {}
    }
    failure
}

#[cfg(test)]
mod tests;
