//! The durable log of what happened.

use crate::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that happened. Sequence numbers only grow, and survive restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub seq: u64,
    pub at: Millis,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Depends on the kind.
    #[serde(default)]
    pub data: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A background process has ended, is lost, or never began: exactly one for each. Data: `state`, `exit_code`,
    /// `signal`, `timed_out`, `command`, `notify_on_complete`, `output_tail`.
    ProcessCompleted,
    /// Data: `pattern`, `line`, `offset`, `suppressed` (matches that were not told because there were too many).
    WatchMatched,
    /// A watch was switched off because it matched too often. Data: `matches`.
    WatchDisabled,
    /// A background process was started.
    ProcessStarted,
    EnvironmentCreated,
    EnvironmentStopped,
    EnvironmentRemoved,
    /// Data: `error`.
    EnvironmentFailed,
    /// Data: `difference`.
    EnvironmentRecreated,
    /// A command waits for a person's answer. Data: `approval`.
    ApprovalRequested,
    /// Data: `approval` (its id), `decision` (`allow` or `deny`), `decided_by`, `reason`.
    ApprovalAnswered,
    ServerStarted,
    ServerStopped,
}

/// `GET /v1/events`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventQuery {
    /// Only those after this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only those which this consumer has not acknowledged (used if `after` is absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Most events; 1000 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Seconds to wait for the first one if there is none yet; at most 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventList {
    pub events: Vec<Event>,
    /// The newest number there is.
    pub last: u64,
    /// Events up to here are no longer kept.
    pub pruned: u64,
}

/// `POST /v1/events/ack`: this consumer has seen everything up to `seq`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    pub consumer: String,
    pub seq: u64,
}
