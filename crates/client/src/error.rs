//! What can go wrong on this side. The server's own errors arrive as they are.

use farshell_api::ApiError;

pub type Result<T> = std::result::Result<T, ApiError>;

/// The operation of most errors here.
pub(crate) const TALKING: &str = "talking to the server";

pub(crate) fn error(kind: &str, operation: &str, message: impl Into<String>) -> ApiError {
    let retry = match kind {
        "busy" | "disconnected" | "not_started" | "exhausted" | "timed_out" => "safe",
        "unknown_outcome" => "unsafe",
        _ => "never",
    };
    ApiError {
        kind: kind.into(),
        operation: operation.into(),
        message: message.into(),
        hint: None,
        retry: retry.into(),
    }
}

pub(crate) fn with_hint(mut error: ApiError, hint: impl Into<String>) -> ApiError {
    error.hint = Some(hint.into());
    error
}

pub(crate) fn disconnected(message: impl Into<String>) -> ApiError {
    error("disconnected", TALKING, message)
}

pub(crate) fn protocol(message: impl Into<String>) -> ApiError {
    error("protocol", TALKING, message)
}

/// Nobody can say whether it happened.
pub(crate) fn unknown(operation: &str, why: &str) -> ApiError {
    with_hint(
        error("unknown_outcome", operation, format!("the outcome is unknown: {why}; it was not sent again")),
        "check in the place whether it took effect before you do it again",
    )
}
