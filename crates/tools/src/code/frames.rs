//! What a script prints to standard error, and what its harness says in between.
//!
//! Every byte is hostile: a script can find the mark in its own memory and write whatever it likes behind it. It gains
//! nothing by that but calls it could make anyway, and what is no message ends the run.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest message. The harness refuses to send a longer one.
pub(super) const LONGEST: usize = 16 << 20;
/// Behind the mark: a digit that says whether a message begins (1) or ends (2) with this piece, and four for its length.
const HEADER: usize = 5;

/// What the harness says.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Message {
    /// The script begins, on this version of Python.
    Ready(String),
    /// An exception that nobody caught, in one line.
    Raised(String),
    Call(Asked),
}

/// A tool that a script calls.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

/// One thing that was found.
#[derive(Debug, PartialEq)]
pub(super) enum Found<'a> {
    Text(&'a [u8]),
    /// With its length.
    Message(Message, usize),
}

/// Tells text and messages apart.
#[derive(Debug)]
pub(super) struct Frames {
    mark: Vec<u8>,
    /// What may be the beginning of a piece; shorter than one.
    held: Vec<u8>,
    /// The pieces of a message so far.
    message: Vec<u8>,
}

impl Frames {
    /// The mark begins with a NUL and has no other one.
    pub(super) fn new(mark: &str) -> Self {
        Self { mark: mark.as_bytes().to_vec(), held: Vec::new(), message: Vec::new() }
    }

    /// Takes more of the stream.
    ///
    /// # Errors
    /// There is something behind a mark that no harness writes. Says what.
    pub(super) fn push(&mut self, bytes: &[u8], mut found: impl FnMut(Found<'_>)) -> Result<(), String> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut rest = held.as_slice();
        loop {
            let Some(at) = memchr::memmem::find(rest, &self.mark) else {
                let kept = rest.len() - self.possible_mark(rest);
                say(&rest[..kept], &mut found);
                rest = &rest[kept..];
                break;
            };
            say(&rest[..at], &mut found);
            rest = &rest[at..];
            let Some(header) = rest.get(self.mark.len()..self.mark.len() + HEADER) else { break };
            let (place, len) = header_of(header).ok_or("a piece of a message without a proper header")?;
            let start = self.mark.len() + HEADER;
            let Some(piece) = rest.get(start..start + len) else { break };
            rest = &rest[start + len..];
            if place & 1 != 0 {
                self.message.clear();
            }
            if self.message.len() + piece.len() > LONGEST {
                return Err(format!("a message of more than {LONGEST} bytes"));
            }
            self.message.extend_from_slice(piece);
            if place & 2 != 0 {
                let whole = std::mem::take(&mut self.message);
                let message =
                    serde_json::from_slice(&whole).map_err(|error| format!("no message: {error}"))?;
                found(Found::Message(message, whole.len()));
            }
        }
        self.held = rest.to_vec();
        Ok(())
    }

    /// What is left at the end is text.
    pub(super) fn finish(&mut self, text: impl FnOnce(&[u8])) {
        text(&std::mem::take(&mut self.held));
    }

    /// How many bytes at the end may be the beginning of a mark.
    fn possible_mark(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.mark.len() - 1);
        match memchr::memrchr(0, &bytes[from..]) {
            Some(at) if self.mark.starts_with(&bytes[from + at..]) => bytes.len() - from - at,
            _ => 0,
        }
    }
}

fn say(text: &[u8], found: &mut impl FnMut(Found<'_>)) {
    if !text.is_empty() {
        found(Found::Text(text));
    }
}

fn header_of(header: &[u8]) -> Option<(u8, usize)> {
    let (place, len) = std::str::from_utf8(header).ok()?.split_at_checked(1)?;
    let place = place.parse().ok().filter(|place| *place < 4)?;
    // A sign would be a number, too.
    let hex = len.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| usize::from_str_radix(len, 16).ok()).flatten().map(|len| (place, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const MARK: &str = "\0farshell:0123";

    fn pieces(message: &Value, piece: usize) -> Vec<u8> {
        let text = message.to_string().into_bytes();
        let mut out = Vec::new();
        for (i, part) in text.chunks(piece).enumerate() {
            let place = u8::from(i == 0) + 2 * u8::from((i + 1) * piece >= text.len());
            out.extend_from_slice(format!("{MARK}{place}{:04x}", part.len()).as_bytes());
            out.extend_from_slice(part);
        }
        out
    }

    /// Text and messages of a stream that comes in parts of this size.
    fn taken(stream: &[u8], part: usize) -> Result<(Vec<u8>, Vec<Message>), String> {
        let mut frames = Frames::new(MARK);
        let (mut text, mut messages) = (Vec::new(), Vec::new());
        let mut found = |found: Found<'_>| match found {
            Found::Text(bytes) => text.extend_from_slice(bytes),
            Found::Message(message, _) => messages.push(message),
        };
        for part in stream.chunks(part) {
            frames.push(part, &mut found)?;
        }
        frames.finish(|rest| text.extend_from_slice(rest));
        Ok((text, messages))
    }

    #[test]
    fn messages_stand_between_what_is_printed() {
        let ready = Message::Ready("3.11".into());
        let call = json!({"call": {"id": 7, "tool": "terminal", "arguments": {"command": "é".repeat(99)}}});
        let mut stream = b"before\0farshell:\n".to_vec();
        stream.extend(pieces(&json!({"ready": "3.11"}), 4000));
        stream.extend(b"between\0");
        stream.extend(pieces(&call, 10));
        stream.extend(b"\0farshell:01");
        for part in 1..200 {
            let (text, messages) = taken(&stream, part).unwrap();
            assert_eq!(text, b"before\0farshell:\nbetween\0\0farshell:01", "{part}");
            assert_eq!(messages.len(), 2);
            assert_eq!(messages[0], ready);
            assert!(
                matches!(&messages[1], Message::Call(asked) if asked.id == 7 && asked.tool == "terminal")
            );
        }
    }

    #[test]
    fn a_message_that_was_begun_and_not_ended_is_forgotten() {
        let mut stream = pieces(&json!({"raised": "x".repeat(100)}), 50);
        // Whole pieces: each is written at once.
        stream.truncate(MARK.len() + HEADER + 50);
        stream.extend(pieces(&json!({"raised": "y"}), 50));
        assert_eq!(taken(&stream, 7).unwrap().1, [Message::Raised("y".into())]);
    }

    #[test]
    fn what_no_harness_writes_is_a_fault() {
        for bad in ["4000a", "x0001", "3+001", "3-001", "3 001", "3zzzz", "30002{}", "30004null", "30003[1]"]
        {
            let stream = format!("{MARK}{bad}          ");
            assert!(taken(stream.as_bytes(), 100).is_err(), "{bad}");
        }
        let mut endless = Vec::new();
        let piece = format!("{MARK}0ffff{}", "x".repeat(0xffff));
        let mut frames = Frames::new(MARK);
        endless.extend_from_slice(piece.as_bytes());
        let fault = (0..1000).find_map(|_| frames.push(&endless, |_| {}).err()).unwrap();
        assert!(fault.contains("more than"), "{fault}");
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_a_panic_and_text_stays_text(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    Just(MARK.as_bytes().to_vec()),
                    Just(MARK.as_bytes()[..5].to_vec()),
                    "[0-4][0-9a-f]{4}".prop_map(String::into_bytes),
                ],
                0..20,
            ),
            part in 1usize..50,
        ) {
            let stream = parts.concat();
            let whole = taken(&stream, usize::MAX);
            let cut = taken(&stream, part);
            prop_assert_eq!(whole.is_ok(), cut.is_ok());
            if let (Ok(whole), Ok(cut)) = (whole, cut) {
                prop_assert_eq!(whole, cut);
            }
            if memchr::memmem::find(&stream, MARK.as_bytes()).is_none() {
                prop_assert_eq!(taken(&stream, part).unwrap().0, stream);
            }
        }
    }
}
