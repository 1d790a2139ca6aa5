//! Processes: one command each, with an id, a log and an exit.

use crate::{ProcessId, SessionName};
use serde::{Deserialize, Serialize};

/// Log bytes an outpost keeps for one process unless told otherwise.
pub const DEFAULT_LOG_CAP: u64 = 256 << 20;

/// Starts a process, or finds the one that was started under this id before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub id: ProcessId,
    pub what: What,
    pub stdin: Stdin,
    /// When it is reached, the process and everything that descends from it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Pause between TERM and KILL when the time is up.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// Log bytes to keep; 0 means [`DEFAULT_LOG_CAP`], and less than 4 MiB means that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_cap: u64,
    /// Stream the output and answer at the exit. Without it the answer comes as soon as it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Variables of the caller's world as they are now. What has changed since the last command of the session that
    /// brought any is exported before this one begins, and what is no longer among them is unset. Whatever the
    /// session itself does to one lasts until that changes outside. Absent: they stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>>,
}

impl Start {
    /// With no input, no limit of time, and nobody who waits.
    #[must_use]
    pub fn new(id: ProcessId, what: What) -> Self {
        Self {
            id,
            what,
            stdin: Stdin::Null,
            timeout_ms: None,
            grace_ms: default_grace_ms(),
            log_cap: 0,
            attach: None,
            variables: None,
        }
    }
}

#[must_use]
pub fn default_grace_ms() -> u64 {
    2000
}

/// What a process is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum What {
    /// A command in a session's shell: sees its state and changes it. Commands of a session run one after
    /// the other.
    Session {
        session: SessionName,
        #[serde(with = "serde_bytes")]
        command: Vec<u8>,
        /// For this command only; the session's own directory stays as it is.
        #[serde(default, with = "serde_bytes")]
        workdir: Option<Vec<u8>>,
        on_busy: OnBusy,
        /// Sends stderr into the stdout stream, which makes their order exact.
        #[serde(default)]
        merge_stderr: bool,
    },
    /// A shell command of its own. With `session`, it starts from that session's state (all of it) and
    /// leaves it alone.
    Shell {
        #[serde(with = "serde_bytes")]
        command: Vec<u8>,
        #[serde(default)]
        session: Option<SessionName>,
        #[serde(default)]
        surroundings: Surroundings,
    },
    /// A program.
    Exec {
        argv: Vec<serde_bytes::ByteBuf>,
        #[serde(default)]
        surroundings: Surroundings,
    },
}

/// Where and how a process of its own runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Surroundings {
    /// Variables set on top of what is inherited.
    #[serde(default)]
    pub env: Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    /// Start without the outpost's own environment.
    #[serde(default)]
    pub clear_env: bool,
    /// The session's or the outpost's directory if absent, and what a relative one starts from.
    #[serde(default, with = "serde_bytes")]
    pub cwd: Option<Vec<u8>>,
    /// A terminal instead of pipes.
    #[serde(default)]
    pub pty: Option<Size>,
    #[serde(default)]
    pub merge_stderr: bool,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

/// What a second command on a busy session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnBusy {
    /// Waits for its turn.
    Wait,
    /// Fails with [`crate::ErrorKind::Busy`].
    Refuse,
}

/// What the process reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stdin {
    /// End of file at once.
    Null,
    /// What [`crate::Request::Stdin`] sends.
    Pipe,
}

/// How output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Offset in the output in arrival order at which the stream starts.
    pub from: u64,
    /// The reader must get every byte: a reader that is too slow slows the process down, instead of finding
    /// a hole where the log dropped its middle.
    pub lossless: bool,
    /// Goes on after the exit, until no process holds the output any more.
    pub until_closed: bool,
}

impl Attach {
    /// From the start, lossless, until the exit.
    #[must_use]
    pub fn foreground() -> Self {
        Self { from: 0, lossless: true, until_closed: false }
    }

    /// For a caller who wants to know how it ends, and none of its output.
    #[must_use]
    pub fn end_only() -> Self {
        Self { from: u64::MAX, lossless: false, until_closed: false }
    }
}

/// The streams of a process. A terminal has only [`Stream::Stdout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Which bytes a log read is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// One stream, by its own offsets.
    Only(Stream),
    /// Both, in the order in which the outpost read them.
    Arrival,
}

/// Bytes of a [`Chunk`] before the output itself.
pub const CHUNK_HEADER: usize = 17;

/// A piece of output: the payload of a [`crate::Kind::Data`] frame of an attached call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    pub stream: Stream,
    /// Offset of the first byte in arrival order.
    pub offset: u64,
    /// Offset of the first byte within its stream.
    pub stream_offset: u64,
    pub bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    #[must_use]
    pub fn header(&self) -> [u8; CHUNK_HEADER] {
        let mut out = [0; CHUNK_HEADER];
        out[0] = match self.stream {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        };
        out[1..9].copy_from_slice(&self.offset.to_le_bytes());
        out[9..17].copy_from_slice(&self.stream_offset.to_le_bytes());
        out
    }

    /// `None` if it is malformed.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (header, bytes) = payload.split_at_checked(CHUNK_HEADER)?;
        let stream = match header[0] {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return None,
        };
        let number = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
        Some(Self { stream, offset: number(1)?, stream_offset: number(9)?, bytes })
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It ended by itself with this code.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
}

/// Everything an outpost knows about a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub id: ProcessId,
    pub state: State,
    /// The kernel's number, for a session command that of the session's shell; 0 before it started.
    pub pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionName>,
    pub output: OutputStatus,
    /// The session's directory after the command, or the directory in which the process was started.
    #[serde(default, with = "serde_bytes")]
    pub cwd: Option<Vec<u8>>,
    /// Microseconds since it started (until it ended).
    pub elapsed_us: u64,
    /// Absent where the kernel's account can't be told apart (a command in a live shell).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The time limit was reached.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// The workdir of the call could not be entered, so the command did not run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub workdir_failed: bool,
    /// What the kill did, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Killed>,
    /// The shell ended with this command and was started anew.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shell_restarted: bool,
    /// The new shell has the state from before this command: the old one could not say what it changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub state_lost: bool,
    /// It was killed, or something of it, and the kernel says that it has killed because the place's memory had run out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub out_of_memory: bool,
    /// Told only when asked for the status of a process that runs on a terminal, where the kernel shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// How each stage of the pipeline has ended with which a session's command ended, see [`Status::stages`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pipe: u64,
    /// First 200 bytes of the command, for lists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

impl Status {
    /// The exit codes of the stages of the pipeline with which the command ended: of one, if it was none. Empty where
    /// the shell does not say.
    #[must_use]
    pub fn stages(&self) -> Vec<u8> {
        // In `pipe` a byte each, most significant first, between a 1 and the exit code of the command. More than fit are
        // not told.
        let bytes = self.pipe.to_be_bytes();
        let told = bytes.iter().position(|byte| *byte != 0).filter(|at| bytes[*at] == 1);
        told.and_then(|at| bytes.get(at + 1..7)).unwrap_or_default().to_vec()
    }
}

/// What a process that waits for input is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitingFor {
    Input,
    /// The terminal takes lines and does not show them: a secret is asked for.
    Secret,
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It waits for its session.
    Queued,
    Running,
    Ended(End),
    /// It was waiting for its session and will never run.
    Abandoned,
}

/// What a process printed, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputStatus {
    pub stdout: u64,
    pub stderr: u64,
    /// Bytes, in arrival order, that the log no longer has: `dropped_from..dropped_to`, empty if equal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_from: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_to: u64,
    /// Some process still holds the output open, so more can come.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// Why the log could not be written (a full disk), if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
    /// The file on the place that holds the log, once it is larger than memory keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl OutputStatus {
    /// All bytes printed.
    #[must_use]
    pub fn total(&self) -> u64 {
        // Both come from a peer, and a sum that overflows must not be a panic.
        self.stdout.saturating_add(self.stderr)
    }
}

/// What `wait4` says of a process and the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub max_rss_kib: u64,
}

/// The outcome of a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    /// Processes that were there and are gone.
    pub killed: u32,
    /// Processes that are still there: 0, unless they belong to somebody whom the outpost may not signal
    /// or hang in the kernel.
    pub left: u32,
}

/// Stops processes with all that descends from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    pub ids: Vec<ProcessId>,
    /// Pause between TERM and KILL; 0 kills at once.
    pub grace_ms: u64,
}

/// A piece of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// Offset of the first byte given: later than asked for if the log dropped what was asked for.
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Bytes of this view so far.
    pub total: u64,
    /// No process holds the output any more and this piece reaches its end.
    pub eof: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
