//! Files: what an engine can do with them in a place, without a shell and without any program of the place.
//!
//! Paths are bytes. A relative path is taken from the session's directory if the request names a session,
//! otherwise from the home directory; a leading `~` or `~/` is the home directory. Paths in answers are absolute.

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
    /// Only regular files are read; pipes, sockets and devices are [`crate::ErrorKind::Invalid`].
    Read {
        path: ByteBuf,
        offset: u64,
        len: Option<u64>,
    },
    /// Replaces or makes a file with the bytes of the data frames up to the end frame: all of it or nothing.
    Write(Write),
    /// One [`FileEvent::Entries`] after the other, sorted by name within the whole, then [`FileReply::Listed`].
    /// At most `limit` entries, the first by name; 0 means no limit.
    List {
        path: ByteBuf,
        limit: u64,
    },
    /// With `parents`, a directory that is there already is fine and stays as it is. `mode` is that of the last
    /// directory, whatever the umask.
    MakeDir {
        path: ByteBuf,
        parents: bool,
        mode: Option<u32>,
    },
    /// Removes a file, a link or (with `recursive`) a directory tree; never follows links, never crosses `..`,
    /// never enters a mounted file system. The root and the home directory are never removed.
    Remove {
        path: ByteBuf,
        recursive: bool,
        missing_ok: bool,
    },
    /// Within one file system atomically; across file systems by copy and remove. `to` is the new name itself,
    /// not a directory to move into. With `replace`, a file takes the place of a file or link, a directory only
    /// that of an empty directory. Answered with [`FileReply::Done`].
    Move {
        from: ByteBuf,
        to: ByteBuf,
        replace: bool,
    },
    /// Copies a file (a link at the end of `from` is followed) or a directory tree (links in it stay links), with
    /// modes. `to` and `replace` are as for `Move`. The copy appears whole or not at all.
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
    /// Only files whose path matches one of these globs; a leading `!` excludes. They mean what they mean to
    /// ripgrep's `--glob`: without a slash they match names at any depth, with one they start at the searched
    /// directory, later ones win, and a glob that names a hidden or ignored file finds it.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Also what `.gitignore` and its kin exclude.
    #[serde(default)]
    pub no_ignore: bool,
    /// Also hidden files and directories.
    #[serde(default)]
    pub hidden: bool,
    /// Results (matching lines, or files) at most, over the whole search; 0 means no limit but that on their
    /// size, some 16 MiB.
    #[serde(default)]
    pub limit: u64,
    /// Gives what it has after this time, and says so.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Files whose path below the searched directory matches the glob (`None`: all), newest first. With `globs`
    /// as well, both have to match.
    Files { glob: Option<String> },
    /// Lines that match the regular expression, file by file in order of path. A file with a NUL byte in it is
    /// binary and not searched, or no further than where the byte is met.
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
    /// Files looked into (content) or looked at (names). Where a limit ended the search, how many depends on
    /// how far it was.
    pub files: u64,
    /// Matching lines ([`Want::Lines`], [`Want::Counts`]) or files ([`Want::Files`], names) given.
    pub matches: u64,
    pub truncated: bool,
    pub timed_out: bool,
    /// What could not be read, at most 20, as text.
    #[serde(default)]
    pub errors: Vec<String>,
}
