//! Watch patterns: lines of output that somebody wants to hear of.
//!
//! A pattern is a plain text, looked for in each line. What was found and how far the output was searched are
//! recorded together, so after a crash the search goes on where it was: nothing is told twice, nothing is missed.
//!
//! So that a chatty process can't flood whoever listens, a process is told of at most once in [`WINDOW`]; what comes
//! meanwhile is only counted. After [`STRIKES`] windows in a row in which something was held back the watch is
//! switched off, and its process's end is announced instead. If all processes together match too often, all are
//! silent for a while ([`Breaker`]).

use crate::events::event;
use farshell_api::Millis;
use farshell_api::event::EventKind;
use farshell_store::NewEvent;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// At most one notification of a process in this many milliseconds.
const WINDOW: Millis = 15_000;
/// Windows in a row with something held back, after which the watch is switched off.
const STRIKES: u32 = 3;
/// Of all processes together at most so many notifications in so many milliseconds, or there are none for a while.
const MOST_AT_ONCE: usize = 15;
const AT_ONCE: Millis = 10_000;
const PAUSE: Millis = 30_000;
/// A line is searched to here; what comes after it in the same line is passed over.
const LONGEST_LINE: usize = 64 << 10;
/// Of a line that matched, so much is told.
const TOLD: usize = 2000;

/// What a watch remembers from one match to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchState {
    /// When the window began in which it last told something. By the clock, which is all that a restart leaves.
    window: Option<Millis>,
    /// Matches since then that were not told.
    suppressed: u64,
    strikes: u32,
    /// All matches.
    matches: u64,
    pub(crate) disabled: bool,
}

impl WatchState {
    pub(crate) fn from_json(value: &Value) -> Self {
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        Self {
            window: number("window"),
            suppressed: number("suppressed").unwrap_or_default(),
            strikes: number("strikes").and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            matches: number("matches").unwrap_or_default(),
            disabled: value.get("disabled").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "window": self.window,
            "suppressed": self.suppressed,
            "strikes": self.strikes,
            "matches": self.matches,
            "disabled": self.disabled,
        })
    }

    /// Takes note of a match. Gives the event that tells of it, if one does.
    fn matched(&mut self, found: &Match<'_>, now: Millis, breaker: &Breaker) -> Option<NewEvent> {
        if self.disabled {
            return None;
        }
        self.matches += 1;
        // A clock that was set back must not hold the window open.
        let within = self.window.is_some_and(|begun| begun <= now && now - begun < WINDOW);
        if within {
            self.suppressed += 1;
            return None;
        }
        if self.window.take().is_some() {
            self.strikes = if self.suppressed > 0 { self.strikes + 1 } else { 0 };
            if self.strikes >= STRIKES {
                self.disabled = true;
                return Some(event(EventKind::WatchDisabled, json!({ "matches": self.matches })));
            }
        }
        if !breaker.allows(now) {
            self.suppressed += 1;
            return None;
        }
        self.window = Some(now);
        let suppressed = std::mem::take(&mut self.suppressed);
        let line = String::from_utf8_lossy(found.line);
        Some(event(
            EventKind::WatchMatched,
            json!({
                "pattern": found.pattern,
                "line": crate::result::head(&line, TOLD),
                "offset": found.offset,
                "suppressed": suppressed,
            }),
        ))
    }
}

struct Match<'a> {
    pattern: &'a str,
    line: &'a [u8],
    offset: u64,
}

/// Keeps all processes together within bounds.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<(VecDeque<Millis>, Option<Millis>)>,
}

impl Breaker {
    fn allows(&self, now: Millis) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, open_since) = &mut *state;
        let since = |then: Millis, span: Millis| then <= now && now - then < span;
        if open_since.is_some_and(|then| since(then, PAUSE)) {
            return false;
        }
        *open_since = None;
        told.retain(|then| since(*then, AT_ONCE));
        if told.len() >= MOST_AT_ONCE {
            told.clear();
            *open_since = Some(now);
            return false;
        }
        told.push_back(now);
        true
    }
}

/// Finds the lines in a stream of output, and the patterns in the lines.
#[derive(Debug)]
pub(crate) struct Search {
    patterns: Vec<String>,
    pub(crate) state: WatchState,
    /// The line that has begun, as far as it is searched.
    line: Vec<u8>,
    /// Offset of its first byte.
    begun: u64,
    /// Offset of the next byte.
    next: u64,
}

impl Search {
    pub(crate) fn new(patterns: Vec<String>, state: WatchState, from: u64) -> Self {
        Self { patterns, state, line: Vec::new(), begun: from, next: from }
    }

    /// Searches the next piece of output.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Millis, breaker: &Breaker) -> Vec<NewEvent> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ended) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LONGEST_LINE.saturating_sub(self.line.len()).min(text.len());
            self.line.extend_from_slice(&text[..room]);
            self.next += piece.len() as u64;
            if ended {
                events.extend(self.line_ended(now, breaker));
            }
        }
        events
    }

    /// The log has lost a part: what was begun goes no further.
    pub(crate) fn gap(&mut self, to: u64) {
        self.line.clear();
        self.begun = to;
        self.next = to;
    }

    /// No more will come.
    pub(crate) fn finish(&mut self, now: Millis, breaker: &Breaker) -> Vec<NewEvent> {
        if self.line.is_empty() { Vec::new() } else { self.line_ended(now, breaker).into_iter().collect() }
    }

    /// Everything before this was searched: the beginning of the line that has begun.
    pub(crate) fn searched(&self) -> u64 {
        self.begun
    }

    fn line_ended(&mut self, now: Millis, breaker: &Breaker) -> Option<NewEvent> {
        let text = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let pattern = self.patterns.iter().find(|pattern| contains(text, pattern.as_bytes()));
        let event = pattern.and_then(|pattern| {
            let found = Match { pattern, line: text, offset: self.begun };
            self.state.matched(&found, now, breaker)
        });
        self.line.clear();
        self.begun = self.next;
        event
    }
}

fn contains(line: &[u8], pattern: &[u8]) -> bool {
    memchr::memmem::find(line, pattern).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(patterns: &[&str]) -> Search {
        Search::new(patterns.iter().map(|p| (*p).to_owned()).collect(), WatchState::default(), 0)
    }

    fn told(events: &[NewEvent]) -> Vec<(EventKind, Value)> {
        events.iter().map(|event| (event.kind, event.data.clone())).collect()
    }

    #[test]
    fn lines_are_searched_however_they_are_cut() {
        let text = b"one\ntwo ERROR here\nthree\r\nlast ERR";
        for size in 1..text.len() {
            let (mut search, breaker) = (search(&["ERR", "three"]), Breaker::default());
            let mut events = Vec::new();
            for piece in text.chunks(size) {
                events.extend(search.push(piece, 1000, &breaker));
            }
            let first = json!({"pattern": "ERR", "line": "two ERROR here", "offset": 4, "suppressed": 0});
            assert_eq!(told(&events), [(EventKind::WatchMatched, first)], "{size}");
            assert_eq!(search.searched(), 26, "the last line is not whole yet");
            let events = search.finish(1000 + WINDOW, &breaker);
            let last = json!({"pattern": "ERR", "line": "last ERR", "offset": 26, "suppressed": 1});
            assert_eq!(told(&events), [(EventKind::WatchMatched, last)]);
            assert_eq!(search.searched(), text.len() as u64);
        }
    }

    #[test]
    fn a_search_goes_on_where_it_was() {
        let text = b"x\nhit 1\nhit 2\nhit 3\n";
        let breaker = Breaker::default();
        let mut first = search(&["hit"]);
        let events = first.push(&text[..10], 0, &breaker);
        assert_eq!(events.len(), 1);
        // The keeper dies here, in the middle of the second line.
        let state = WatchState::from_json(&first.state.to_json());
        assert_eq!(state, first.state);
        let from = first.searched();
        let mut second = Search::new(vec!["hit".into()], state, from);
        let events = second.push(&text[usize::try_from(from).unwrap()..], WINDOW, &breaker);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].data["line"], "hit 2");
        assert_eq!(second.state.suppressed, 1);
    }

    #[test]
    fn a_watch_that_matches_too_often_is_switched_off() {
        let (mut search, breaker) = (search(&["x"]), Breaker::default());
        let mut events = Vec::new();
        for second in 0..120 {
            events.extend(search.push(b"x\n", second * 1000, &breaker));
        }
        let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
        use EventKind::{WatchDisabled, WatchMatched};
        assert_eq!(kinds, [WatchMatched, WatchMatched, WatchMatched, WatchDisabled]);
        assert_eq!(events[1].data["suppressed"], 14);
        assert_eq!(events[3].data["matches"], 46);
        assert!(search.state.disabled);
    }

    #[test]
    fn a_quiet_window_forgives() {
        let (mut search, breaker) = (search(&["x"]), Breaker::default());
        let mut events = Vec::new();
        for round in 0..20 {
            // Every other window has something held back.
            events.extend(search.push(
                if round % 2 == 0 { b"x\nx\n" } else { b"x\n" },
                round * WINDOW,
                &breaker,
            ));
        }
        assert_eq!(events.len(), 20);
        assert!(!search.state.disabled);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_silence() {
        let (mut search, breaker) = (search(&["x"]), Breaker::default());
        assert_eq!(search.push(b"x\n", 10_000_000, &breaker).len(), 1);
        assert_eq!(search.push(b"x\n", 5_000, &breaker).len(), 1);
    }

    #[test]
    fn all_together_are_bounded() {
        let breaker = Breaker::default();
        let mut events = 0;
        for process in 0..40 {
            events += search(&["x"]).push(b"x\n", 1000 + process, &breaker).len();
        }
        assert_eq!(events, MOST_AT_ONCE);
        assert_eq!(search(&["x"]).push(b"x\n", 1000 + PAUSE - 1, &breaker).len(), 0);
        assert_eq!(search(&["x"]).push(b"x\n", 1100 + PAUSE, &breaker).len(), 1);
    }

    #[test]
    fn long_lines_are_searched_to_a_bound() {
        let (mut search, breaker) = (search(&["END"]), Breaker::default());
        let mut line = vec![b'a'; LONGEST_LINE - 3];
        line.extend_from_slice(b"END");
        line.extend(vec![b'b'; 1 << 20]);
        line.extend_from_slice(b"END\n");
        let events = search.push(&line, 0, &breaker);
        assert_eq!(events.len(), 1);
        assert!(events[0].data["line"].as_str().unwrap().len() <= TOLD);
        assert!(search.line.capacity() <= 2 * LONGEST_LINE);
        assert_eq!(search.searched(), line.len() as u64);
    }
}
