//! The way of an MCP client to the tools.

use crate::run::{Target, default_session};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /v1/mcp`: from where a client calls. The connection is then a stream of JSON-RPC messages, one a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpOpen {
    pub target: Target,
    /// The session of calls that name none.
    pub session: String,
}

impl Default for McpOpen {
    fn default() -> Self {
        Self { target: Target::default(), session: default_session() }
    }
}

/// The query of `/mcp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// A stricter approval mode than the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<String>,
}

impl From<McpQuery> for McpOpen {
    fn from(query: McpQuery) -> Self {
        let target = Target::default();
        Self {
            target: Target {
                task: query.task.unwrap_or(target.task),
                backend: query.backend,
                caller: None,
                approvals: query.approvals,
            },
            session: query.session.unwrap_or_else(default_session),
        }
    }
}

/// What the stream of `/v1/mcp` is called in `Upgrade`.
pub const MCP_UPGRADE: &str = "mcp";
