//! A file's bytes as text that can be edited, and back without loss: byte order mark, line ends, and bytes that are
//! no UTF-8 are as they were, wherever nothing was changed.

use std::fmt::Write;

const BOM: &str = "\u{feff}";
/// Characters of nobody (private use, at the very end) that stand for bytes which are no UTF-8.
const STRAY: u32 = 0x10_fe00;

/// Text with what is needed to make its bytes again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Without mark. If all lines end in CR LF, they end in LF here.
    pub(crate) text: String,
    pub(crate) bom: bool,
    pub(crate) crlf: bool,
    /// Some bytes are no UTF-8.
    pub(crate) stray: bool,
}

fn is_stray(c: char) -> bool {
    (STRAY..STRAY + 256).contains(&u32::from(c))
}

impl Content {
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(bytes.len());
        let mut stray = false;
        let mut escape = |text: &mut String, bytes: &[u8]| {
            stray = true;
            text.extend(bytes.iter().filter_map(|byte| char::from_u32(STRAY + u32::from(*byte))));
        };
        for chunk in bytes.utf8_chunks() {
            // A file that has these characters keeps them, byte by byte.
            if chunk.valid().contains(is_stray) {
                for c in chunk.valid().chars() {
                    match is_stray(c) {
                        true => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                        false => text.push(c),
                    }
                }
            } else {
                text.push_str(chunk.valid());
            }
            escape_if_any(&mut escape, &mut text, chunk.invalid());
        }
        let bom = text.starts_with(BOM);
        if bom {
            text.drain(..BOM.len());
        }
        let crlf = all_crlf(&text);
        if crlf {
            text = text.replace("\r\n", "\n");
        }
        Self { text, bom, crlf, stray }
    }

    /// The bytes of another text in the manner of this one.
    pub(crate) fn encode(&self, text: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 3);
        if self.bom && !text.starts_with(BOM) {
            out.extend_from_slice(BOM.as_bytes());
        }
        let mut last = '\0';
        for c in text.chars() {
            match u32::from(c).checked_sub(STRAY).and_then(|byte| u8::try_from(byte).ok()) {
                Some(byte) if self.stray => out.push(byte),
                _ => {
                    if self.crlf && c == '\n' && last != '\r' {
                        out.push(b'\r');
                    }
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            last = c;
        }
        out
    }
}

fn escape_if_any(escape: &mut impl FnMut(&mut String, &[u8]), text: &mut String, bytes: &[u8]) {
    if !bytes.is_empty() {
        escape(text, bytes);
    }
}

/// All lines end in CR LF, and there is one at least.
fn all_crlf(text: &str) -> bool {
    let lines = text.matches('\n').count();
    lines > 0 && text.matches("\r\n").count() == lines && text.matches('\r').count() == lines
}

/// For people: stray bytes as the usual mark.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if is_stray(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a beginning of a file is that of a binary one.
pub(crate) fn is_binary(beginning: &[u8]) -> bool {
    memchr::memchr(0, beginning).is_some()
}

/// What `read_file` shows, line by line: `12|text`.
pub(crate) fn numbered<'l>(first: u64, lines: impl Iterator<Item = &'l str>) -> String {
    let mut text = String::new();
    for (number, line) in (first..).zip(lines) {
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{number}|{line}");
    }
    text
}

/// Whether a text is what `read_file` shows rather than what is in the file.
pub(crate) fn looks_numbered(text: &str) -> bool {
    let mut expected: Option<u64> = None;
    let mut count = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some((number, _)) = line.trim_start().split_once('|') else { return false };
        let Ok(number) = number.parse::<u64>() else { return false };
        if expected.is_some_and(|expected| expected != number) {
            return false;
        }
        expected = Some(number + 1);
        count += 1;
    }
    // A single line with a number and a bar may be a row of a table.
    count >= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn manners_are_seen_and_kept() {
        let dos = Content::decode(b"\xef\xbb\xbfa\r\nb\r\n");
        assert_eq!((dos.text.as_str(), dos.bom, dos.crlf), ("a\nb\n", true, true));
        assert_eq!(dos.encode("a\nc\nd\n"), b"\xef\xbb\xbfa\r\nc\r\nd\r\n");
        assert_eq!(dos.encode("a\r\nc\n"), b"\xef\xbb\xbfa\r\nc\r\n", "one that is given with CR has one");
        let mixed = Content::decode(b"a\r\nb\n");
        assert_eq!((mixed.text.as_str(), mixed.crlf), ("a\r\nb\n", false));
        let latin = Content::decode(b"caf\xe9\n");
        assert!(latin.stray);
        assert_eq!(latin.encode(&latin.text.replace("caf", "CAF")), b"CAF\xe9\n");
        assert_eq!(shown(&latin.text), "caf\u{fffd}\n");
    }

    #[test]
    fn numbered_text_is_told_from_tables() {
        assert!(looks_numbered("1|a\n2|b\n3|\n"));
        assert!(looks_numbered("10|a\n11|b"));
        assert!(looks_numbered("    1|a\n    2|b"));
        for text in ["a\nb", "1|a", "1|a\n3|b", "id|name\n1|x\n2|y", "", "1|a\n2|b\nc"] {
            assert!(!looks_numbered(text), "{text:?}");
        }
        assert_eq!(numbered(9, ["a", "", "b|c"].into_iter()), "9|a\n10|\n11|b|c");
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a'), Just(0xffu8), Just(0xf4), Just(0x8f), Just(0xb8), Just(0x80), any::<u8>()], 0..100)) {
            let content = Content::decode(&bytes);
            prop_assert_eq!(content.encode(&content.text), bytes);
        }

        #[test]
        fn own_output_is_recognised(first in 1u64..100_000, lines in proptest::collection::vec("[a-z|0-9 ]{0,20}", 2..20)) {
            prop_assert!(looks_numbered(&numbered(first, lines.iter().map(String::as_str))));
        }
    }
}
