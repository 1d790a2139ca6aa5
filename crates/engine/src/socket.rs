//! What streams are made of: a socket, or the pipes of a program.
//!
//! The reader of a socket sleeps until there is something to read. tokio's own streams are woken as well whenever the other end reads what was sent: one time too many for each
//! command, on both sides. Here room to write is waited for only when there was none.

use crate::backend::ByteStream;
use crate::error::{Error, Kind, Result};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};

impl ByteStream {
    /// Both directions of a connected socket.
    ///
    /// # Errors
    /// It can't be watched.
    pub fn of_socket(socket: tokio::net::UnixStream) -> Result<Self> {
        let halves = || {
            let socket = socket.into_std()?;
            let write = Writer { socket: socket.try_clone()?, room: None };
            io::Result::Ok((Reader(watch(socket, Interest::READABLE)?), write))
        };
        let (read, write) = halves()
            .map_err(|e| Error::new(Kind::Exhausted, "watching the outpost's socket", e.to_string()))?;
        Ok(Self { read: Box::new(read), write: Box::new(write) })
    }

    /// A stream of which something was read already: that comes first. What is to be kept is dropped with the reader.
    pub fn after(
        rest: Vec<u8>,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        keep: impl Send + Unpin + 'static,
    ) -> Self {
        let read = Kept { read: AsyncReadExt::chain(io::Cursor::new(rest), read), _keep: keep };
        Self { read: Box::new(read), write: Box::new(write) }
    }
}

struct Kept<R, K> {
    read: R,
    _keep: K,
}

impl<R: AsyncRead + Unpin, K: Unpin> AsyncRead for Kept<R, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buf)
    }
}

/// Has the socket watched by tokio.
#[expect(
    deprecated,
    reason = "a socket of the standard library has one descriptor for life, which is what the unsafe successor asks for"
)]
fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(socket, interest)
}

struct Reader(AsyncFd<UnixStream>);

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let wanted = room.len();
            match guard.try_io(|socket| socket.get_ref().read(room)) {
                Ok(Ok(n)) => {
                    // It is empty now, and what comes next is told: no need to ask again.
                    if 0 < n && n < wanted {
                        guard.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_not_yet) => {}
            }
        }
    }
}

struct Writer {
    socket: UnixStream,
    /// Watched for room while there is none, by a descriptor of its own.
    room: Option<AsyncFd<UnixStream>>,
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            match this.socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let room = match &mut this.room {
                        Some(room) => room,
                        room => {
                            let other = this.socket.try_clone()?;
                            room.insert(watch(other, Interest::WRITABLE)?)
                        }
                    };
                    // What was known of it is older than the attempt; if there is room by now, that is told anew.
                    ready!(room.poll_write_ready(cx))?.clear_ready();
                }
                done => {
                    this.room = None;
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}

impl Drop for Writer {
    /// The other end sees it, also while the reader is still there.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn much_goes_both_ways_at_once() {
        let (near, far) = tokio::net::UnixStream::pair().unwrap();
        let [mut near, mut far] = [near, far].map(|end| ByteStream::of_socket(end).unwrap());
        let sent: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut echoed = Vec::new();
        // Nobody could go on if one of the four did not notice that it can.
        let echo = async {
            let mut buffer = vec![0; 70_000];
            while let Ok(n @ 1..) = far.read.read(&mut buffer).await {
                far.write.write_all(&buffer[..n]).await.unwrap();
            }
            far.write.shutdown().await.unwrap();
        };
        let write = async {
            for piece in sent.chunks(33_333) {
                near.write.write_all(piece).await.unwrap();
            }
            near.write.shutdown().await.unwrap();
        };
        let (_, (), ()) = tokio::join!(near.read.read_to_end(&mut echoed), write, echo);
        assert!(echoed == sent);
    }

    #[tokio::test]
    async fn what_was_read_already_comes_first_and_what_is_kept_goes_with_the_reader() {
        let kept = std::sync::Arc::new(());
        let rest = b"read ".to_vec();
        let mut stream =
            ByteStream::after(rest, &b"already"[..], tokio::io::sink(), std::sync::Arc::clone(&kept));
        let mut heard = String::new();
        stream.read.read_to_string(&mut heard).await.unwrap();
        assert_eq!((heard.as_str(), std::sync::Arc::strong_count(&kept)), ("read already", 2));
        drop(stream.read);
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    }

    #[tokio::test]
    async fn the_end_of_either_side_is_seen() {
        let (near, far) = tokio::net::UnixStream::pair().unwrap();
        let [mut near, mut far] = [near, far].map(|end| ByteStream::of_socket(end).unwrap());
        near.write.write_all(b"last words").await.unwrap();
        drop(near.write);
        let mut heard = String::new();
        far.read.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "last words");
        drop(near.read);
        let error = far.write.write_all(&vec![0; 1 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
