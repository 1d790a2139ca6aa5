//! The files of an environment: looked at, read, written and changed without a shell.
//!
//! `POST /v1/files` opens them (the environment is made if it is not there) and gives an id. With it:
//!
//! - `GET /v1/files/{id}/stat`, `/list`, `/hash`: a [`FileQuery`].
//! - `GET /v1/files/{id}/content`: the bytes of a regular file ([`ReadQuery`]), however many.
//! - `PUT /v1/files/{id}/content`: the body becomes the file ([`WriteQuery`]), all of it or nothing.
//! - `POST /v1/files/{id}/change`: a [`FileChange`].
//! - `POST /v1/files/{id}/close`: the environment is not held any longer. So it is after a minute in which nobody
//!   asked for anything.
//!
//! Paths are bytes. In a query they are percent-encoded and need not be UTF-8; in JSON they are a [`Text`]. A relative
//! path is taken from the session's directory, `~` is the home directory.
//!
//! With a `root`, a path is relative to that directory, has no `..` in it, and no link is followed on its way or at
//! its end. That is for who works on trees that others have made. The root itself is trusted.

use crate::Text;
use crate::run::{Place, Target, default_session};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /v1/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenFiles {
    #[serde(default)]
    pub target: Target,
    /// Whose directory relative paths start from.
    #[serde(default = "default_session")]
    pub session: String,
}

/// Files that are open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenedFiles {
    pub id: String,
    /// The environment's key.
    pub environment: String,
    pub backend: String,
    pub place: Place,
}

/// `stat`, `list` and `hash`. `path`, and `root` if there is one, are parameters too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileQuery {
    /// `stat`: of what a link leads to instead of the link itself. Not with a root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// `list`: the first so many entries. `hash`: of the first so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Entries that are listed at most.
pub const MOST_ENTRIES: u64 = 1_000_000;

/// `GET content`. `path`, and `root` if there is one, are parameters too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadQuery {
    /// First byte.
    pub offset: u64,
    /// Bytes; to the end without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// The time that the file has to have, now and when it was read: otherwise the error is `stale`, or the answer is
    /// cut off in the middle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
}

/// `PUT content`. `path`, and `root` if there is one, are parameters too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WriteQuery {
    /// Of a new file, in decimal. One that is there keeps its own, but with a root it gets this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Make missing directories. Not with a root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parents: bool,
    /// Fail if there is a file. Not with a root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub create_only: bool,
    /// Time of modification. Only with a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
    /// Go on after so many bytes of an earlier attempt, and keep what comes if this one is cut off. Compare before what
    /// is there with `hash`, under the name of its part. Only with a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    Unknown,
}

/// What there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileStat {
    /// Absolute.
    pub path: Text,
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// What a link says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    pub name: Text,
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    pub mtime_ns: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Text>,
}

/// The entries of a directory, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileList {
    pub entries: Vec<FileEntry>,
    /// There are more.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileHash {
    /// In hexadecimal digits.
    pub sha256: String,
    /// How many bytes it is of.
    pub bytes: u64,
    pub stat: FileStat,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileWritten {
    pub stat: FileStat,
    /// There was none before.
    pub created: bool,
}

/// `POST change`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Text>,
    pub path: Text,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// With `parents`, those that are missing before it are made, too (not with a root), and one that is there is
    /// fine. With a root one that is there is always fine, and the mode is not read: see `set`.
    MakeDir {
        #[serde(default)]
        parents: bool,
        #[serde(default)]
        mode: Option<u32>,
    },
    /// A file, a link, or with `recursive` (always with a root) a directory with all that is in it.
    Remove {
        #[serde(default)]
        recursive: bool,
        #[serde(default)]
        missing_ok: bool,
    },
    /// A symbolic link, in the place of whatever else but a directory is there.
    Link {
        to: Text,
        #[serde(default)]
        mtime_ns: Option<i64>,
    },
    /// Mode (without set-id bits) and time of a file or directory.
    Set {
        #[serde(default)]
        mode: Option<u32>,
        #[serde(default)]
        mtime_ns: Option<i64>,
    },
    /// To another name. Not with a root.
    Move {
        to: Text,
        #[serde(default)]
        replace: bool,
    },
    /// A copy in the same place, of a file or a tree. Not with a root.
    Copy {
        to: Text,
        #[serde(default)]
        replace: bool,
    },
    /// Everything that was written there is on the disk when this is answered.
    Sync,
}
