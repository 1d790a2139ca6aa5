//! Lines of text: they survive what terminals do, and what they don't survive is an error.

use farshell_protocol::text::{Decoder, Encoder, MAX_LINE, MAX_NOISE, PAYLOAD, Side, TextError};
use proptest::collection::vec;
use proptest::prelude::*;

fn lines(side: Side, pieces: &[Vec<u8>]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(side), Vec::new());
    for piece in pieces {
        encoder.encode(&mut out, piece);
    }
    out
}

/// What the engine reads, in pieces of these sizes, again and again.
fn read(mut input: &[u8], sizes: &[usize]) -> (Vec<u8>, Result<(), TextError>) {
    let (mut decoder, mut out) = (Decoder::new(Side::Engine), Vec::new());
    for &size in sizes.iter().cycle() {
        if input.is_empty() {
            break;
        }
        let (piece, rest) = input.split_at(size.min(input.len()));
        input = rest;
        let result = decoder.push(&mut out, piece);
        assert!(decoder.pending() <= MAX_LINE);
        if result.is_err() {
            assert_eq!(decoder.push(&mut out, b"#Fe\n"), result);
            return (out, result);
        }
    }
    assert_eq!(decoder.pending(), 0);
    (out, Ok(()))
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(prop_oneof![vec(any::<u8>(), 0..30), vec(any::<u8>(), PAYLOAD - 2..3 * PAYLOAD)], 0..5)
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..10usize, 1..9000usize], 1..10)
}

/// Printable text, line ends, escapes and half markers.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "Last login: Mon\r\n",
        "\x1b[?2004h",
        "root@host:~# ",
        "exec farshell-outpost connect\r\n",
        "#",
        "#F",
        "#Fx\n",
        "\n",
        "\r",
        "\u{fffd}",
        "long ",
    ]);
    vec(piece, 0..30).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn survives_noise_echo_line_ends_and_any_cut(
        payloads in payloads(), noise in noise(), typed in payloads(),
        end in prop::sample::select(vec!["\n", "\r\n", "\r", "\r\r\n"]), sizes in sizes(),
    ) {
        let mut payloads = payloads;
        payloads.push(b"last".to_vec());
        let mut input = noise;
        let mut echo = lines(Side::Engine, &typed);
        let ours = lines(Side::Outpost, &payloads);
        prop_assert!(ours.iter().chain(&echo).all(|&byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
        prop_assert!(ours.split(|&byte| byte == b'\n').all(|line| line.len() <= MAX_LINE && line.len() < 4095));
        echo.retain(|&byte| byte != b'\r');
        // An echoed line before each of the peer's.
        let mut echo = echo.split(|&byte| byte == b'\n');
        for line in ours.split_inclusive(|&byte| byte == b'\n') {
            input.extend_from_slice(line);
            if let Some(echo) = echo.next() {
                input.extend_from_slice(echo);
                input.push(b'\n');
            }
        }
        let text: Vec<u8> = input.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(end.as_bytes());
        let (out, result) = read(&text, &sizes);
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(out, payloads.concat());
    }

    #[test]
    fn any_damage_is_noticed(
        payloads in payloads(), at in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..4u8, sizes in sizes(),
    ) {
        // A last line that stays as it is shows that nothing before it was lost without notice.
        let mut payloads = payloads;
        payloads.extend([b"last".to_vec(), b"last".to_vec()]);
        let mut text = lines(Side::Outpost, &payloads);
        let whole = payloads.concat();
        let at = at.index(text.len() - 26);
        match how {
            0 => text[at] = byte,
            1 => { text.remove(at); }
            2 => text.insert(at, byte),
            _ => text.truncate(at),
        }
        text.extend_from_slice(b"\n");
        let (out, result) = read(&text, &sizes);
        prop_assert_eq!(&out[..], &whole[..out.len()]);
        if how < 3 {
            prop_assert_eq!(result.is_ok(), out == whole);
        }
    }

    #[test]
    fn lost_repeated_and_moved_lines_are_noticed(count in 2..6usize, a in 0..6usize, b in 0..6usize, how in 0..3u8) {
        let (a, b) = (a % count, b % count);
        let text = lines(Side::Outpost, &vec![b"x".to_vec(); count]);
        let good: Vec<&[u8]> = text[1..].split_inclusive(|&byte| byte == b'\n').collect();
        let mut bad = good.clone();
        match how {
            0 => { bad.remove(a); }
            1 => bad.insert(b, good[a]),
            _ => bad.swap(a, b),
        }
        let (out, result) = read(&bad.concat(), &[7]);
        let same = bad.iter().zip(&good).take_while(|(bad, good)| bad == good).count();
        prop_assert_eq!(out.len(), same);
        if same == bad.len() {
            // The last one was lost: only the end of the stream can tell.
            prop_assert_eq!(result, Ok(()));
        } else {
            let found = good.iter().position(|line| *line == bad[same]).unwrap() as u32;
            prop_assert_eq!(result, Err(TextError::OutOfOrder { expected: same as u32, found }));
        }
    }

    #[test]
    fn garbage_never_panics_and_cuts_make_no_difference(
        input in vec(prop_oneof![any::<u8>(), prop::sample::select(b"#Feo0\r\n".to_vec())], 0..400), sizes in sizes(),
    ) {
        let mut input = input;
        input.push(b'\n');
        prop_assert_eq!(read(&input, &sizes), read(&input, &[usize::MAX]));
    }
}

fn engine_reads(input: &[u8]) -> Result<(), TextError> {
    let result = read(input, &[usize::MAX]).1;
    assert_eq!(read(input, &[1]).1, result);
    assert_eq!(read(input, &[1000]).1, result);
    result
}

#[test]
fn one_line_looks_like_this() {
    assert_eq!(
        String::from_utf8(lines(Side::Outpost, &[b"hello".to_vec()])).unwrap(),
        "\n#Fo00000000aGVsbG82f6ac015\n"
    );
}

#[test]
fn noise_has_a_limit() {
    let ours = lines(Side::Outpost, &[b"x".to_vec()]);
    for line in
        ["y\n".to_owned(), "a line of noise\n".into(), "y".repeat(9000) + "\n", "#F ".repeat(3000) + "\n"]
    {
        let mut noise = line.repeat(MAX_NOISE / line.len() + 1).into_bytes();
        noise.truncate(MAX_NOISE - 2);
        assert_eq!(engine_reads(&[&noise[..], &ours].concat()), Ok(()));
        noise.extend_from_slice(b"more\n");
        assert_eq!(engine_reads(&[&noise[..], &ours].concat()), Err(TextError::TooMuchNoise));
    }
    // Without any line end too.
    assert_eq!(engine_reads(&vec![b'y'; MAX_NOISE + 1]), Err(TextError::TooMuchNoise));
}

#[test]
fn noise_can_be_shown() {
    let (mut decoder, mut out) = (Decoder::new(Side::Engine), Vec::new());
    let long = "z".repeat(10_000);
    decoder.push(&mut out, format!("{long}\nbash: farshell: command not found\n").as_bytes()).unwrap();
    assert!(!decoder.begun());
    assert!(decoder.noise().ends_with(b"z\nbash: farshell: command not found\n"));
    assert!(decoder.noise().len() <= 2048);
    decoder.push(&mut out, &lines(Side::Outpost, &[b"x".to_vec()])).unwrap();
    assert!(decoder.begun());
    assert_eq!(out, b"x");
}

#[test]
fn a_prompt_before_the_first_line_does_no_harm() {
    let ours = lines(Side::Outpost, &[b"x".to_vec()]);
    assert_eq!(read(&[b"root@host:~# ", &ours[..]].concat(), &[5]), (b"x".to_vec(), Ok(())));
}

#[test]
fn foreign_text_after_the_first_line_is_quoted() {
    let mut text = lines(Side::Outpost, &[b"x".to_vec()]);
    text.extend_from_slice(b"Killed \x1b[1m\n");
    let error = engine_reads(&text).unwrap_err();
    assert_eq!(error, TextError::NotALine { text: "Killed \\u{1b}[1m".into() });
    assert_eq!(error.to_string(), "foreign text between the lines: Killed \\u{1b}[1m");
}

#[test]
fn long_lines_are_errors_as_soon_as_they_are_too_long() {
    let first = lines(Side::Outpost, &[b"x".to_vec()]);
    for start in ["#Fo", "#Fe", "foreign"] {
        let long = [start.as_bytes(), &[b'A'; MAX_LINE]].concat();
        assert_eq!(engine_reads(&[&first[..], &long].concat()), Err(TextError::TooLong));
        assert_eq!(engine_reads(&[&first[..], &long, b"\n"].concat()), Err(TextError::TooLong));
    }
    assert_eq!(engine_reads(&[b"#Fo".as_slice(), &[b'A'; MAX_LINE]].concat()), Err(TextError::TooLong));
}

#[test]
fn a_damaged_first_line_is_an_error_and_not_noise() {
    assert_eq!(
        engine_reads(b"banner\n#Fo00000000aGVsbG82f6ac016\n"),
        Err(TextError::Damaged { expected: 0 })
    );
    assert_eq!(engine_reads(b"#Fo\n"), Err(TextError::Damaged { expected: 0 }));
}

#[test]
fn frames_go_through() {
    let mut bytes = Vec::new();
    for call in 0..50 {
        farshell_protocol::frame::encode(
            &mut bytes,
            farshell_protocol::Kind::Data,
            call,
            &vec![0xF5; 331 * call as usize],
        );
    }
    let text = lines(Side::Outpost, &[bytes]);
    let (mut decoder, mut frames, mut out) =
        (Decoder::new(Side::Engine), farshell_protocol::Decoder::new(), Vec::new());
    let mut next = 0;
    for piece in text.chunks(777) {
        decoder.push(&mut out, piece).unwrap();
        frames.push(&out);
        out.clear();
        while let Some(frame) = frames.next_frame().unwrap() {
            assert_eq!((frame.call, frame.payload.len()), (next, 331 * next as usize));
            next += 1;
        }
    }
    assert_eq!((next, decoder.pending(), frames.pending()), (50, 0, 0));
}
