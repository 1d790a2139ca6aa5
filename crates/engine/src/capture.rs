//! Output collected within bounds: the beginning and the end are kept, and the total is always known.

use crate::backend::BoxFuture;
use farshell_protocol::process::{Chunk, Stream};

/// Takes output as it arrives.
pub trait Sink: Send {
    /// A piece of output, in arrival order, without gaps but for those told by [`Sink::gap`].
    fn chunk(&mut self, chunk: Chunk<'_>);

    /// Waits until there is room for more, if there is none. Until then the sender is not told to go on.
    fn room(&mut self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// The log no longer had these bytes (arrival order).
    fn gap(&mut self, from: u64, to: u64) {
        let _ = (from, to);
    }

    /// A command that had to wait for its session begins.
    fn started(&mut self, pid: u32) {
        let _ = pid;
    }
}

/// Throws output away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Sink for Discard {
    fn chunk(&mut self, _chunk: Chunk<'_>) {}
}

/// Keeps both streams apart and together.
#[derive(Clone, Debug)]
pub struct Capture {
    pub stdout: HeadTail,
    pub stderr: HeadTail,
    /// Both, in arrival order.
    pub output: HeadTail,
    /// What the log had lost.
    pub gaps: Vec<(u64, u64)>,
}

impl Capture {
    /// Keeps at most `limit` bytes of each.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let new = || HeadTail::new(limit);
        Self { stdout: new(), stderr: new(), output: new(), gaps: Vec::new() }
    }

    /// Keeps everything: for callers who know how much will come.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    #[must_use]
    pub fn truncated(&self) -> bool {
        self.output.truncated() || self.stdout.truncated() || self.stderr.truncated() || !self.gaps.is_empty()
    }
}

impl Sink for Capture {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        match chunk.stream {
            Stream::Stdout => self.stdout.push(chunk.bytes),
            Stream::Stderr => self.stderr.push(chunk.bytes),
        }
        self.output.push(chunk.bytes);
    }

    fn gap(&mut self, from: u64, to: u64) {
        self.gaps.push((from, to));
    }
}

/// The first two fifths and the last three fifths of a stream of bytes that may be larger than its limit.
#[derive(Clone, Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    /// A ring once it is full.
    tail: std::collections::VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

impl HeadTail {
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let head_limit = if limit == usize::MAX { limit } else { limit / 5 * 2 + limit % 5 * 2 / 5 };
        Self {
            head: Vec::new(),
            tail: std::collections::VecDeque::new(),
            head_limit,
            tail_limit: limit - head_limit,
            total: 0,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_limit.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// All bytes that came.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    #[must_use]
    pub fn truncated(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// Bytes between head and tail that were not kept, as offsets.
    #[must_use]
    pub fn omitted(&self) -> std::ops::Range<u64> {
        self.head.len() as u64..self.total - self.tail.len() as u64
    }

    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    #[must_use]
    pub fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }

    /// What was kept, with nothing where the middle is missing.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        all.extend(&self.tail);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_the_limit_everything_is_kept() {
        let mut kept = HeadTail::new(10);
        kept.push(b"01234");
        kept.push(b"56789");
        assert_eq!(kept.to_bytes(), b"0123456789");
        assert!(!kept.truncated());
        assert!(kept.omitted().is_empty());
    }

    #[test]
    fn beyond_it_two_fifths_of_head_and_three_of_tail() {
        let mut kept = HeadTail::new(10);
        for byte in b'a'..=b'z' {
            kept.push(&[byte]);
        }
        assert_eq!((kept.head(), kept.tail().as_slice()), (&b"abcd"[..], &b"uvwxyz"[..]));
        assert_eq!(kept.omitted(), 4..20);
        let mut at_once = HeadTail::new(10);
        at_once.push(&(b'a'..=b'z').collect::<Vec<_>>());
        assert_eq!(at_once.to_bytes(), kept.to_bytes());
    }
}
