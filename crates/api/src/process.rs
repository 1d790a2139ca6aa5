//! Processes.

use crate::run::{LogInfo, Place, Size};
use crate::{Millis, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process as the server knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    pub id: String,
    pub task: String,
    pub session: Option<String>,
    /// The environment's key.
    pub environment: String,
    pub backend: String,
    pub place: Place,
    pub command: Text,
    pub background: bool,
    pub pty: bool,
    pub state: ProcessState,
    pub pid: Option<u32>,
    /// Set when it has ended: 124 after a timeout, 128+n after a signal, 126 if the workdir can't be entered.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub signal_name: Option<String>,
    pub timed_out: bool,
    pub workdir_failed: bool,
    /// How each stage of the pipeline ended with which a foreground command ended, where the shell is bash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipe_status: Vec<i32>,
    pub killed: u32,
    pub survivors: u32,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub duration_ms: u64,
    pub cwd: Option<Text>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub shell_restarted: bool,
    pub state_lost: bool,
    pub output_open: bool,
    pub log: LogInfo,
    /// Set while it waits for input on its terminal, where the kernel shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// Set if its outpost can't be asked at this moment, and why: then all of this is what was last known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    #[serde(default)]
    pub notify_on_complete: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch_patterns: Vec<String>,
    /// Why it is `lost` or `not_started`, in words; or that its session began anew, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The life of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// Recorded; the outpost has not been asked yet.
    #[default]
    Starting,
    /// Waits for its session.
    Queued,
    Running,
    Ended,
    /// It never began.
    NotStarted,
    /// The outpost that had it is gone: nobody can say how it ended.
    Lost,
}

/// What a process that waits for input is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    Input,
    /// The terminal does not echo: it asks for a secret.
    Secret,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    pub processes: Vec<Process>,
}

/// `GET /v1/processes`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Finished ones too.
    pub all: bool,
}

/// Which part of a log is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Both streams, in arrival order.
    #[default]
    Output,
    Stdout,
    Stderr,
}

/// `GET /v1/processes/{id}/log`: by offset, or by line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogQuery {
    pub view: View,
    /// First byte. Negative: so many from the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Most bytes; a megabyte is the most that is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u32>,
    /// First line, counted from 0, instead of `offset`. Negative: so many from the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<i64>,
    /// Most lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u32>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogPiece {
    pub view: View,
    /// Of the first byte that is given. Later than asked if the log's cap has cost the bytes before.
    pub offset: u64,
    /// Where the next piece begins.
    pub next: u64,
    pub text: Text,
    /// All bytes so far.
    pub total: u64,
    /// The process has ended and this reaches to its last byte.
    pub eof: bool,
    /// By line only: the first line given, and the number of whole lines so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
}

/// `POST /v1/processes/{id}/wait`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WaitRequest {
    /// Seconds; at most 600, which is also what is waited if absent. The answer says in `state` whether it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// `POST /v1/processes/{id}/stdin`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StdinRequest {
    pub data: Text,
    /// Sends an Enter after it: what a person does (a line feed to a pipe, a carriage return to a terminal).
    pub submit: bool,
    /// Nothing more will come.
    pub eof: bool,
    /// All bytes sent before, so that a repeated request adds nothing. Without it the data is simply added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StdinResult {
    /// All bytes taken so far.
    pub taken: u64,
}

/// `POST /v1/processes/{id}/kill`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KillRequest {
    /// Seconds between TERM and KILL; the configured ones if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KillResult {
    pub killed: u32,
    /// 0, or something is wrong.
    pub survivors: u32,
    /// It had ended before.
    pub had_ended: bool,
}

/// `POST /v1/processes/{id}/signal`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `INT`, `SIGINT` or `2`.
    pub signal: String,
}

/// `POST /v1/processes/{id}/resize`
pub type ResizeRequest = Size;

/// `GET /v1/processes/{id}/screen`: what a person would see on its terminal now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Screen {
    pub size: Size,
    /// Lines of text without colours.
    pub lines: Vec<String>,
    pub cursor: [u16; 2],
    pub title: String,
    /// A full-screen program (vim, less) has it.
    pub alternate: bool,
    /// Output up to here (arrival order) is on it.
    pub offset: u64,
}
