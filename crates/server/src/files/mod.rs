//! `/v1/files`: the files of an environment.
//!
//! | file | owns |
//! |---|---|
//! | `handles` | files that are open, and for how long |
//! | `paths` | paths in a query, which are bytes |
//! | `content` | the bytes of a file, in and out, in pieces |
//! | `leave` | whether a file may be changed |
//! | `mod` | everything that fits into a question and an answer |

mod content;
mod handles;
mod leave;
mod paths;

pub(crate) use content::{read_route, write_route};
pub(crate) use handles::Handles;

use crate::app::App;
use crate::input::{At, Body, By, Query};
use crate::refusal::Refusal;
use farshell_api::Text;
use farshell_api::file::{
    Change, FileChange, FileEntry, FileHash, FileKind, FileList, FileQuery, FileStat, MOST_ENTRIES,
    OpenFiles, OpenedFiles,
};
use farshell_api::server::Done;
use farshell_engine::Kind;
use farshell_protocol::file::{Below, BelowOp, Entry, FileOp, FileReply, FileType, Stat};
use leave::{finish, leave};
use paths::Paths;
use serde_bytes::ByteBuf;
use std::sync::Arc;

type Answer<T> = Result<T, Refusal>;
/// What a question about a file carries.
pub(crate) type Question = (At, (Paths, Query<FileQuery>));

/// What can become of a file operation.
pub(crate) const ERRORS: &[Kind] = &[
    Kind::NotFound,
    Kind::AlreadyExists,
    Kind::Busy,
    Kind::Stale,
    Kind::Exhausted,
    Kind::Unavailable,
    Kind::UnknownOutcome,
];

pub(crate) async fn open(app: Arc<App>, Body(request): Body<OpenFiles>) -> Answer<OpenedFiles> {
    let files = app.keeper.files(&request.target, &request.session, &|_| {}).await?;
    Handles::open(&app, files, request)
}

pub(crate) async fn close(app: Arc<App>, At(id): At) -> Answer<Done> {
    app.files.close(&id);
    Ok(Done { ok: true })
}

pub(crate) async fn stat(app: Arc<App>, (At(id), (paths, Query(query))): Question) -> Answer<FileStat> {
    refuse("limit", query.limit.is_some())?;
    let handle = app.files.find(&id)?;
    let reply = match &paths.root {
        Some(root) => {
            refuse_with_root("follow", query.follow)?;
            handle.below(below(BelowOp::Stat, root, &paths.path)).await?
        }
        None => handle.file(FileOp::Stat { path: ByteBuf::from(paths.path), follow: query.follow }).await?,
    };
    match reply {
        FileReply::Stat(stat) => Ok(told(stat)),
        other => Err(odd(&other)),
    }
}

pub(crate) async fn list(app: Arc<App>, (At(id), (paths, Query(query))): Question) -> Answer<FileList> {
    refuse("follow", query.follow)?;
    let limit = query.limit.unwrap_or(MOST_ENTRIES).clamp(1, MOST_ENTRIES);
    let handle = app.files.find(&id)?;
    let (outpost, session) = (handle.outpost(), Some(handle.session()));
    let (entries, truncated) = match &paths.root {
        Some(root) => {
            let below = Below { len: Some(limit), ..below(BelowOp::List, root, &paths.path) };
            outpost.list_below(session, below).await?
        }
        None => outpost.list_dir(session, &paths.path, limit).await?,
    };
    Ok(FileList { entries: entries.into_iter().map(entry).collect(), truncated })
}

pub(crate) async fn hash(app: Arc<App>, (At(id), (paths, Query(query))): Question) -> Answer<FileHash> {
    refuse("follow", query.follow)?;
    let handle = app.files.find(&id)?;
    let (root, path) = paths.split();
    let below = Below { len: query.limit, ..below(BelowOp::Hash, &root, &path) };
    let mut stream = handle.outpost().read_below(Some(handle.session()), below).await?;
    let mut hash = Vec::new();
    while let Some(piece) = stream.next().await? {
        hash.extend(piece);
        // A hash has 32 bytes, and a place that sends more is not an outpost of ours.
        hash.truncate(64);
    }
    let Some(end) = stream.end else { return Err(cut_off()) };
    if end.changed {
        return Err(Refusal::new(Kind::Stale, "hashing a file", "it changed meanwhile"));
    }
    let sha256 = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(FileHash { sha256, bytes: end.bytes, stat: told(end.stat) })
}

pub(crate) async fn change(
    app: Arc<App>,
    (By(by), (At(id), Body(request))): (By, (At, Body<FileChange>)),
) -> Answer<Done> {
    let handle = app.files.find(&id)?;
    let FileChange { root, path, change } = request;
    let paths = Paths { root: root.map(|root| root.0), path: path.0 };
    let removes = matches!(change, Change::Remove { recursive: true, .. });
    let what = if removes { leave::Change::RemoveAll } else { leave::Change::Write };
    let permit = leave(&app, &handle, &by, what, &paths).await?;
    if let Change::Move { to, .. } | Change::Copy { to, .. } = &change {
        let to = Paths { root: None, path: to.0.clone() };
        leave(&app, &handle, &by, leave::Change::Write, &to).await?;
    }
    let done = changed(&handle, change, &paths).await;
    finish(permit, &done);
    done
}

async fn changed(handle: &handles::Handle, change: Change, paths: &Paths) -> Answer<Done> {
    let path = || ByteBuf::from(paths.path.clone());
    let op = match (&change, &paths.root) {
        (Change::MakeDir { parents, mode }, None) => {
            FileOp::MakeDir { path: path(), parents: *parents, mode: *mode }
        }
        (Change::Remove { recursive, missing_ok }, None) => {
            FileOp::Remove { path: path(), recursive: *recursive, missing_ok: *missing_ok }
        }
        (Change::Move { to, replace }, None) => {
            FileOp::Move { from: path(), to: ByteBuf::from(to.0.clone()), replace: *replace }
        }
        (Change::Copy { to, replace }, None) => {
            FileOp::Copy { from: path(), to: ByteBuf::from(to.0.clone()), replace: *replace }
        }
        _ => FileOp::Below(change_below(change, paths)?),
    };
    handle.file(op).await?;
    Ok(Done { ok: true })
}

fn change_below(change: Change, paths: &Paths) -> Answer<Below> {
    let (root, path) = paths.split();
    let new = |op| below(op, &root, &path);
    Ok(match change {
        Change::MakeDir { parents, .. } => {
            refuse_with_root("parents", parents)?;
            new(BelowOp::MakeDir)
        }
        Change::Remove { .. } => new(BelowOp::Remove),
        Change::Link { to, mtime_ns } => {
            Below { link: Some(ByteBuf::from(to.0)), mtime_ns, ..new(BelowOp::Link) }
        }
        Change::Set { mode, mtime_ns } => Below { mode, mtime_ns, ..new(BelowOp::Set) },
        Change::Sync => new(BelowOp::Sync),
        Change::Move { .. } => return Err(with_root("move")),
        Change::Copy { .. } => return Err(with_root("copy")),
    })
}

fn below(op: BelowOp, root: &[u8], path: &[u8]) -> Below {
    Below::new(op, root.to_vec(), path.to_vec())
}

const READING: &str = "reading the request";

fn refuse(name: &str, given: bool) -> Answer<()> {
    let wrong = || Refusal::new(Kind::Invalid, READING, format!("the query: `{name}` means nothing here"));
    if given { Err(wrong()) } else { Ok(()) }
}

fn refuse_with_root(name: &str, given: bool) -> Answer<()> {
    if given { Err(with_root(name)) } else { Ok(()) }
}

fn with_root(name: &str) -> Refusal {
    Refusal::new(Kind::Invalid, READING, format!("`{name}` and a root do not go together"))
}

fn odd(reply: &FileReply) -> Refusal {
    Refusal::new(Kind::Protocol, "asking the outpost", format!("an answer of another kind: {reply:?}"))
}

fn cut_off() -> Refusal {
    Refusal::new(Kind::Protocol, "reading a file", "the outpost did not say how it ended")
}

fn told(stat: Stat) -> FileStat {
    FileStat {
        path: Text(stat.path.into_vec()),
        kind: kind(stat.kind),
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        mtime_ns: stat.version.mtime_ns,
        link: stat.link.map(|link| Text(link.into_vec())),
    }
}

fn entry(entry: Entry) -> FileEntry {
    FileEntry {
        name: Text(entry.name.into_vec()),
        kind: kind(entry.kind),
        mode: entry.mode,
        size: entry.size,
        mtime_ns: entry.mtime_ns,
        link: entry.link.map(|link| Text(link.into_vec())),
    }
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::File => FileKind::File,
        FileType::Dir => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => FileKind::Unknown,
    }
}
