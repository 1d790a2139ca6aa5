//! Files: what an engine can do with them in a place, without a shell and without any program of the place.
//!
//! Paths are bytes. A relative path is taken from the session's directory if the request names a session,
//! otherwise from the home directory; a leading `~` or `~/` is the home directory. Paths in answers are absolute.

use crate::SessionName;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::ByteBuf;
use std::borrow::Cow;

/// A request about files. `session` gives relative paths their meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    #[serde(default)]
    pub session: Option<SessionName>,
    pub op: FileOp,
    /// Of a request that changes something: its number, see [`crate::once`].
    #[serde(default)]
    pub once: u64,
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
    /// Something with what lies below a directory, and nothing else.
    Below(Below),
}

/// Work below a directory, for who copies trees: names and links in a tree are not to be trusted.
///
/// One struct for all that can be done, since the outpost is small: each operation says which fields it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Below {
    /// A path as all others are; links in it are followed.
    pub root: ByteBuf,
    /// Relative to the root, without `.` and `..`; no link is followed on its way or at its end.
    pub path: ByteBuf,
    pub op: BelowOp,
    /// This and `len` are below 2^63.
    pub offset: Option<u64>,
    pub len: Option<u64>,
    /// Set-id bits do not count.
    pub mode: Option<u32>,
    pub mtime_ns: Option<i64>,
    pub link: Option<ByteBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BelowOp {
    /// As [`FileOp::Stat`]. An empty path is the root.
    Stat,
    /// As [`FileOp::List`] with `len` as the limit. An empty path is the root.
    List,
    /// As [`FileOp::Read`], from `offset`, `len` bytes.
    Read,
    /// The 32 bytes of the SHA-256 of a file's first `len` bytes as data frames, then [`FileReply::Read`].
    Hash,
    /// A regular file of the bytes of the data frames with `mode` and `mtime_ns`, in the place of whatever else but a
    /// directory is there. It appears whole or not at all. Answered with [`FileReply::Written`].
    ///
    /// With `offset` it goes on after so many bytes of an earlier attempt and, if it is cut off, keeps what has come;
    /// without, an unfinished file is removed. What an earlier attempt left is beside the file, under the name that
    /// `farshell-beneath` gives it. Who goes on with it has compared it with the source before.
    Put,
    /// A directory; one that is there is fine and stays as it is. A new one is its owner's alone until it is `Set`.
    MakeDir,
    /// A symbolic link to `link` with `mtime_ns`, in the place of whatever else but a directory is there.
    Link,
    /// `mode` and `mtime_ns` of a file or directory. An empty path is the root.
    Set,
    /// Removes what is there, a directory with all that is in it; nothing there is fine.
    Remove,
    /// Everything that was written to the root's file system is on its disk when this is answered.
    Sync,
}

/// By hand, since what is derived would be a large part of what is left of an outpost's size.
impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Below;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an operation below a directory")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Below, A::Error> {
        let mut below = Below::new(BelowOp::Stat, Vec::new(), Vec::new());
        let mut op = None;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match &*name {
                "root" => below.root = map.next_value()?,
                "path" => below.path = map.next_value()?,
                "op" => op = Some(map.next_value()?),
                "offset" => below.offset = number(&mut map)?,
                "len" => below.len = number(&mut map)?,
                "mode" => below.mode = number(&mut map)?,
                "mtime_ns" => below.mtime_ns = number(&mut map)?,
                "link" => below.link = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        below.op = op.ok_or_else(|| Error::missing_field("op"))?;
        Ok(below)
    }
}

fn number<'de, A: MapAccess<'de>, T: TryFrom<i64>>(map: &mut A) -> Result<Option<T>, A::Error> {
    match map.next_value::<Option<i64>>()? {
        None => Ok(None),
        Some(number) => match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::custom("a number is out of range")),
        },
    }
}

impl Below {
    /// The operation with no field set.
    #[must_use]
    pub fn new(op: BelowOp, root: impl Into<ByteBuf>, path: impl Into<ByteBuf>) -> Self {
        Self {
            root: root.into(),
            path: path.into(),
            op,
            offset: None,
            len: None,
            mode: None,
            mtime_ns: None,
            link: None,
        }
    }
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
