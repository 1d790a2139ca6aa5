//! What can go wrong, for programs and for people.

use farshell_api::ApiError;
use rusqlite::ErrorCode;
use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

/// One operation failed, and changed nothing.
#[derive(Debug)]
pub struct Error {
    /// What was being done, a lowercase fragment: "recording a process".
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
    /// The disk is full.
    Full,
    /// Somebody else has the database.
    Locked,
    /// The files may not be read or written by this user, or the file system is read-only.
    Readonly,
    /// The database was written by a newer release.
    Newer,
    /// The database is damaged.
    Corrupt,
    /// The store was closed.
    Closed,
    /// What was asked for makes no sense.
    Invalid,
    NotFound,
    /// The id was used before.
    AlreadyExists,
    /// Any other refusal of the system or the database.
    Io,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { operation: String::new(), kind, message: message.into(), hint: None, source: None }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what was being done, unless that is said already.
    pub(crate) fn during(mut self, operation: impl Into<String>) -> Self {
        if self.operation.is_empty() {
            self.operation = operation.into();
        }
        self
    }

    pub(crate) fn closed() -> Self {
        Self::new(Kind::Closed, "the server's state was closed").with_hint("the server is ending; call again")
    }

    pub(crate) fn is_cannot_open(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<rusqlite::Error>());
        source.and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::CannotOpen)
    }

    /// The kind of the API's [`ApiError`] that this is.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Full => "exhausted",
            Kind::Locked => "busy",
            Kind::Readonly => "permission_denied",
            Kind::Newer | Kind::Closed => "unavailable",
            Kind::Invalid => "invalid",
            Kind::NotFound => "not_found",
            Kind::AlreadyExists => "already_exists",
            Kind::Corrupt | Kind::Io => "system",
        }
    }

    /// Whether doing the same again can help: `safe` or `never`. What fails here has changed nothing.
    #[must_use]
    pub fn retry(&self) -> &'static str {
        match self.kind {
            Kind::Full | Kind::Locked | Kind::Closed | Kind::Io => "safe",
            Kind::Readonly
            | Kind::Newer
            | Kind::Corrupt
            | Kind::Invalid
            | Kind::NotFound
            | Kind::AlreadyExists => "never",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self {
            kind: error.kind_name().into(),
            retry: error.retry().into(),
            operation: error.operation,
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, hint) = match &error {
            rusqlite::Error::SqliteFailure(failure, _) => judged(failure.code),
            // A row that does not hold what this release has put there.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => judged(ErrorCode::DatabaseCorrupt),
            _ => (Kind::Io, None),
        };
        let message = match kind {
            Kind::Full => "no room on the disk".into(),
            _ => error.to_string(),
        };
        Self {
            operation: String::new(),
            kind,
            message,
            hint: hint.map(Into::into),
            source: Some(Box::new(error)),
        }
    }
}

/// What SQLite's refusals mean to us.
fn judged(code: ErrorCode) -> (Kind, Option<&'static str>) {
    match code {
        ErrorCode::DiskFull => (
            Kind::Full,
            Some("make room on the disk; what was recorded before is unharmed, and it goes on by itself"),
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            Kind::Locked,
            Some("another program has the database open: `farshell server status` shows a server that runs"),
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => (
            Kind::Readonly,
            Some("check the owner and the mode of the files, and how the file system is mounted"),
        ),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => (
            Kind::Corrupt,
            Some("stop the server and start it again: a damaged database is moved aside and a new one begun"),
        ),
        ErrorCode::CannotOpen => (
            Kind::Io,
            Some("check that it is a file, and that this user may read and write it and its directory"),
        ),
        ErrorCode::SystemIoFailure => {
            (Kind::Io, Some("check the disk, its quota, and the kernel's log for errors of the disk"))
        }
        _ => (Kind::Io, None),
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let (kind, hint) = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                judged(ErrorCode::DiskFull)
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                judged(ErrorCode::ReadOnly)
            }
            std::io::ErrorKind::NotFound => (Kind::NotFound, None),
            _ => (Kind::Io, None),
        };
        Self {
            operation: String::new(),
            kind,
            message: error.to_string(),
            hint: hint.map(Into::into),
            source: Some(Box::new(error)),
        }
    }
}
