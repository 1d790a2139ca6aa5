//! Sessions: shells whose state lasts.

use crate::SessionName;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Opens a session, or finds the one that is open under this name (whose state then stays as it is).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    pub name: SessionName,
    pub mode: Mode,
    /// Variables of the new shell.
    pub env: Vec<(ByteBuf, ByteBuf)>,
    /// Start from nothing but `env`, instead of the outpost's own environment.
    #[serde(default)]
    pub clear_env: bool,
    /// Start directory; the home directory if absent. A leading `~` means it too.
    #[serde(default, with = "serde_bytes")]
    pub cwd: Option<Vec<u8>>,
    /// Files sourced once, before the first command; missing ones are skipped. A leading `~` is the home
    /// directory.
    #[serde(default)]
    pub init_files: Vec<ByteBuf>,
}

/// How much of a shell's state lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// One shell for all commands: everything lasts.
    Live,
    /// A fresh shell for each command: directory and exported variables last.
    OneShot,
}

/// A session as the outpost sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub name: SessionName,
    pub mode: Mode,
    /// It was opened by this call.
    pub created: bool,
    /// `bash` or `sh`.
    pub shell: String,
    #[serde(with = "serde_bytes")]
    pub cwd: Vec<u8>,
    pub busy: bool,
    pub queued: u32,
    /// Commands that ran to their end.
    pub commands: u64,
    /// How often the shell had to be started anew.
    pub restarts: u64,
}
