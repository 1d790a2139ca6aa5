//! The WebSocket `/v1/stream`: one process's output, input and terminal, live.
//!
//! The client's first message is an [`Open`]. Then:
//!
//! - binary, server to client: output. One byte (1 stdout, 2 stderr), eight bytes offset in arrival order (little
//!   endian), then the bytes.
//! - binary, client to server: input. Eight bytes offset (all bytes sent before), then the bytes.
//! - text, server to client: a [`ServerMessage`].
//! - text, client to server: a [`ClientMessage`].
//!
//! The server closes the connection after [`ServerMessage::Ended`], [`ServerMessage::Detached`] or
//! [`ServerMessage::Error`]. A connection that ends before is resumed with [`Open::attach`] from the offset that
//! was reached; the process goes on meanwhile.

use crate::approval::Approval;
use crate::process::Process;
use crate::run::{Size, StartRequest, Target};
use crate::{ApiError, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes before the output in a binary message from the server.
pub const OUTPUT_HEADER: usize = 9;
/// Bytes before the input in a binary message from a client.
pub const INPUT_HEADER: usize = 8;

/// What the stream is of. Exactly one of `start` and `attach`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Open {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Box<StartRequest>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<AttachTo>,
}

/// A process that was started before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachTo {
    pub id: String,
    /// The environment it was started in. Not needed for background processes, which the server remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The outpost that [`ServerMessage::Opened`] named. If the environment has another one by now, the error is
    /// `unknown_outcome`. So `not_found` means that the start never arrived, and that it may be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// First byte of output (arrival order).
    #[serde(default)]
    pub from: u64,
    /// Not the output from `from` on, but the terminal's screen as it is now, and what comes after.
    #[serde(default)]
    pub screen: bool,
    /// Stay until nobody holds the output any more, not only until the process has ended.
    #[serde(default)]
    pub until_closed: bool,
    /// The size of the caller's terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

impl AttachTo {
    /// The whole of a process that the server knows.
    #[must_use]
    pub fn start_of(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            target: None,
            instance: None,
            from: 0,
            screen: false,
            until_closed: false,
            size: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The process is known; `state` says whether it runs or waits for its session. `stdin_taken` bytes of input
    /// have been taken before. `instance` is the outpost that has it: to be given back in [`AttachTo::instance`].
    Opened {
        process: Box<Process>,
        stdin_taken: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// Something takes long: a place is being made, an image pulled.
    Progress {
        message: String,
        /// Bytes so far and in all, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// It waits for a person's answer. Nothing has run yet.
    Approval {
        approval: Box<Approval>,
    },
    /// A sudo of the command wants a password, and the start said that there is somebody to ask. The answer is
    /// [`ClientMessage::Password`] with the same id. `again`: what was given before was wrong.
    Password {
        id: u64,
        again: bool,
    },
    /// It waited for its session, and begins now.
    Started {
        pid: u32,
    },
    /// The log no longer has the bytes `from..to` (arrival order).
    Gap {
        from: u64,
        to: u64,
    },
    /// All input up to here was taken.
    Stdin {
        taken: u64,
    },
    /// Draw this: it makes an empty terminal look as the process's does. `offset` is where output goes on.
    Screen {
        data: Text,
        offset: u64,
    },
    Ended {
        process: Box<Process>,
    },
    /// The process goes on without this stream: its timeout made it a background process.
    Detached {
        process: Box<Process>,
        reason: String,
    },
    /// What the client sent (`stdin`, `resize`, `signal` or `kill`) could not be done; the stream goes on. After
    /// `stdin` was refused, more input is dropped: the process takes none.
    Refused {
        request: String,
        error: ApiError,
    },
    Error {
        error: ApiError,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    /// No more input.
    Eof {
        offset: u64,
    },
    Resize {
        size: Size,
    },
    Signal {
        signal: String,
    },
    /// Kills it with all that descends from it; the stream goes on to its end. `grace`: seconds between TERM and
    /// KILL, the configured ones if absent.
    Kill {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace: Option<f64>,
    },
    /// What a person has typed, if anything, for [`ServerMessage::Password`].
    Password {
        id: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<Password>,
    },
}

/// A password on its way. It is not shown by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("********")
    }
}
