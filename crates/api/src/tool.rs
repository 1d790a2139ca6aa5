//! The agent's tools.

use crate::run::{Target, default_session};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `GET /v1/tools`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<ToolInfo>,
}

/// What a model and a client are told about a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolInfo {
    pub name: String,
    pub title: String,
    pub description: String,
    /// JSON schema of the arguments.
    pub input_schema: Value,
    /// JSON schema of the result.
    pub output_schema: Value,
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy something.
    pub destructive: bool,
    /// To call it twice is to call it once.
    pub idempotent: bool,
    /// It reaches beyond the environment.
    pub open_world: bool,
}

/// `POST /v1/tools/{name}`. If the caller goes away, a foreground command is killed with all it started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    #[serde(default)]
    pub arguments: Map<String, Value>,
    #[serde(default)]
    pub target: Target,
    #[serde(default = "default_session")]
    pub session: String,
}

/// What a tool answers. Bad arguments, a denial or a lost place are results too, with an `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// As the tool's output schema describes it.
    pub result: Map<String, Value>,
    /// The tool could not do what was asked. A command that exits with another code than 0 is no failure of the tool.
    pub failed: bool,
}
