//! The server itself.

use crate::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/server`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    pub pid: u32,
    pub version: String,
    pub api_version: u32,
    /// Seconds.
    pub uptime: u64,
    pub started_at: Millis,
    /// `$HERMES_HOME`.
    pub home: String,
    pub socket: String,
    /// Addresses it listens on besides its socket.
    pub listen: Vec<String>,
    pub counts: Counts,
    /// Seconds until it ends by itself if nothing happens; absent if it does not.
    pub ends_in: Option<u64>,
    /// What a person should know: a database that was moved aside, say.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    pub environments: u32,
    /// Foreground commands that run now.
    pub foreground: u32,
    /// Background processes that run now.
    pub background: u32,
    /// Open connections.
    pub connections: u32,
    /// The number of the newest event.
    pub last_event: u64,
}

/// `POST /v1/server/stop`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StopRequest {
    /// Remove all environments first.
    pub remove_environments: bool,
}

/// An answer that says nothing but yes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    pub ok: bool,
}
