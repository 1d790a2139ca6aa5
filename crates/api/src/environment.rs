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
    /// Limits (`cpu`, `memory`, `disk`, `processes`), and how each is kept.
    #[serde(default)]
    pub limits: BTreeMap<String, Limit>,
    /// What its place says of itself now: the node of a batch job, and the time it has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What is being done while its place is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A limit on what a place may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// `enforced`, `approximated` or `not enforced`.
    pub support: String,
    /// `2 cores`, `5120 MB`, `no limit`. Absent where nothing was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why it is not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Something that takes long: an image is pulled, say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    pub message: String,
    /// Bytes so far and in all, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
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
    /// Remove also the files that would outlive it. Then a key may be named whose environment is gone already. Without it,
    /// a place that has the only files is put away, and not removed.
    pub files: bool,
    /// Forget it if its place can't be ended because it can't be reached: what is there is left to its lease.
    pub forget: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveResult {
    pub removed: Vec<String>,
    /// Key and why not.
    pub failed: Vec<Refusal>,
    /// Those that could not be ended and are no longer known, with what is left of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<Forgotten>,
    /// Files that are still there for the next environment of this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptFiles>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    pub key: String,
    /// Why it could not be ended, and what becomes of what is there.
    pub left: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptFiles {
    pub key: String,
    /// A directory, or names of volumes; or the place itself, which is put away.
    pub location: String,
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
