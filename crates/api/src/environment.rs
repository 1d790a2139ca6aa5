//! Environments and their lives.

use crate::Millis;
use crate::run::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A task's place with its outpost and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Unique among environments: `<backend>/<task>`.
    pub key: String,
    pub backend: String,
    /// The tasks that use it: one, or with `isolation: shared` all that came.
    pub tasks: Vec<String>,
    pub state: EnvironmentState,
    pub place: Option<Place>,
    pub spec_hash: String,
    /// What the hash is of, for people.
    pub spec: BTreeMap<String, String>,
    pub created_at: Millis,
    pub last_used_at: Millis,
    /// Foreground commands that run now.
    pub foreground: u32,
    /// Background processes that run now.
    pub background: u32,
    /// Seconds of inactivity after which it is put away.
    pub lifetime_seconds: u64,
    /// When that is, if nothing happens. Absent while something runs.
    pub expires_at: Option<Millis>,
    /// Limits and whether each is enforced, approximated or not enforced.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The life of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentState {
    /// The place is being made.
    Creating,
    Ready,
    /// Put away with what it keeps; the next call brings it back.
    Stopped,
    /// Being put away or removed.
    Ending,
    /// It could not be made or reached; `note` says why. The next call tries again.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentList {
    pub environments: Vec<Environment>,
}

/// `POST /v1/environments/remove`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RemoveRequest {
    /// Keys or task names. Empty with `all`.
    pub names: Vec<String>,
    pub all: bool,
    /// Also if something runs in it.
    pub force: bool,
    /// Only put away (files are kept), not removed.
    pub stop: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveResult {
    pub removed: Vec<String>,
    /// Key and why not.
    pub failed: Vec<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    pub key: String,
    pub error: crate::ApiError,
}

/// `POST /v1/gc`: resources of ours that no record claims, and records whose resources are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GcRequest {
    /// Do it, not only say it.
    pub remove: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcResult {
    pub found: Vec<GcItem>,
    pub removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcItem {
    pub backend: String,
    /// `place`, `outpost`, `record`, `log`.
    pub kind: String,
    pub name: String,
    /// Why it is of no use.
    pub why: String,
    /// Set if it was to be removed and could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
