//! What can go wrong, for programs and for people.

use farshell_protocol::{ErrorKind, Failure};

pub type Result<T> = std::result::Result<T, Error>;

/// One operation failed.
///
/// It reads as: `operation`: `message` (cause), then the hint. Programs look at [`Error::kind`] and
/// [`Error::retry`].
#[derive(Debug)]
pub struct Error {
    /// What was being done, a lowercase fragment: "starting the outpost".
    pub operation: String,
    pub kind: Kind,
    /// Why it failed, a lowercase fragment.
    pub message: String,
    /// What the reader can do about it.
    pub hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of error that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The backend can't serve on this machine, or with these settings.
    Unavailable,
    /// A setting or an argument makes no sense.
    Invalid,
    /// The thing that was named does not exist.
    NotFound,
    /// It exists already, or was used for something else.
    AlreadyExists,
    /// The session is busy and the caller did not want to wait.
    Busy,
    PermissionDenied,
    /// The policy or a person does not allow it. Nothing of it has run.
    Denied,
    /// Memory, disk, processes or descriptors have run out.
    Exhausted,
    /// A file is not what the caller thought it was.
    Stale,
    /// The connection was lost and could not be made again. Whatever ran goes on.
    Disconnected,
    /// A command was sent and nobody can say any more whether it ran, or how it ended. It was not sent again.
    UnknownOutcome,
    /// A command was accepted and is known not to have begun.
    NotStarted,
    /// The place is another one than before.
    IdentityChanged,
    /// The settings differ from those the environment was made with, and `on_spec_change` says to refuse.
    SpecChanged,
    /// The other side did not keep to the protocol, or is of an incompatible age.
    Protocol,
    /// It took longer than allowed.
    TimedOut,
    /// Any other refusal of the system.
    System,
}

/// Whether doing the same again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not until something else has changed.
    Never,
    /// Yes, and it is safe.
    Safe,
    /// It might, but what was asked for may have happened already.
    Unsafe,
}

impl Kind {
    /// Stable name, for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Busy => "busy",
            Self::PermissionDenied => "permission_denied",
            Self::Denied => "denied",
            Self::Exhausted => "exhausted",
            Self::Stale => "stale",
            Self::Disconnected => "disconnected",
            Self::UnknownOutcome => "unknown_outcome",
            Self::NotStarted => "not_started",
            Self::IdentityChanged => "identity_changed",
            Self::SpecChanged => "spec_changed",
            Self::Protocol => "protocol",
            Self::TimedOut => "timed_out",
            Self::System => "system",
        }
    }
}

impl Error {
    pub fn new(kind: Kind, operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self { operation: operation.into(), kind, message: message.into(), hint: None, source: None }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the operating system.
    pub fn io(operation: impl Into<String>, error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
            std::io::ErrorKind::AlreadyExists => Kind::AlreadyExists,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::OutOfMemory => Kind::Exhausted,
            std::io::ErrorKind::TimedOut => Kind::TimedOut,
            _ => Kind::System,
        };
        Self::new(kind, operation, error.to_string()).with_source(error)
    }

    /// What an outpost answered.
    pub fn failure(operation: impl Into<String>, failure: &Failure) -> Self {
        let kind = match failure.kind {
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::AlreadyExists => Kind::AlreadyExists,
            ErrorKind::Busy => Kind::Busy,
            ErrorKind::Invalid => Kind::Invalid,
            ErrorKind::PermissionDenied => Kind::PermissionDenied,
            ErrorKind::Exhausted => Kind::Exhausted,
            ErrorKind::Stale => Kind::Stale,
            ErrorKind::Protocol => Kind::Protocol,
            ErrorKind::ShuttingDown => Kind::Disconnected,
            ErrorKind::ShellFailed => Kind::Unavailable,
            ErrorKind::Forgotten => Kind::UnknownOutcome,
            ErrorKind::CalledOff | ErrorKind::System => Kind::System,
        };
        Self::new(kind, operation, failure.message.clone())
    }

    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.kind {
            Kind::Busy | Kind::Disconnected | Kind::NotStarted | Kind::Exhausted | Kind::TimedOut => {
                Retry::Safe
            }
            Kind::UnknownOutcome => Retry::Unsafe,
            _ => Retry::Never,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
