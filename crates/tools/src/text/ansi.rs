//! Escape sequences taken out of text (ECMA-48: CSI, OSC, DCS and their kin, 8-bit C1 controls), and what is no UTF-8
//! replaced. What only begins like a sequence loses its beginning and no more: output is anything at all, and a stray
//! `ESC ]` must not eat the rest of it.

/// Parameters of a control sequence, at most.
const LONGEST_CSI: usize = 256;
/// Text of a command to the terminal (a title, a link), at most. It has no line end in it.
const LONGEST_OSC: usize = 4096;
/// Data for a device (a picture), at most.
const LONGEST_STRING: usize = 1 << 20;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// The text of some output, at most `most` characters of it, and up to which byte of the output that is.
pub(crate) fn plain(bytes: &[u8], most: usize) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len().min(most.saturating_mul(4)));
    let mut left = most;
    let mut at = 0;
    while at < bytes.len() {
        let sequence = sequence(&bytes[at..]);
        if sequence > 0 {
            at += sequence;
            continue;
        }
        if left == 0 {
            break;
        }
        // One that is no sequence is text itself, at least in its first byte.
        let run = memchr::memchr2(ESC, 0xc2, &bytes[at + 1..]).map_or(bytes.len(), |found| at + 1 + found);
        let mut taken = at;
        for chunk in bytes[at..run].utf8_chunks() {
            let end = chunk.valid().char_indices().nth(left).map_or(chunk.valid().len(), |(end, _)| end);
            let piece = &chunk.valid()[..end];
            text.push_str(piece);
            taken += end;
            left -= if piece.is_ascii() { end } else { piece.chars().count() };
            if left == 0 {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push('\u{fffd}');
                taken += chunk.invalid().len();
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        at = taken;
    }
    (text, at)
}

/// The length of the escape sequence that `bytes` begin with, 0 if they begin with none.
fn sequence(bytes: &[u8]) -> usize {
    match bytes {
        [ESC, b'[', rest @ ..] => 2 + control(rest),
        [ESC, b']', rest @ ..] => 2 + string(rest, true),
        [ESC, b'P' | b'X' | b'^' | b'_', rest @ ..] => 2 + string(rest, false),
        [ESC, rest @ ..] => 1 + escape(rest),
        // The same in one character.
        [0xc2, 0x9b, rest @ ..] => 2 + control(rest),
        [0xc2, 0x9d, rest @ ..] => 2 + string(rest, true),
        [0xc2, 0x90 | 0x98 | 0x9e | 0x9f, rest @ ..] => 2 + string(rest, false),
        [0xc2, 0x80..=0x9f, ..] => 2,
        _ => 0,
    }
}

/// Parameters, intermediates and the final byte.
fn control(rest: &[u8]) -> usize {
    let rest = &rest[..rest.len().min(LONGEST_CSI)];
    let parameters = rest.iter().take_while(|byte| (0x20..=0x3f).contains(*byte)).count();
    parameters + usize::from(rest.get(parameters).is_some_and(|byte| (0x40..=0x7e).contains(byte)))
}

/// Everything up to the string's end, or nothing if that does not come.
fn string(rest: &[u8], command: bool) -> usize {
    let longest = if command { LONGEST_OSC } else { LONGEST_STRING };
    let rest = &rest[..rest.len().min(longest)];
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [BEL, ..] if command => return at + 1,
            [ESC, b'\\', ..] | [0xc2, 0x9c, ..] => return at + 2,
            // Another sequence begins: this one is not ended any more.
            [ESC, ..] => return 0,
            [b'\n', ..] if command => return 0,
            _ => at += 1,
        }
    }
    0
}

/// Intermediates and the final byte of a short sequence.
fn escape(rest: &[u8]) -> usize {
    let between = rest.iter().take(8).take_while(|byte| (0x20..=0x2f).contains(*byte)).count();
    match rest.get(between) {
        Some(0x30..=0x7e) => between + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> String {
        plain(bytes, usize::MAX).0
    }

    #[test]
    fn sequences_are_taken_out_and_text_stays() {
        for (given, expected) in [
            (&b"\x1b[31mred\x1b[0m"[..], "red"),
            (b"\x1b[38;5;12;48:2::1:2:3mx", "x"),
            (b"\x1b]0;title\x07text", "text"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1bPq#0;2;0;0;0\n#0~~@@\x1b\\after", "after"),
            (b"\x1b(Bplain\x1b=\x1b>", "plain"),
            (b"\x1b[?25l\x1b[2K\rline\x1b[?25h", "\rline"),
            ("\u{9b}1mbold\u{9b}0m\u{9d}t\u{9c}\u{85}".as_bytes(), "bold"),
            (b"a\tb\r\nc\n", "a\tb\r\nc\n"),
            ("Â£ é 日本 🎉".as_bytes(), "Â£ é 日本 🎉"),
            (b"bad \xff\xfe utf", "bad \u{fffd}\u{fffd} utf"),
            (b"cut \xe6\x97", "cut \u{fffd}"),
        ] {
            assert_eq!(all(given), expected, "{given:?}");
        }
    }

    #[test]
    fn an_unfinished_sequence_does_not_eat_what_follows() {
        assert_eq!(all(b"\x1b]0;never ended\nnext line"), "0;never ended\nnext line");
        assert_eq!(all(b"\x1bPnever ended"), "never ended");
        assert_eq!(all(b"\x1b[31"), "");
        assert_eq!(all(b"\x1b[31\ntext"), "\ntext");
        assert_eq!(all(b"\x1b"), "");
        assert_eq!(all(b"\x1b\x1b[0mx"), "x");
        let long = [b"\x1b]".to_vec(), vec![b'x'; 10_000]].concat();
        assert_eq!(all(&long).len(), 10_000);
    }

    #[test]
    fn a_limit_says_how_far_it_came() {
        let given = "ab\u{1b}[1mé\u{1b}[0mcd".as_bytes();
        assert_eq!(plain(given, 2), ("ab".into(), 6), "what shows nothing is passed");
        assert_eq!(plain(given, 3), ("abé".into(), 12));
        assert_eq!(plain(given, 4), ("abéc".into(), 13));
        assert_eq!(plain(given, 99), ("abécd".into(), given.len()));
        assert_eq!(plain(b"\xff\xff", 1), ("\u{fffd}".into(), 1));
    }

    proptest! {
        /// Whatever comes, it ends, leaves no escape, and a limit only cuts.
        #[test]
        fn nothing_is_left_and_nothing_is_made_up(bytes in proptest::collection::vec(
            prop_oneof![Just(0x1bu8), Just(b'['), Just(b']'), Just(0xc2), Just(0x9b), Just(0x07), Just(b'm'), any::<u8>()], 0..200),
            most in 0usize..100)
        {
            let (text, end) = plain(&bytes, usize::MAX);
            prop_assert_eq!(end, bytes.len());
            let control = |c: char| c == char::from(ESC) || (0x80..0xa0).contains(&u32::from(c));
            prop_assert!(!text.chars().any(control));
            let (short, at) = plain(&bytes, most);
            prop_assert_eq!(short.chars().count(), most.min(text.chars().count()));
            prop_assert!(text.starts_with(&short));
            let rest = plain(&bytes[at..], usize::MAX).0;
            prop_assert_eq!(short + &rest, text);
        }

        #[test]
        fn text_without_sequences_is_itself(text in "[^\u{1b}\u{80}-\u{9f}]{0,200}") {
            prop_assert_eq!(all(text.as_bytes()), text);
        }
    }
}
