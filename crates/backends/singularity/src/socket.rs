//! The socket in the shared directory, into which the instance may put anything.

use crate::layout::SOCKET;
use farshell_engine::{Error, Kind, shared};
use std::io;
use std::path::Path;
use tokio::net::UnixStream;

pub(crate) async fn dial(dir: &Path) -> io::Result<UnixStream> {
    shared::dial(dir, SOCKET).await
}

/// What it means that the socket can't be used, if that is more than that nobody listens.
pub(crate) fn trouble(what: &str, error: io::Error) -> Option<Error> {
    let hint = "remove the environment: what is kept of its files stays";
    if shared::is_hostile(&error) {
        return Some(Error::new(Kind::Unavailable, what, error.to_string()).with_hint(hint));
    }
    (error.kind() == io::ErrorKind::PermissionDenied).then(|| Error::io(what, error).with_hint(hint))
}
