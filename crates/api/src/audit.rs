//! The audit log: what was asked for, what was decided, and what became of it.

use crate::Millis;
use crate::approval::{Subject, Surface};
use crate::error::ApiError;
use crate::run::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A server began to write here.
    Opened,
    /// A person is asked.
    Asked,
    /// It will run, or it will not.
    Decided,
    /// What became of it.
    Ended,
    /// The line before this was torn when its writer died.
    Torn,
    /// Lines could not be written: `lost` says how many.
    Gap,
}

/// One line. What does not apply is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditLine {
    pub seq: u64,
    pub at: Millis,
    pub step: Step,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Subject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Known once it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// Secrets are masked; of a long one the beginning, and its SHA-256 in `command_sha256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_sha256: Option<String>,
    /// `safe`, `risky` or `forbidden`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// The rules that objected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// `allow` or `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// `mode:NAME`, `isolated`, `allowlist`, `deny_list`, `hard_list`, `person:once`, `person:session`,
    /// `person:always`, `person:deny`, `timeout`, `withdrawn`, `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// What the person said with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AuditOutcome>,
    /// Of a torn line: its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Lines that could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The first line of a file: the chain of the last line before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// SHA-256 over the chain of the line before and this line up to here.
    #[serde(default)]
    pub chain: String,
}

/// What became of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditOutcome {
    /// `ended`, `not_started`, `lost`, `failed` (Farshell itself; `error` says how).
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Processes that had to be killed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub killed: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AuditOutcome {
    /// What became of something about which an error says all there is to say.
    #[must_use]
    pub fn of_error(error: &ApiError) -> Self {
        let state = match error.kind.as_str() {
            "unknown_outcome" | "disconnected" => "lost",
            "not_started" => "not_started",
            _ => "failed",
        };
        Self { state: state.into(), error: Some(error.message.clone()), ..Self::default() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it like this")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// `GET /v1/audit`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuery {
    /// Only lines after this number. Without it the last ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only lines from this moment on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Most lines; 1000 if absent, at most 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Seconds to wait for the first one if there is none yet; at most 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditList {
    pub lines: Vec<AuditLine>,
    /// The number of the newest line there is.
    pub last: u64,
}

/// `GET /v1/audit/verify`: whether the log is what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditReport {
    /// No line was changed, taken out or put in.
    pub sound: bool,
    pub files: u32,
    pub lines: u64,
    /// The first line that is kept.
    pub first: u64,
    pub last: u64,
    /// What does not fit: the file, the line in it, and why.
    pub faults: Vec<AuditFault>,
    /// What is unusual and has an explanation: a line that was torn when the server was killed.
    pub notes: Vec<AuditFault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditFault {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    pub what: String,
}
