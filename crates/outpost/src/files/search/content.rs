//! One file: which lines match.

use super::super::failure::{quoted, reason};
use super::super::read::open_seen;
use super::super::stat::{mtime_ns, size};
use super::MAX_RESULT_BYTES;
use super::pool::Turn;
use farshell_protocol::file::{Found, Line, MAX_LINE, Want};
use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde_bytes::ByteBuf;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// For each helper: the longest line, or (in a multi-line search, which can't go through a window) the
/// biggest file that is searched.
const HEAP_BYTES: usize = 64 << 20;
/// What a line takes besides its text: in memory, and (less) in a message.
pub(super) const LINE_BYTES: usize = 64;

/// How to search a file.
pub(super) struct Content {
    matcher: RegexMatcher,
    want: Want,
    searcher: SearcherBuilder,
    /// One more than can be given, so that it is known whether there were more.
    max_lines: u64,
    /// Whether to say that a file is binary: who names one file wants to know, who searches a tree does not.
    tell_binary: bool,
}

/// What each thread has of its own: buffers and caches, which would otherwise be fought over.
pub(super) struct Tools {
    searcher: Searcher,
    matcher: RegexMatcher,
}

/// What was found in a file.
#[derive(Debug)]
pub(super) enum Finding {
    Lines(Vec<Line>),
    File(Found),
    Count(u64),
}

impl Content {
    pub(super) fn new(matcher: RegexMatcher, want: Want, context: u32, multiline: bool, limit: u64) -> Self {
        let mut searcher = SearcherBuilder::new();
        searcher
            .line_number(want == Want::Lines)
            .multi_line(multiline)
            .before_context(context as usize)
            .after_context(context as usize)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(HEAP_BYTES))
            .line_terminator(LineTerminator::crlf());
        let max_lines = if limit == 0 { u64::MAX } else { limit.saturating_add(1) };
        Self { matcher, want, searcher, max_lines, tell_binary: false }
    }

    pub(super) fn tell_binary(&mut self) {
        self.tell_binary = true;
    }

    pub(super) fn tools(&self) -> Tools {
        Tools { searcher: self.searcher.build(), matcher: self.matcher.clone() }
    }

    /// Searches a file. An error can come with what was found before it.
    pub(super) fn search(
        &self,
        tools: &mut Tools,
        path: &Path,
        turn: &mut Turn<'_>,
    ) -> (Option<Finding>, Option<String>) {
        let (file, stat) = match open_seen(path) {
            Ok(opened) => opened,
            Err(failure) => return (None, Some(failure.message)),
        };
        let reader = Stoppable { file, turn: turn.clone() };
        let mut sink = Matches { content: self, turn, lines: Vec::new(), matched: 0, binary: None };
        let result = tools.searcher.search_reader(&tools.matcher, reader, &mut sink);
        let Matches { lines, matched, binary, .. } = sink;
        let error = match result {
            Err(error) if !turn.stopped() => {
                Some(format!("cannot search {}: {}", quoted(path), reason(&error)))
            }
            _ => binary.filter(|_| self.tell_binary).map(|offset| {
                format!("{} is binary (byte {offset} is NUL) and was not searched as text", quoted(path))
            }),
        };
        let finding = (matched > 0).then(|| match self.want {
            Want::Lines => Finding::Lines(lines),
            Want::Counts => Finding::Count(matched),
            Want::Files => Finding::File(Found {
                path: ByteBuf::from(path.as_os_str().as_bytes()),
                size: size(&stat),
                mtime_ns: mtime_ns(&stat),
            }),
        });
        (finding, error)
    }
}

/// A file that ends early when the search does.
struct Stoppable<'a> {
    file: File,
    turn: Turn<'a>,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.turn.stopped() {
            return Err(io::Error::other("the search was stopped"));
        }
        self.file.read(buffer)
    }
}

/// Collects the matches of one file.
struct Matches<'a, 'b> {
    content: &'a Content,
    turn: &'a mut Turn<'b>,
    lines: Vec<Line>,
    matched: u64,
    /// Where a NUL byte ended the search.
    binary: Option<u64>,
}

impl Matches<'_, '_> {
    /// Whether to go on.
    fn keep(&mut self, number: u64, text: &[u8], matched: bool) -> bool {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let cut = text.len() > MAX_LINE;
        let text = &text[..text.len().min(MAX_LINE)];
        self.lines.push(Line { number, text: ByteBuf::from(text), matched, cut });
        self.turn.hold(text.len() + LINE_BYTES)
    }
}

impl Sink for Matches<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.turn.stopped() {
            return Ok(false);
        }
        match self.content.want {
            Want::Files => {
                self.matched = 1;
                return Ok(false);
            }
            Want::Counts => {
                self.matched += found.lines().count() as u64;
                return Ok(true);
            }
            Want::Lines => {}
        }
        let first = found.line_number().unwrap_or(0);
        for (number, text) in (first..).zip(found.lines()) {
            self.matched += 1;
            if !self.keep(number, text, true) || self.matched >= self.content.max_lines {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary = Some(offset);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        Ok(self.content.want != Want::Lines || self.keep(number, context.bytes(), false))
    }
}

const _: () = assert!(MAX_LINE + LINE_BYTES < MAX_RESULT_BYTES);
