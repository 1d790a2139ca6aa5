//! Files and search: what an engine does with files in a place, without a shell and without any program of
//! the place.
//!
//! Each request is served by one blocking call of [`serve`] on a thread of the core's pool. Nothing here knows
//! the event loop; the caller of a request is seen only through [`Call`].
//!
//! | file | owns |
//! |---|---|
//! | `path` | from the bytes of a request to an absolute path, and to the directory entry it names |
//! | `failure` | from errors of the system to a [`Failure`] that a reader can use |
//! | `stat`, `list`, `read` | looking |
//! | `write`, `temp` | atomic replacement, and the temporary names it needs |
//! | `tree` | making directories, removing trees |
//! | `copy` | copy and move |
//! | `below` | all of it once more for who copies trees, and can't trust what is in them |
//! | `search` | names and contents, on ripgrep's libraries |
//!
//! Three habits hold in all of them. Paths are hostile: whatever walks a tree or changes an entry works relative
//! to an open directory and never follows a link that it was not asked to follow. Nothing blocks for ever: what is not a
//! regular file is never opened for reading. Nothing is held in memory whole: contents stream in pieces,
//! results go out in events, and what must be collected has a cap.

mod below;
mod copy;
mod failure;
mod list;
mod path;
mod read;
mod search;
mod sha256;
mod stat;
mod temp;
#[cfg(test)]
mod testing;
mod tree;
mod write;

use farshell_protocol::file::{FileEvent, FileOp, FileReply};
use farshell_protocol::{ErrorKind, Failure};
use std::path::PathBuf;

pub(crate) use temp::is_leftover;

/// Largest size of an event's content, as estimated before encoding: like data frames, events must not keep
/// other calls' answers waiting. The estimates are generous, so the encoded event stays below
/// [`farshell_protocol::frame::MAX_DATA`].
const EVENT_BYTES: usize = 192 << 10;

/// What gives paths their meaning. Both are absolute.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// `~`.
    pub(crate) home: PathBuf,
    /// Where relative paths start.
    pub(crate) cwd: PathBuf,
}

/// The caller of a request.
pub(crate) trait Call {
    /// Sends bytes as data frames; blocks while the reader's credit is used up.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Gone>;
    fn event(&mut self, event: FileEvent) -> Result<(), Gone>;
    /// The next piece of uploaded data, `None` at the end frame, an error if the call was cancelled or the
    /// connection died before the end.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, Gone>;
    fn cancelled(&self) -> bool;
}

/// The caller is no longer there: stop, and leave nothing half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl From<Gone> for Failure {
    /// Its kind is what tells it from the failures of an attempt that was made to its end.
    fn from(Gone: Gone) -> Self {
        Self::new(ErrorKind::CalledOff, "the call was cancelled before it was done")
    }
}

/// Serves one request from beginning to end.
pub(crate) fn serve(context: &Context, op: FileOp, call: &mut dyn Call) -> Result<FileReply, Failure> {
    match op {
        FileOp::Stat { path, follow } => stat::serve(context, &path, follow),
        FileOp::Read { path, offset, len } => read::serve(context, &path, offset, len, call),
        FileOp::Write(write) => write::serve(context, &write, call),
        FileOp::List { path, limit } => list::serve(context, &path, limit, call),
        FileOp::MakeDir { path, parents, mode } => tree::make_dir(context, &path, parents, mode),
        FileOp::Remove { path, recursive, missing_ok } => {
            tree::remove(context, &path, tree::Removal { recursive, missing_ok }, call)
        }
        FileOp::Move { from, to, replace } => copy::serve_move(context, &from, &to, replace, call),
        FileOp::Copy { from, to, replace } => copy::serve_copy(context, &from, &to, replace, call),
        FileOp::Search(search) => search::serve(context, &search, call),
        FileOp::Below(below) => below::serve(context, &below, call),
    }
}

/// Stops work that nobody waits for.
fn check(call: &dyn Call) -> Result<(), Gone> {
    if call.cancelled() { Err(Gone) } else { Ok(()) }
}
