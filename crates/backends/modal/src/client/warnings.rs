//! What Modal wants people to be told: a trailer of its answers. Each text is told once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tonic::metadata::MetadataMap;

const NAME: &str = "x-modal-warning";
/// Texts that are told in the life of a client, and how long each may be.
const MOST: usize = 100;
const LONGEST: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    known: BTreeSet<String>,
    new: Vec<String>,
}

impl Warnings {
    pub(crate) fn hear(&self, metadata: &MetadataMap) {
        for value in metadata.get_all(NAME) {
            let text = decode(value.as_bytes());
            let text: String =
                text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
            let text = text.trim().to_owned();
            let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !text.is_empty() && book.known.len() < MOST && book.known.insert(text.clone()) {
                book.new.push(text);
            }
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).new)
    }
}

/// `%20` is a space. What is not written so stays as it is.
fn decode(bytes: &[u8]) -> String {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                plain.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                rest = &after[2..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_can_do_no_harm() {
        let warnings = Warnings::default();
        let hear = |texts: &[&str]| {
            let mut metadata = MetadataMap::new();
            for text in texts {
                metadata.append(NAME, text.parse().unwrap());
            }
            warnings.hear(&metadata);
            warnings.take()
        };
        assert_eq!(hear(&["old%20client%3A 100%", "b%1B[31m", ""]), ["old client: 100%", "b [31m"]);
        assert_eq!(hear(&["old%20client%3A 100%", "c%C3%A9%ff%f"]), ["c\u{e9}\u{fffd}%f"]);
        assert_eq!(hear(&[&"x".repeat(2000)])[0].len(), LONGEST);
        let many: Vec<String> = (0..500).map(|n| n.to_string()).collect();
        let all = hear(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all.len(), MOST - 4);
    }
}
