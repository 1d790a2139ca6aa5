//! What can go wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success: `{"error": {…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ApiError,
}

/// An error, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiError {
    /// Stable: `unavailable`, `invalid`, `not_found`, `already_exists`, `busy`, `permission_denied`, `denied`,
    /// `exhausted`, `stale`, `disconnected`, `unknown_outcome`, `not_started`, `identity_changed`, `protocol`, `timed_out`,
    /// `spec_changed`, `system`.
    pub kind: String,
    /// What was being done.
    pub operation: String,
    /// Why it failed.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// `never`, `safe` (nothing was changed or run), `unsafe` (it may have been).
    pub retry: String,
}
