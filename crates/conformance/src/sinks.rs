//! Takers of output that check it as it comes and keep nothing.

use farshell_engine::capture::Sink;
use farshell_protocol::process::{Chunk, Stream};

/// Calls a function with each chunk.
pub(crate) struct Each<F>(pub F);

impl<F: FnMut(Chunk<'_>) + Send> Sink for Each<F> {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        (self.0)(chunk);
    }
}

/// Expects one byte, over and over.
#[derive(Debug)]
pub(crate) struct Uniform {
    pattern: Vec<u8>,
    pub bytes: u64,
    /// Chunks that held something else.
    pub wrong: u64,
    pub chunks: u64,
    pub gaps: u64,
}

impl Uniform {
    pub(crate) fn new(byte: u8) -> Self {
        Self { pattern: vec![byte; 1 << 20], bytes: 0, wrong: 0, chunks: 0, gaps: 0 }
    }
}

impl Sink for Uniform {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
        self.chunks += 1;
        if self.pattern.get(..chunk.bytes.len()) != Some(chunk.bytes) || chunk.stream != Stream::Stdout {
            self.wrong += 1;
        }
    }

    fn gap(&mut self, _from: u64, _to: u64) {
        self.gaps += 1;
    }
}

/// A command that prints that many lines, each of them once and nine digits long. Every `seq` can do that; not every
/// one can fill up with zeros.
pub(crate) fn numbered(lines: u64) -> String {
    format!("seq {} {}", FIRST + 1, FIRST + lines)
}

/// The line of that number, counted from 1.
pub(crate) fn line(number: u64) -> String {
    format!("{}\n", FIRST + number)
}

const FIRST: u64 = 100_000_000;

/// Expects the output of [`numbered`]: each line once, in order, from an offset on.
#[derive(Debug)]
pub(crate) struct Numbered {
    /// Offset of the next byte.
    pub at: u64,
    /// Where the first wrong byte was.
    pub wrong: Option<u64>,
    pub gaps: u64,
}

/// Nine digits and a line end.
pub(crate) const LINE: u64 = 10;

impl Numbered {
    pub(crate) fn from(offset: u64) -> Self {
        Self { at: offset, wrong: None, gaps: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() && self.wrong.is_none() {
            let line = line(self.at / LINE + 1);
            let rest = &line.as_bytes()[usize::try_from(self.at % LINE).unwrap_or(0)..];
            let (now, later) = bytes.split_at(rest.len().min(bytes.len()));
            if now != &rest[..now.len()] {
                self.wrong = Some(self.at);
            }
            self.at += now.len() as u64;
            bytes = later;
        }
    }
}

impl Sink for Numbered {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        if chunk.offset != self.at {
            self.wrong.get_or_insert(self.at);
        }
        self.push(chunk.bytes);
    }

    fn gap(&mut self, _from: u64, _to: u64) {
        self.gaps += 1;
    }
}
