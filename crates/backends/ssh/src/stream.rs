//! A session as a stream of bytes.

use crate::session::Session;
use farshell_engine::backend::ByteStream;

/// The stream of a session whose script has given way to a program. Nothing if it can't be written to.
pub(crate) fn of(session: Session) -> Option<ByteStream> {
    let Session { child, stdin, stdout, rest, .. } = session;
    // The program ends with the stream.
    Some(ByteStream::after(rest, stdout, stdin?, child))
}
