//! What went wrong, in Modal's own words where it has some.

use std::fmt;
pub use tonic::Code;
use tonic::Status;

/// One call failed.
#[derive(Debug)]
pub struct ClientError {
    /// What was being done, a lowercase fragment.
    pub what: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Modal answered, and said no.
    Refused { code: Code, message: String },
    /// It could not be reached: nothing was sent.
    NotSent(String),
    /// Something was sent, and no answer came: it may have been carried out.
    Lost(String),
    /// The same, for as long as was allowed.
    TimedOut,
    /// The answer is none that Modal gives.
    Malformed(String),
    /// An image could not be built, or a snapshot not be taken.
    Failed(String),
    /// There is no token.
    NoToken(String),
    /// Something in a variable or a file that can't be used, or an address to which a token must not go.
    Forbidden(String),
}

pub(crate) type Result<T> = std::result::Result<T, ClientError>;

impl ClientError {
    pub(crate) fn new(what: impl Into<String>, fault: Fault) -> Self {
        Self { what: what.into(), fault }
    }

    /// What Modal answered.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match &self.fault {
            Fault::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Modal's own words.
    #[must_use]
    pub fn message(&self) -> String {
        self.fault.to_string()
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.fault)
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, message } if message.is_empty() => {
                write!(f, "Modal refuses it ({})", name(*code))
            }
            Self::Refused { code, message } => write!(f, "Modal says: {message} ({})", name(*code)),
            Self::NotSent(why) => write!(f, "Modal can't be reached: {why}"),
            Self::Lost(why) => write!(f, "the connection to Modal was lost: {why}"),
            Self::TimedOut => f.write_str("Modal did not answer in time"),
            Self::Malformed(why) => write!(f, "Modal gave an answer that can't be used: {why}"),
            Self::Failed(why) | Self::NoToken(why) | Self::Forbidden(why) => f.write_str(why),
        }
    }
}

/// As the protocol calls it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// What a status means. One that the server did not send was made here, out of a broken connection.
pub(crate) fn fault(status: &Status) -> Fault {
    match std::error::Error::source(status) {
        Some(error) => Fault::Lost(root(error)),
        None => Fault::Refused { code: status.code(), message: status.message().to_owned() },
    }
}

/// The cause of all causes.
pub(crate) fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

/// Doing the same again may help: the same codes as in Modal's own clients.
pub(crate) fn passes(fault: &Fault) -> bool {
    match fault {
        Fault::Refused { code, .. } => matches!(
            code,
            Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::Internal | Code::Unknown
        ),
        Fault::NotSent(_) | Fault::Lost(_) | Fault::TimedOut => true,
        _ => false,
    }
}
