use super::*;
use proptest::prelude::*;

const HEAD: usize = MOST / 5 * 2;
const TAIL: usize = MOST - HEAD;

fn shown_of(bytes: &[u8], redactor: &Redactor) -> Shown {
    let mut output = Output::default();
    bytes.chunks(70_001).for_each(|piece| output.push(piece));
    output.shown(redactor, None, Rest::Log("p1"))
}

fn shown(bytes: &[u8]) -> Shown {
    shown_of(bytes, &Redactor::default())
}

#[test]
fn what_fits_is_shown_whole() {
    let text = "é".repeat(MOST);
    assert_eq!(shown(text.as_bytes()), Shown { text, omitted: None });
    assert_eq!(shown(b"a\nb\n\n").text, "a\nb");
    assert_eq!(shown(b"").text, "");
}

#[test]
fn a_character_more_and_the_middle_is_left_out() {
    let text = "é".repeat(MOST + 1);
    let Shown { text: cut, omitted } = shown(text.as_bytes());
    let omitted = omitted.unwrap();
    assert_eq!(omitted.bytes, (HEAD as u64 * 2, HEAD as u64 * 2 + 2));
    assert_eq!((omitted.lines, omitted.total_bytes, omitted.total_lines), ((0, 0), (MOST as u64 + 1) * 2, 0));
    assert!(cut.contains("[... 2 of 100002 bytes are left out"), "{}", &cut[39_990..40_400]);
    assert!(cut.contains("session_id=\"p1\", byte_offset=40000)"));
    assert_eq!(cut.matches('é').count(), MOST);
}

#[test]
fn lines_are_kept_whole_and_counted() {
    for count in [10_000u64, 1_000_000] {
        let text: String = (0..count).map(|n| format!("line {n}\n")).collect();
        let Shown { text: cut, omitted } = shown(text.as_bytes());
        let Omitted { bytes, lines, total_lines, total_bytes } = omitted.unwrap();
        assert_eq!((total_lines, total_bytes), (count, text.len() as u64));
        let left_out = &text[usize::try_from(bytes.0).unwrap()..usize::try_from(bytes.1).unwrap()];
        assert!(left_out.starts_with(&format!("line {}\n", lines.0)));
        assert!(left_out.ends_with(&format!("line {}\n", lines.1 - 1)));
        let (head, rest) = cut.split_once("\n\n[...").unwrap();
        assert!(head.ends_with(&format!("line {}", lines.0 - 1)), "{count}");
        assert!(rest.contains(&format!("offset={}, limit={}", lines.0, (lines.1 - lines.0).min(2000))));
        assert!(rest.contains(&format!("...]\n\nline {}\n", lines.1)));
        assert!(rest.ends_with(&format!("line {}", count - 1)));
        assert!(head.chars().count() <= HEAD && head.chars().count() > HEAD - NEAR);
    }
}

#[test]
fn a_secret_is_not_shown_in_part() {
    let secret = "hunter2-hunter2-hunter2-hunter2";
    let redactor = Redactor::new([("PASSWORD", secret)]);
    for shift in 0..secret.len() + 2 {
        // Over the end of the head, and over the beginning of the tail.
        let head = format!("{}{secret}{}", "a".repeat(HEAD - shift), "b".repeat(MOST));
        let tail = format!("{}{secret}{}", "b".repeat(MOST), "a".repeat(TAIL - shift));
        for text in [head, tail] {
            let text = shown_of(text.as_bytes(), &redactor).text;
            assert!(!text.contains("hunter2"), "{shift}: a part of it is there");
        }
    }
    assert_eq!(shown_of(format!("x {secret} y").as_bytes(), &redactor).text, "x «redacted:PASSWORD» y");
}

#[test]
fn a_terminal_is_shown_by_its_lines() {
    let mut output = Output::default();
    let size = Size { rows: 24, cols: 80 };
    (0..100).for_each(|n| output.push(format!("\x1b[32mline {n}\x1b[0m\r\n").as_bytes()));
    output.push(b"10%\r90%\r100%\r\n");
    let shown = output.shown(&Redactor::default(), Some(size), Rest::Log("p1"));
    let expected: String = (0..100).map(|n| format!("line {n}\n")).collect();
    assert_eq!(shown.text, expected + "100%");
    (0..20_000).for_each(|n| output.push(format!("more {n}\r\n").as_bytes()));
    let shown = output.shown(&Redactor::default(), Some(size), Rest::Log("p1"));
    assert!(shown.text.starts_with("line 0\nline 1\n") && shown.text.ends_with("\nmore 19999"));
    assert!(shown.text.contains("process(action=\"log\", session_id=\"p1\""));
}

#[test]
fn ends_of_texts() {
    assert_eq!((last("aéb", 2), last("aéb", 0), last("aéb", 9)), ("éb", "", "aéb"));
    assert_eq!((first("aéb", 2), first("aéb", 0), first("aéb", 9)), ("aé", "", "aéb"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Head, what is left out, and tail are the whole, whatever it is made of.
    #[test]
    fn nothing_is_lost_between_the_parts(piece in "[a-zé日\u{1b}\\[m\n ]{1,60}", times in 1usize..12_000) {
        let whole = piece.repeat(times);
        let bytes = whole.as_bytes();
        let Shown { text, omitted } = shown(bytes);
        match omitted {
            None => {
                let whole = plain(bytes, usize::MAX).0;
                prop_assert_eq!(text, whole.trim_end());
            }
            Some(Omitted { bytes: (from, to), lines, .. }) => {
                let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
                prop_assert!(from < to && to <= bytes.len());
                let (head, tail) = (plain(&bytes[..from], usize::MAX).0, plain(&bytes[to..], usize::MAX).0);
                prop_assert!(text.starts_with(head.trim_end()));
                prop_assert!(text.ends_with(tail.trim_end()));
                prop_assert!(head.chars().count() <= HEAD && tail.chars().count() <= TAIL);
                let count = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count() as u64;
                prop_assert_eq!(lines, (count(&bytes[..from]), count(&bytes[..to])));
            }
        }
    }
}
