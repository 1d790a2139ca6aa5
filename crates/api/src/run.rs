//! Commands.

use crate::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a caller stands: its directory and variables. They decide the settings (`TERMINAL_*`), and what a session
/// on this machine begins with. Without it the server's own count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Caller {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, Text>>,
}

/// Which environment is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// The caller's key for an environment.
    pub task: String,
    /// Another backend than the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// A stricter approval mode than the configured one: `smart`, `ask` or `unattended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<String>,
}

impl Default for Target {
    fn default() -> Self {
        Self { task: "default".into(), backend: None, caller: None, approvals: None }
    }
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Chosen by the caller, so that a repeated request never runs a command twice. Chosen by the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default)]
    pub target: Target,
    /// The session in which it runs (foreground) or whose state it starts from (background).
    #[serde(default = "default_session")]
    pub session: String,
    pub command: Text,
    /// For this command only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<Text>,
    /// Seconds. Foreground: the configured one if absent, at most `max_foreground_timeout`. Background: none if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Runs beside the session and outlives the call.
    #[serde(default)]
    pub background: bool,
    /// On a terminal of this size (background, or by stream).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Size>,
    /// Its input is a pipe that can be written to; otherwise it is empty.
    #[serde(default)]
    pub stdin: bool,
    /// Standard error joins standard output.
    #[serde(default)]
    pub merge_stderr: bool,
    /// What to do if the session runs another command: `wait` or `refuse`.
    #[serde(default)]
    pub on_busy: OnBusy,
    /// What to do when the time is up: `kill`, or `background` (it goes on as a background process).
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Background: an event when it ends (there always is one) that asks for attention.
    #[serde(default)]
    pub notify_on_complete: bool,
    /// Background: an event when a line of output contains one of these texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch_patterns: Vec<String>,
    /// By stream: a person is there who can be asked for the password that a sudo wants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passwords: bool,
}

impl StartRequest {
    /// A foreground command with nothing special about it.
    #[must_use]
    pub fn new(command: impl Into<Text>) -> Self {
        Self {
            id: None,
            target: Target::default(),
            session: default_session(),
            command: command.into(),
            workdir: None,
            timeout: None,
            background: false,
            pty: None,
            stdin: false,
            merge_stderr: false,
            on_busy: OnBusy::default(),
            on_timeout: OnTimeout::default(),
            notify_on_complete: false,
            watch_patterns: Vec::new(),
            passwords: false,
        }
    }
}

/// The session of callers who name none.
#[must_use]
pub fn default_session() -> String {
    "default".into()
}

/// A terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    #[default]
    Wait,
    Refuse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Kill,
    Background,
}

/// `POST /v1/run`: a foreground command, answered when it has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub start: StartRequest,
    /// The whole input. Sets `start.stdin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Text>,
    /// Bytes kept of each of `stdout`, `stderr` and `output`: two fifths from the beginning, three from the end.
    #[serde(default = "default_max_output")]
    pub max_output: usize,
}

/// What is kept of output unless the caller says otherwise.
#[must_use]
pub fn default_max_output() -> usize {
    50_000
}

/// A command that has ended, with its output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    pub stdout: String,
    pub stderr: String,
    /// Both, in arrival order.
    pub output: String,
    /// `utf-8`, or `lossy` if some bytes were not text and are replaced.
    pub encoding: String,
    /// 124 after a timeout, 128+n after a signal, 126 if the workdir can't be entered.
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub signal_name: Option<String>,
    pub timed_out: bool,
    pub workdir_failed: bool,
    /// How each stage of the pipeline ended with which the command ended, where the shell is bash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipe_status: Vec<i32>,
    /// It reached its timeout and goes on as a background process.
    #[serde(default)]
    pub backgrounded: bool,
    pub killed: u32,
    pub survivors: u32,
    pub cwd: Option<String>,
    pub backend: String,
    pub place: Place,
    pub task: String,
    pub session: String,
    pub process_id: String,
    pub duration_ms: u64,
    pub truncated: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub shell_restarted: bool,
    pub state_lost: bool,
    /// Somebody whom the command left behind still holds its output.
    pub output_open: bool,
    pub log: LogInfo,
    /// What the caller should know beside that: that the session began anew, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where the whole output is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogInfo {
    pub process_id: String,
    /// In the place.
    pub path: Option<String>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Offsets (arrival order) of what the log's cap has cost.
    pub dropped: Option<[u64; 2]>,
    pub error: Option<String>,
}

/// What a place is: every result names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    pub name: String,
    pub id: String,
}
