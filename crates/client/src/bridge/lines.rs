//! How a line is read, and what waits to be written. Both can be interrupted without harm.

use std::io;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

const BUFFER: usize = 64 << 10;

/// Lines that come in.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    /// The beginning of a line.
    begun: Vec<u8>,
    most: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, most: usize) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER, reader), begun: Vec::new(), most }
    }

    /// The next line that has something on it, with its end. Nothing at the end of all, where an unfinished line is
    /// not a message.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let len = end.unwrap_or(read.len());
            if self.begun.len() + len > self.most {
                let message = format!("a line has more than {} bytes", self.most);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            self.begun.extend_from_slice(&read[..len]);
            self.reader.consume(len);
            if end.is_some() {
                let line = std::mem::take(&mut self.begun);
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Ok(Some(line));
                }
            }
        }
    }
}

/// Bytes that go out.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            self.bytes.push(b'\n');
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes all of it back. Lines of which nothing was written are given back.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        let Self { bytes, written } = std::mem::take(self);
        if written > 0 {
            return Vec::new();
        }
        bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    /// Writes some of it.
    pub(super) async fn write(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let written = to.write(&self.bytes[self.written..]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += written;
        if self.written == self.bytes.len() {
            *self = Self::default();
            to.flush().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_or_not_at_all() {
        let mut lines = Lines::new(&b"one\n\n  \r\ntwo\r\nunfinished"[..], 20);
        assert_eq!(lines.next().await.unwrap().unwrap(), b"one\n");
        assert_eq!(lines.next().await.unwrap().unwrap(), b"two\r\n");
        assert_eq!(lines.next().await.unwrap(), None);
        let mut lines = Lines::new(&b"123456789\n"[..], 5);
        assert_eq!(lines.next().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
