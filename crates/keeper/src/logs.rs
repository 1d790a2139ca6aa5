//! Logs, by offset and by line.

use crate::Inner;
use crate::processes::{Reached, gone};
use crate::request::invalid;
use farshell_api::Text;
use farshell_api::process::{LogPiece, LogQuery, View};
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::process::{self, Stream};
use std::collections::VecDeque;

/// The most that is given and read at once.
const PIECE: u32 = 1 << 20;
/// Lines that are given if nothing is said, and at most.
const SOME_LINES: u32 = 200;
const MOST_LINES: u32 = 100_000;

fn view(view: View) -> process::View {
    match view {
        View::Output => process::View::Arrival,
        View::Stdout => process::View::Only(Stream::Stdout),
        View::Stderr => process::View::Only(Stream::Stderr),
    }
}

impl Inner {
    pub(crate) async fn log(&self, id: &str, query: LogQuery) -> Result<LogPiece> {
        if (query.line.is_some() || query.lines.is_some()) && (query.offset.is_some() || query.len.is_some())
        {
            return Err(invalid("line", "a log is read by line or by offset, not by both"));
        }
        let known = self.known(id).await?;
        let reached = self.reach(&known).await.ok_or_else(|| match self.away(&known) {
            away if away.kind == Kind::Disconnected => away,
            _ => lost(id),
        })?;
        let piece = match query.line.is_some() || query.lines.is_some() {
            true => reached.by_line(&query).await,
            false => reached.by_offset(&query).await,
        };
        piece.map_err(|error| match error.kind {
            Kind::NotFound => lost(id),
            _ => error,
        })
    }
}

fn lost(id: &str) -> Error {
    gone(id, "its log is no longer kept: its environment has gone, or newer logs have taken its place")
}

impl Reached {
    async fn read(&self, of: View, offset: u64, len: u32) -> Result<process::LogPiece> {
        self.live.outpost.read_log(self.id.clone(), view(of), offset, len).await
    }

    async fn by_offset(&self, query: &LogQuery) -> Result<LogPiece> {
        let len = query.len.unwrap_or(PIECE).min(PIECE);
        let offset = match query.offset.unwrap_or(0) {
            from_start @ 0.. => from_start.unsigned_abs(),
            from_end => {
                let total = self.read(query.view, u64::MAX, 0).await?.total;
                total.saturating_sub(from_end.unsigned_abs())
            }
        };
        let piece = self.read(query.view, offset, len).await?;
        // Beyond the end there is nothing, and what comes will begin at the end.
        let offset = piece.offset.min(piece.total);
        Ok(LogPiece {
            view: query.view,
            offset,
            next: offset + piece.bytes.len() as u64,
            text: Text(piece.bytes),
            total: piece.total,
            eof: piece.eof,
            line: None,
            total_lines: None,
        })
    }

    /// Lines are counted from the beginning, so all of the log is read, piece by piece.
    async fn by_line(&self, query: &LogQuery) -> Result<LogPiece> {
        let want = query.lines.unwrap_or(SOME_LINES).clamp(1, MOST_LINES);
        let mut lines = Lines::new(query.line.unwrap_or(0), want);
        let mut offset = 0;
        let (total, ended) = loop {
            let piece = self.read(query.view, offset, PIECE).await?;
            if piece.bytes.is_empty() {
                break (piece.total, piece.eof);
            }
            lines.push(piece.offset, &piece.bytes);
            offset = piece.offset + piece.bytes.len() as u64;
            if piece.eof {
                break (piece.total, true);
            }
        };
        let found = lines.finish();
        let text = match found.text {
            Some(text) => text,
            // Where it begins is only known now.
            None => self.lines_from(query.view, found.offset, want).await?,
        };
        let next = found.offset + text.len() as u64;
        Ok(LogPiece {
            view: query.view,
            offset: found.offset,
            next,
            text: Text(text),
            total,
            eof: ended && next >= total,
            line: Some(found.line),
            total_lines: Some(found.whole),
        })
    }

    async fn lines_from(&self, of: View, offset: u64, most: u32) -> Result<Vec<u8>> {
        let piece = self.read(of, offset, PIECE).await?;
        let mut lines = 0;
        let end = piece.bytes.iter().position(|byte| {
            lines += u32::from(*byte == b'\n');
            lines == most
        });
        let end = end.map_or(piece.bytes.len(), |at| at + 1);
        Ok(piece.bytes[..end].to_vec())
    }
}

/// Counts lines, and keeps those that are wanted.
struct Lines {
    wanted: Wanted,
    most: u32,
    /// Whole lines so far.
    whole: u64,
    /// Where the line that has begun began; nothing of it may have come yet.
    begun: u64,
    /// Offset after the last byte.
    end: u64,
}

enum Wanted {
    /// From this line on: where that is, and what has come of it.
    From { line: u64, offset: Option<u64>, text: Vec<u8>, lines: u32 },
    /// The last so many: where each begins.
    Last { count: usize, begins: VecDeque<u64> },
}

struct Found {
    line: u64,
    offset: u64,
    /// Absent if it has to be read again from `offset`.
    text: Option<Vec<u8>>,
    whole: u64,
}

impl Lines {
    fn new(line: i64, most: u32) -> Self {
        let wanted = match line {
            from @ 0.. => {
                Wanted::From { line: from.unsigned_abs(), offset: None, text: Vec::new(), lines: 0 }
            }
            // More than can be given need not be remembered one by one.
            last => Wanted::Last {
                count: usize::try_from(last.unsigned_abs()).unwrap_or(usize::MAX).min(MOST_LINES as usize),
                begins: VecDeque::new(),
            },
        };
        Self { wanted, most, whole: 0, begun: 0, end: 0 }
    }

    fn push(&mut self, offset: u64, bytes: &[u8]) {
        if offset != self.end {
            // The log has lost a part; the next line begins where it goes on.
            self.begun = offset;
        }
        let mut at = offset;
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let fresh = at == self.begun;
            match &mut self.wanted {
                Wanted::From { line, offset, text, lines } if self.whole >= *line && *lines < self.most => {
                    let begin = *offset.get_or_insert(at);
                    // Only what follows without a hole can be given as one piece.
                    if begin + text.len() as u64 == at && text.len() + piece.len() <= PIECE as usize {
                        text.extend_from_slice(piece);
                        *lines += u32::from(piece.ends_with(b"\n"));
                    } else {
                        *lines = self.most;
                    }
                }
                Wanted::From { .. } => {}
                Wanted::Last { count, begins } if fresh => {
                    begins.push_back(at);
                    if begins.len() > *count {
                        begins.pop_front();
                    }
                }
                Wanted::Last { .. } => {}
            }
            at += piece.len() as u64;
            if piece.ends_with(b"\n") {
                self.whole += 1;
                self.begun = at;
            }
        }
        self.end = at;
    }

    fn finish(self) -> Found {
        let partial = u64::from(self.begun < self.end);
        match self.wanted {
            Wanted::From { line, offset, text, .. } => Found {
                line: line.min(self.whole + partial),
                offset: offset.unwrap_or(self.end),
                text: Some(text),
                whole: self.whole,
            },
            Wanted::Last { begins, .. } => Found {
                line: (self.whole + partial).saturating_sub(begins.len() as u64),
                offset: begins.front().copied().unwrap_or(self.end),
                text: if begins.is_empty() { Some(Vec::new()) } else { None },
                whole: self.whole,
            },
        }
    }
}

/// A part of a log that is read by others, too.
pub(crate) async fn read_from(reached: &Reached, from: u64, most: u64) -> Result<(u64, Vec<u8>)> {
    let mut offset = from;
    let mut start = None;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < most {
        let piece = reached.read(View::Output, offset, PIECE).await?;
        if piece.bytes.is_empty() {
            break;
        }
        if start.is_some() && piece.offset != offset {
            // A hole: what came before it is of no use for what comes after.
            bytes.clear();
            start = None;
        }
        start.get_or_insert(piece.offset);
        offset = piece.offset + piece.bytes.len() as u64;
        bytes.extend(piece.bytes);
    }
    Ok((offset, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], line: i64, most: u32, size: usize) -> (u64, u64, Option<String>, u64) {
        let mut lines = Lines::new(line, most);
        let mut at = 0;
        for piece in text.chunks(size) {
            lines.push(at, piece);
            at += piece.len() as u64;
        }
        let found = lines.finish();
        let text = found.text.map(|text| String::from_utf8(text).unwrap());
        (found.line, found.offset, text, found.whole)
    }

    #[test]
    fn lines_are_counted_however_they_are_cut() {
        let text = b"a\nbb\n\nccc\nd";
        for size in 1..=text.len() {
            let some = |text: &str| Some(text.to_owned());
            assert_eq!(found(text, 0, 2, size), (0, 0, some("a\nbb\n"), 4), "{size}");
            assert_eq!(found(text, 2, 10, size), (2, 5, some("\nccc\nd"), 4));
            assert_eq!(found(text, 4, 1, size), (4, 10, some("d"), 4));
            assert_eq!(found(text, 9, 1, size), (5, 11, some(""), 4), "beyond the end");
            assert_eq!(found(text, -1, 1, size), (4, 10, None, 4));
            assert_eq!(found(text, -2, 1, size), (3, 6, None, 4));
            assert_eq!(found(text, -99, 1, size), (0, 0, None, 4));
        }
        assert_eq!(found(b"", -5, 1, 1), (0, 0, Some(String::new()), 0));
        assert_eq!(found(b"a\n", -1, 1, 1), (0, 0, None, 1));
        assert_eq!(found(b"a\n", 1, 1, 1), (1, 2, Some(String::new()), 1));
    }

    #[test]
    fn a_hole_in_the_log_begins_a_line() {
        let mut lines = Lines::new(-2, 2);
        lines.push(0, b"a\nb");
        lines.push(100, b"c\nd\n");
        let found = lines.finish();
        assert_eq!((found.line, found.offset, found.whole), (1, 100, 3));
    }
}
