//! From errors of the system to failures for a reader.

use farshell_protocol::{ErrorKind, Failure};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `cannot {what} "{path}": {why}`.
pub(super) fn failed(what: &str, path: &Path, error: impl Into<io::Error>) -> Failure {
    let error = error.into();
    let kind = error.raw_os_error().map_or(ErrorKind::System, kind);
    let message = format!("cannot {what} {}: {}", quoted(path), reason(&error));
    Failure { kind, message, errno: error.raw_os_error() }
}

/// A request that makes no sense for this path.
pub(super) fn invalid(what: &str, path: &Path, why: &str) -> Failure {
    Failure::new(ErrorKind::Invalid, format!("cannot {what} {}: {why}", quoted(path)))
}

/// A path as text: readable, on one line, and impossible to mistake for the words around it.
pub(super) fn quoted(path: &Path) -> String {
    format!("{:?}", String::from_utf8_lossy(path.as_os_str().as_bytes()))
}

/// The system's words as a fragment, without the number that [`Failure::errno`] carries.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::from("unknown error"),
    }
}

fn kind(errno: i32) -> ErrorKind {
    match Errno::from_raw_os_error(errno) {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::AlreadyExists,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::PermissionDenied,
        Errno::NOSPC | Errno::DQUOT | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::FBIG => {
            ErrorKind::Exhausted
        }
        Errno::INVAL | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::NOTEMPTY => {
            ErrorKind::Invalid
        }
        _ => ErrorKind::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_failure_says_what_where_and_why() {
        let path = Path::new(OsStr::from_bytes(b"/tmp/\xff\nfake: ok"));
        assert_eq!(
            failed("read", path, Errno::NOENT),
            Failure {
                kind: ErrorKind::NotFound,
                message: "cannot read \"/tmp/\u{fffd}\\nfake: ok\": no such file or directory".into(),
                errno: Some(2),
            }
        );
        assert_eq!(failed("write", path, Errno::NOSPC).kind, ErrorKind::Exhausted);
        assert_eq!(failed("write", path, Errno::DQUOT).kind, ErrorKind::Exhausted);
        assert_eq!(failed("write", path, Errno::ROFS).kind, ErrorKind::PermissionDenied);
        assert_eq!(failed("write", path, Errno::IO).kind, ErrorKind::System);
    }
}
