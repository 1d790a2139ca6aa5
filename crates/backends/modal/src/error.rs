//! What it means when Modal can't be reached, or says no.

use crate::client::{ClientError, Code, Fault};
use farshell_engine::{Error, Kind};

const TOKEN: &str = "`modal token new` makes a token and writes it to ~/.modal.toml; or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, for example with `farshell config set MODAL_TOKEN_ID -`";

pub(crate) fn explain(operation: impl Into<String>, error: ClientError) -> Error {
    let message = error.message();
    let (kind, hint) = match &error.fault {
        Fault::NotSent(_) => (Kind::Disconnected, Some("is the network up, and MODAL_SERVER_URL right?")),
        Fault::Lost(_) => (Kind::Disconnected, None),
        Fault::TimedOut => (Kind::TimedOut, None),
        Fault::Malformed(_) => (Kind::Protocol, Some("does Modal answer at MODAL_SERVER_URL?")),
        Fault::Failed(_) => {
            (Kind::Unavailable, Some("does the image exist, and may Modal pull it? see modal_image"))
        }
        Fault::NoToken(_) => (Kind::Invalid, Some(TOKEN)),
        Fault::Forbidden(_) => (Kind::Invalid, None),
        Fault::Refused { code, .. } => refusal(*code),
    };
    let explained = Error::new(kind, operation, message).with_source(error);
    match hint {
        Some(hint) => explained.with_hint(hint),
        None => explained,
    }
}

fn refusal(code: Code) -> (Kind, Option<&'static str>) {
    match code {
        Code::Unauthenticated => (Kind::PermissionDenied, Some(TOKEN)),
        Code::PermissionDenied => {
            (Kind::PermissionDenied, Some("the token does not allow this: see modal.com/settings"))
        }
        Code::NotFound => (Kind::NotFound, None),
        Code::AlreadyExists => (Kind::AlreadyExists, None),
        Code::InvalidArgument | Code::OutOfRange => (Kind::Invalid, None),
        Code::FailedPrecondition | Code::Aborted => (Kind::Busy, None),
        Code::ResourceExhausted => (
            Kind::Exhausted,
            Some(
                "a limit of your workspace is reached: `farshell env list` shows what runs; try again later",
            ),
        ),
        Code::DeadlineExceeded => (Kind::TimedOut, None),
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => {
            (Kind::Disconnected, Some("Modal may have a problem: status.modal.com"))
        }
        Code::Unimplemented => (Kind::Protocol, Some("does Modal answer at MODAL_SERVER_URL?")),
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
