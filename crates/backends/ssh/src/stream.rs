//! A session as a stream of bytes.

use crate::session::Session;
use farshell_engine::backend::ByteStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStdout};

/// What comes from a session's program: first what was read together with its last answer.
#[derive(Debug)]
struct Output {
    rest: Vec<u8>,
    stdout: ChildStdout,
    /// Ends with the stream.
    _child: Child,
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            return Pin::new(&mut this.stdout).poll_read(cx, buf);
        }
        let n = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest[..n]);
        this.rest.drain(..n);
        Poll::Ready(Ok(()))
    }
}

/// The stream of a session whose script has given way to a program. Nothing if it can't be written to.
pub(crate) fn of(session: Session) -> Option<ByteStream> {
    let Session { child, stdin, stdout, rest, .. } = session;
    let read = Output { rest, stdout, _child: child };
    Some(ByteStream { read: Box::new(read), write: Box::new(stdin?) })
}
