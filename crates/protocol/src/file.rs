//! Files: what an engine can do with them in a place, without a shell and without any program of the place.
//!
//! Paths are bytes. A relative path is taken from the session's directory if the request names a session,
//! otherwise from the home directory; a leading `~` is the home directory.

use crate::SessionName;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// A request about files. `session` gives relative paths their meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    #[serde(default)]
    pub session: Option<SessionName>,
    pub op: FileOp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOp {
    /// Answered with [`FileReply::Stat`]. Follows a symbolic link if `follow`.
    Stat {
        path: ByteBuf,
        follow: bool,
    },
    /// The bytes `offset..offset+len` (to the end without `len`) as data frames, then [`FileReply::Read`].
    Read {
        path: ByteBuf,
        offset: u64,
        len: Option<u64>,
    },
    /// Replaces or makes a file with the bytes of the data frames up to the end frame: all of it or nothing.
    Write(Write),
    /// One [`FileEvent::Entries`] after the other, sorted by name within the whole, then [`FileReply::Listed`].
    List {
        path: ByteBuf,
        limit: u64,
    },
    MakeDir {
        path: ByteBuf,
        parents: bool,
        mode: Option<u32>,
    },
    /// Removes a file, a link or (with `recursive`) a directory tree; never follows links, never crosses `..`.
    Remove {
        path: ByteBuf,
        recursive: bool,
        missing_ok: bool,
    },
    /// Within one file system atomically; across file systems by copy and remove.
    Move {
        from: ByteBuf,
        to: ByteBuf,
        replace: bool,
    },
    Copy {
        from: ByteBuf,
        to: ByteBuf,
        replace: bool,
    },
    Search(Search),
}

/// An atomic write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub path: ByteBuf,
    /// Mode of a new file; an existing file keeps its mode (and owner, where the outpost may set it) unless
    /// `set_mode`.
    pub mode: Option<u32>,
    #[serde(default)]
    pub set_mode: bool,
    /// Make missing parent directories.
    #[serde(default)]
    pub parents: bool,
    /// Fail with [`crate::ErrorKind::AlreadyExists`] if there is a file.
    #[serde(default)]
    pub create_only: bool,
    /// Fail with [`crate::ErrorKind::Stale`] unless the file still is the one this version names.
    #[serde(default)]
    pub expect: Option<Version>,
}

/// Tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub inode: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileType {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Absolute, with `.` and `..` removed as the kernel would; links in it are kept.
    pub path: ByteBuf,
    pub kind: FileType,
    /// Permission bits (07777).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub version: Version,
    #[serde(default)]
    pub link: Option<ByteBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: ByteBuf,
    pub kind: FileType,
    pub mode: u32,
    pub size: u64,
    pub mtime_ns: i64,
    #[serde(default)]
    pub link: Option<ByteBuf>,
}

/// Finds files by name or lines by content, with ripgrep's own libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    pub path: ByteBuf,
    pub target: Target,
    /// Only files whose path matches one of these globs; a leading `!` excludes.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Also what `.gitignore` and its kin exclude.
    #[serde(default)]
    pub no_ignore: bool,
    /// Also hidden files and directories.
    #[serde(default)]
    pub hidden: bool,
    /// Results (lines or files) at most, over the whole search; 0 means no limit.
    #[serde(default)]
    pub limit: u64,
    /// Gives what it has after this time, and says so.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Files whose path below the searched directory matches the glob (`None`: all), newest first.
    Files { glob: Option<String> },
    /// Lines that match the regular expression.
    Content {
        pattern: String,
        literal: bool,
        ignore_case: IgnoreCase,
        context: u32,
        multiline: bool,
        want: Want,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IgnoreCase {
    No,
    Yes,
    /// Only if the pattern has no capital letter.
    Smart,
}

/// What a content search gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    Lines,
    Files,
    Counts,
}

/// A line that matched, or (`matched: false`) stands around one that did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub number: u64,
    /// Cut at [`MAX_LINE`] bytes.
    pub text: ByteBuf,
    pub matched: bool,
    #[serde(default)]
    pub cut: bool,
}

/// Bytes of a matched line that are sent.
pub const MAX_LINE: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileEvent {
    Entries(Vec<Entry>),
    /// All lines of one file that go together; a file with many comes in several events.
    Lines {
        path: ByteBuf,
        lines: Vec<Line>,
    },
    /// Files found by name (with size and time), or by content.
    Files(Vec<Found>),
    Counts(Vec<(ByteBuf, u64)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub path: ByteBuf,
    pub size: u64,
    pub mtime_ns: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    Done,
    Stat(Stat),
    /// `version` is that of the file that was read, `changed` if it changed under the reader's hands.
    Read {
        stat: Stat,
        bytes: u64,
        changed: bool,
    },
    Written {
        stat: Stat,
        created: bool,
    },
    Listed {
        total: u64,
        truncated: bool,
    },
    Removed {
        entries: u64,
    },
    Copied {
        bytes: u64,
    },
    Searched(Searched),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Searched {
    /// Files looked into (content) or looked at (names).
    pub files: u64,
    /// Matching lines (content) or files (names) given.
    pub matches: u64,
    pub truncated: bool,
    pub timed_out: bool,
    /// What could not be read, at most 20, as text.
    #[serde(default)]
    pub errors: Vec<String>,
}
