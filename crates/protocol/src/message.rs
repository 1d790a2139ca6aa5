//! Requests, responses, events and failures.

use crate::process::{Kill, Killed, LogPiece, Size, Start, Status, View};
use crate::session::{OpenSession, SessionInfo};
use crate::{ProcessId, SessionName, file};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What an engine can ask of an outpost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered with [`Reply::Done`]: is anybody there, and how far away?
    Ping,
    /// What this outpost is and holds.
    Info,
    OpenSession(OpenSession),
    /// Ends a session's shell. A command that runs in it is killed.
    CloseSession {
        name: SessionName,
    },
    Sessions,
    Start(Start),
    /// Streams output as data frames, then answers with the [`Status`].
    Attach {
        id: ProcessId,
        attach: crate::process::Attach,
    },
    Status {
        id: ProcessId,
    },
    Processes,
    ReadLog {
        id: ProcessId,
        view: View,
        offset: u64,
        len: u32,
    },
    /// Bytes for a process that has [`crate::process::Stdin::Pipe`]. `offset` counts all bytes sent before,
    /// so that a repeated request adds nothing. Answered when the bytes are taken.
    Stdin {
        id: ProcessId,
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        eof: bool,
    },
    /// Sends a signal to the process (for a session command: to what runs in the shell, not to the shell).
    Signal {
        id: ProcessId,
        signal: i32,
        /// See [`crate::once`].
        #[serde(default)]
        once: u64,
    },
    Kill(Kill),
    Resize {
        id: ProcessId,
        size: Size,
    },
    /// Drops a finished process's log. Its id stays taken.
    Forget {
        id: ProcessId,
    },
    /// How long the outpost outlives the silence of its owner.
    SetLease {
        seconds: u64,
    },
    /// Kills everything and ends.
    Shutdown,
    File(file::FileRequest),
    /// As [`Request::Status`]; and if there is no such process, there never will be: a start under this id that is
    /// still on its way, in a connection whose owner is gone, is refused when it arrives.
    Forbid {
        id: ProcessId,
    },
}

/// The answers, one for each kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Info(Info),
    Session(SessionInfo),
    Sessions(Vec<SessionInfo>),
    Status(Box<Status>),
    Processes(Vec<Status>),
    Log(LogPiece),
    /// All bytes of stdin taken so far.
    Stdin {
        taken: u64,
    },
    Killed(Vec<(ProcessId, Killed)>),
    File(file::FileReply),
}

/// An outpost in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub identity: crate::hello::OutpostIdentity,
    pub release: String,
    pub dir: String,
    pub uptime_ms: u64,
    pub lease_seconds: u64,
    pub sessions: u32,
    pub running: u32,
    pub finished: u32,
    /// `x86_64`, `aarch64`, …
    pub arch: String,
    /// How commands are told apart when they are killed, see the outpost's kill module.
    pub tagging: bool,
}

/// Something that happened within a call that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The process was started (a queued command: now).
    Started {
        pid: u32,
    },
    /// The log no longer had the bytes `from..to` (arrival order) when the reader came to them.
    Gap {
        from: u64,
        to: u64,
    },
    File(file::FileEvent),
}

/// Why a call failed. The reader is a person or a program: the kind is for the program, the rest for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: ErrorKind,
    /// What failed and why, a lowercase fragment.
    pub message: String,
    /// The system's error number, where there was one.
    #[serde(default)]
    pub errno: Option<i32>,
}

impl Failure {
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), errno: None }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Kinds of failure that a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// No such process, session or file.
    NotFound,
    /// The id was used for something else.
    AlreadyExists,
    /// The session is busy and the caller did not want to wait, or too many wait already.
    Busy,
    /// The request makes no sense (a NUL in a command, a resize of something that is no terminal).
    Invalid,
    /// The system said no.
    PermissionDenied,
    /// The system could not (no memory, no processes, full disk).
    Exhausted,
    /// The file is not what the caller thought it was.
    Stale,
    /// The shell could not be started.
    ShellFailed,
    /// The peer did not keep to the protocol.
    Protocol,
    /// The outpost is ending.
    ShuttingDown,
    /// An attempt was called off, or is being called off, because a newer one is there or nobody waits for it any more
    /// ([`crate::once`]).
    CalledOff,
    /// It may have been done under this number, and what is known of that had to be forgotten ([`crate::once`]).
    Forgotten,
    /// Any other error of the system; see `errno`.
    System,
}

/// A message could not be read. The text may quote the peer, shortened and escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl Malformed {
    fn new(reason: &impl std::fmt::Display) -> Self {
        Self(crate::excerpt(reason.to_string().as_bytes()))
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Arrays and maps within each other, in a message or in a field of it that nobody knows. Ours need a
/// third of it, and the stack of a small thread bears it.
const MAX_DEPTH: usize = 32;

/// Appends a message to `out`.
pub fn encode<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    // Writing to memory can't fail and our types have nothing that MessagePack can't say.
    let written = message.serialize(&mut rmp_serde::Serializer::new(&mut *out).with_struct_map());
    debug_assert!(written.is_ok(), "{written:?}");
}

/// The bytes of a message.
#[must_use]
pub fn to_bytes<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    encode(&mut out, message);
    out
}

/// Reads a message.
///
/// # Errors
/// The bytes are not such a message, or not only such a message.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(MAX_DEPTH);
    let message = T::deserialize(&mut reader).map_err(|error| Malformed::new(&error))?;
    // The reader does not tell how far it came, but only at the end can it not read one more marker.
    match <()>::deserialize(&mut reader) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(message),
        _ => Err(Malformed::new(&"bytes after its end")),
    }
}
