//! What waits for a person's answer.

use crate::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// By which way something is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// The program `farshell`.
    Cli,
    #[default]
    Http,
    Mcp,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A command of the shell.
    #[default]
    Command,
    /// A program in another language.
    Code,
    /// A file is written.
    FileWrite,
}

/// One thing that speaks against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The rule's name, stable: `command_allowlist` takes `rule:NAME`.
    pub rule: String,
    /// `risky` or `forbidden`.
    pub level: String,
    /// What it does, in a few words.
    pub what: String,
    /// The part that is meant, as it was understood.
    pub piece: String,
    /// Why that is a reason to stop.
    pub why: String,
}

/// Something that waits for an answer. Nothing of it has run, and if the server ends nothing will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// `appr_…`
    pub id: String,
    pub subject: Subject,
    pub task: String,
    pub session: String,
    /// The environment's key. It may not have been made yet.
    pub environment: String,
    pub backend: String,
    pub surface: Surface,
    /// The program that asks, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The id that the process will have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<String>,
    /// The command, the code, or the path of the file. Secrets are masked.
    pub command: String,
    /// Where it would run, if the call says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Empty if the mode asks about everything.
    pub reasons: Vec<Reason>,
    pub asked_at: Millis,
    /// No answer by then is a no.
    pub expires_at: Millis,
    /// Whether `always` is possible.
    pub may_always: bool,
}

/// `GET /v1/approvals`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalQuery {
    /// The `revision` of an earlier answer: wait until the list is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Seconds to wait for that, or without `after` for the first approval; at most 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// The oldest first.
    pub approvals: Vec<Approval>,
    /// Another number whenever the list is another one.
    pub revision: u64,
}

/// What a person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Once,
    /// Also the next time, in this environment, task and session, for as long as the server lives.
    Session,
    /// Also from now on: it is written to `command_allowlist`.
    Always,
    Deny,
}

/// `POST /v1/approvals/{id}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    pub answer: Answer,
    /// Told to whoever asked, and recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How an approval ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    pub approval: Approval,
    pub answer: Answer,
}
