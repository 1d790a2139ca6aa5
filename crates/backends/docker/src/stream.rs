//! One exec as a stream of bytes: the engine marks each piece of output with eight bytes that say which of the two
//! outputs it is from and how long it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

const HEADER: usize = 8;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// How much of what the program complains about is kept.
const COMPLAINT: usize = 4096;

/// The standard output out of both.
///
/// Lengths come from outside and are never believed: nothing is set aside for a piece, its bytes are passed on as
/// they come.
#[derive(Debug)]
pub(crate) struct Output<R> {
    inner: R,
    header: [u8; HEADER],
    have: usize,
    /// Bytes of the piece that are still to come, and whether they are wanted.
    left: usize,
    wanted: bool,
    heard: bool,
    complaint: Vec<u8>,
}

impl<R> Output<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            header: [0; HEADER],
            have: 0,
            left: 0,
            wanted: true,
            heard: false,
            complaint: Vec::new(),
        }
    }

    fn end(&self) -> io::Result<()> {
        if self.left > 0 || self.have > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !self.heard && !self.complaint.is_empty() {
            return Err(io::Error::other(String::from_utf8_lossy(&self.complaint).trim().to_owned()));
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Output<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.left == 0 {
                let mut part = ReadBuf::new(&mut this.header[this.have..]);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                let got = part.filled().len();
                if got == 0 {
                    return Poll::Ready(this.end());
                }
                this.have += got;
                if this.have < HEADER {
                    continue;
                }
                this.have = 0;
                let [kind, 0, 0, 0, length @ ..] = this.header else {
                    return Poll::Ready(Err(garbled()));
                };
                if kind != STDOUT && kind != STDERR {
                    return Poll::Ready(Err(garbled()));
                }
                this.left = u32::from_be_bytes(length) as usize;
                this.wanted = kind == STDOUT;
            } else if this.wanted {
                let most = this.left.min(buf.remaining());
                if most == 0 {
                    return Poll::Ready(Ok(()));
                }
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                let got = part.filled().len();
                if got == 0 {
                    return Poll::Ready(this.end());
                }
                buf.advance(got);
                this.left -= got;
                this.heard = true;
                return Poll::Ready(Ok(()));
            } else {
                let mut scratch = [0; 512];
                let most = this.left.min(scratch.len());
                let mut part = ReadBuf::new(&mut scratch[..most]);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                let got = part.filled();
                if got.is_empty() {
                    return Poll::Ready(this.end());
                }
                this.left -= got.len();
                let room = COMPLAINT - this.complaint.len();
                this.complaint.extend_from_slice(&got[..got.len().min(room)]);
            }
        }
    }
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what the engine sent is not the output of an exec")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn piece(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut all = vec![kind, 0, 0, 0];
        all.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        all.extend_from_slice(bytes);
        all
    }

    async fn read(bytes: Vec<u8>, at_once: usize) -> io::Result<Vec<u8>> {
        // Cut anywhere: headers and pieces come in parts.
        let (mut to, from) = tokio::io::duplex(at_once);
        tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut to, &bytes).await;
        });
        let mut all = Vec::new();
        Output::new(from).read_to_end(&mut all).await.map(|_| all)
    }

    #[tokio::test]
    async fn the_output_is_put_together_again() {
        let sent =
            [piece(1, b"one"), piece(2, b"noise"), piece(1, b""), piece(1, &[7; 5000]), piece(2, b"x")];
        let expected = [b"one".as_slice(), &[7; 5000]].concat();
        for at_once in [1, 3, 8, 11, 4096] {
            assert_eq!(read(sent.concat(), at_once).await.unwrap(), expected, "{at_once} at once");
        }
    }

    #[tokio::test]
    async fn nothing_is_set_aside_for_a_length_that_is_only_claimed() {
        let mut sent = vec![1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        sent.extend_from_slice(b"short");
        assert_eq!(read(sent, 64).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for garbled in [b"HTTP/1.1 500 Error".to_vec(), piece(0, b"in"), piece(9, b"?")] {
            assert_eq!(read(garbled, 64).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(read(vec![1, 0, 0], 64).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_program_that_only_complains_is_heard() {
        let sent = [piece(2, b"no such "), piece(2, b"file\n"), piece(2, &[b'x'; 10_000])];
        let error = read(sent.concat(), 64).await.unwrap_err();
        assert!(error.to_string().starts_with("no such file"), "{error}");
        assert!(error.to_string().len() <= COMPLAINT);
    }
}
