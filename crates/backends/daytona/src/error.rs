//! What it means when Daytona can't be reached, or says no.

use crate::client::{ClientError, Fault};
use farshell_engine::{Error, Kind};

pub(crate) fn explain(operation: impl Into<String>, error: ClientError) -> Error {
    let message = error.message();
    let (kind, hint) = match &error.fault {
        Fault::NotSent(_) => (Kind::Disconnected, Some("is the network up, and DAYTONA_API_URL right?")),
        Fault::Lost(_) => (Kind::Disconnected, None),
        Fault::TimedOut => (Kind::TimedOut, None),
        Fault::Malformed(_) => (Kind::Protocol, Some("does Daytona answer at DAYTONA_API_URL?")),
        Fault::Forbidden(_) => (Kind::Invalid, None),
        Fault::Refused { status, message, .. } => refusal(*status, message),
    };
    let explained = Error::new(kind, operation, message).with_source(error);
    match hint {
        Some(hint) => explained.with_hint(hint),
        None => explained,
    }
}

fn refusal(status: u16, message: &str) -> (Kind, Option<&'static str>) {
    // The limit on requests is one of the moment.
    if message.contains("limit exceeded") && status != 429 {
        return (
            Kind::Exhausted,
            Some(
                "stopped sandboxes count too: remove some with `farshell env rm --files`, or archive them at app.daytona.io",
            ),
        );
    }
    if message.contains("exceeds maximum allowed per sandbox") {
        return (Kind::Invalid, Some("lower container_cpu, container_memory or container_disk"));
    }
    match status {
        400 | 422 => (Kind::Invalid, None),
        401 => (
            Kind::PermissionDenied,
            Some(
                "DAYTONA_API_KEY is wrong or expired: create another at app.daytona.io and store it with `farshell config set DAYTONA_API_KEY -`",
            ),
        ),
        403 => {
            (Kind::PermissionDenied, Some("the key does not allow this: create one that may use sandboxes"))
        }
        404 => (Kind::NotFound, None),
        408 | 504 => (Kind::TimedOut, None),
        409 | 429 => (Kind::Busy, Some("try again in a minute")),
        // From 520 on it is a proxy in front of Daytona that says so.
        502 | 503 | 520..=530 => {
            (Kind::Disconnected, Some("Daytona may be under maintenance: status.daytona.io"))
        }
        _ => (Kind::System, None),
    }
}

/// Nothing was connected before, so nothing is disconnected.
pub(crate) fn first_contact(mut error: Error) -> Error {
    if error.kind == Kind::Disconnected {
        error.kind = Kind::Unavailable;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_requests_pass_and_too_many_sandboxes_do_not() {
        assert_eq!(refusal(429, "Rate limit exceeded").0, Kind::Busy);
        assert_eq!(refusal(403, "Total disk limit exceeded").0, Kind::Exhausted);
    }
}
