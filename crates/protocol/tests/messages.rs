//! Messages: what is written is what is read, older and newer peers are understood, and no byte sequence does
//! worse than [`Malformed`].

mod strategies;

use farshell_protocol::message::{Malformed, from_bytes, to_bytes};
use farshell_protocol::process::{OutputStatus, Start, Stdin, Surroundings, What};
use farshell_protocol::{Event, Failure, Hello, ProcessId, Reply, Request, SessionName, file, session};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::fmt::Debug;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let bytes = to_bytes(message);
    assert_eq!(from_bytes::<T>(&bytes).as_ref(), Ok(message));

    let mut newer = Vec::new();
    let mut rest = &bytes[..];
    add_unknown_fields(&mut newer, &mut rest);
    assert!(rest.is_empty());
    assert_eq!(from_bytes::<T>(&newer).as_ref(), Ok(message));

    for end in 0..bytes.len() {
        assert!(from_bytes::<T>(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
    }
    for more in 0..=255 {
        let longer = [&bytes[..], &[more]].concat();
        assert!(from_bytes::<T>(&longer).is_err(), "0x{more:02x} after the end");
    }
}

/// Copies a MessagePack value and gives each struct in it a field that nobody knows. A map whose first key is
/// capitalised is an enum's variant and stays as it is.
fn add_unknown_fields(out: &mut Vec<u8>, input: &mut &[u8]) {
    let marker = input[0];
    let copy = |out: &mut Vec<u8>, input: &mut &[u8], len: usize| {
        out.extend_from_slice(&input[..len]);
        *input = &input[len..];
    };
    let number = |input: &[u8], len: usize| {
        input[1..=len].iter().fold(0, |number, &byte| number << 8 | usize::from(byte))
    };
    let (header, count, map) = match marker {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => return copy(out, input, 1),
        0xa0..=0xbf => return copy(out, input, 1 + usize::from(marker & 31)),
        0xc4 | 0xd9 => return copy(out, input, 2 + number(input, 1)),
        0xc5 | 0xda => return copy(out, input, 3 + number(input, 2)),
        0xcc | 0xd0 => return copy(out, input, 2),
        0xcd | 0xd1 => return copy(out, input, 3),
        0xce | 0xd2 => return copy(out, input, 5),
        0xcf | 0xd3 => return copy(out, input, 9),
        0x80..=0x8f => (1, usize::from(marker & 15), true),
        0x90..=0x9f => (1, usize::from(marker & 15), false),
        0xdc => (3, number(input, 2), false),
        0xde => (3, number(input, 2), true),
        _ => panic!("no message of ours has 0x{marker:02x}"),
    };
    let is_struct = map && input[header + 1].is_ascii_lowercase();
    if is_struct {
        *input = &input[header..];
        out.push(0xde);
        out.extend_from_slice(&(count as u16 + 1).to_be_bytes());
        // "zz": [{"a": [nil, 1.5, <4 bytes>]}, "x"]
        out.extend_from_slice(
            b"\xa2zz\x92\x81\xa1a\x93\xc0\xcb\x3f\xf8\0\0\0\0\0\0\xc4\x04\xff\0\xff\0\xa1x",
        );
    } else {
        copy(out, input, header);
    }
    for _ in 0..count * if map { 2 } else { 1 } {
        add_unknown_fields(out, input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn hellos(message in strategies::hello()) { check(&message) }

    #[test]
    fn requests(message in strategies::request()) { check(&message) }

    #[test]
    fn replies(message in strategies::reply()) { check(&message) }

    #[test]
    fn events(message in strategies::event()) { check(&message) }

    #[test]
    fn failures(message in strategies::failure()) { check(&message) }

    #[test]
    fn responses(message in prop::result::maybe_ok(strategies::reply(), strategies::failure())) { check(&message) }

    #[test]
    fn any_change_of_a_byte_is_another_message_or_none(
        message in strategies::request(), at in any::<prop::sample::Index>(), bits in 1..=255u8,
    ) {
        let mut bytes = to_bytes(&message);
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        if let Ok(other) = from_bytes::<Request>(&bytes) {
            prop_assert_eq!(from_bytes::<Request>(&to_bytes(&other)).unwrap(), other);
        }
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_bytes::<Hello>(&bytes);
        let _ = from_bytes::<Request>(&bytes);
        let _ = from_bytes::<Reply>(&bytes);
        let _ = from_bytes::<Event>(&bytes);
        let _ = from_bytes::<Failure>(&bytes);
    }
}

#[test]
fn fields_that_an_older_peer_does_not_send_take_their_defaults() {
    #[derive(Serialize)]
    struct OldHello {
        version: u16,
        oldest: u16,
        release: &'static str,
    }
    let old = OldHello { version: 1, oldest: 1, release: "0.0.1" };
    let new: Hello = from_bytes(&to_bytes(&old)).unwrap();
    assert_eq!(new, Hello { version: 1, oldest: 1, release: "0.0.1".into(), outpost: None });

    #[derive(Serialize)]
    enum OldRequest {
        Start { id: &'static str, what: OldWhat, stdin: &'static str },
        OpenSession { name: &'static str, mode: &'static str, env: [u8; 0] },
        File { op: OldOp },
    }
    #[derive(Serialize)]
    enum OldWhat {
        Shell { command: ByteBuf },
    }
    #[derive(Serialize)]
    enum OldOp {
        Write { path: ByteBuf },
    }
    let command = b"true".to_vec();
    let old = OldRequest::Start {
        id: "p1",
        what: OldWhat::Shell { command: ByteBuf::from(command.clone()) },
        stdin: "Null",
    };
    let new: Request = from_bytes(&to_bytes(&old)).unwrap();
    assert_eq!(
        new,
        Request::Start(Start {
            id: ProcessId::new("p1").unwrap(),
            what: What::Shell { command, session: None, surroundings: Surroundings::default() },
            stdin: Stdin::Null,
            timeout_ms: None,
            grace_ms: 2000,
            log_cap: 0,
            attach: None,
            variables: None,
        })
    );

    let old = OldRequest::OpenSession { name: "main", mode: "Live", env: [] };
    let new: Request = from_bytes(&to_bytes(&old)).unwrap();
    assert_eq!(
        new,
        Request::OpenSession(session::OpenSession {
            name: SessionName::new("main").unwrap(),
            mode: session::Mode::Live,
            env: vec![],
            clear_env: false,
            cwd: None,
            init_files: vec![],
        })
    );

    let old = OldRequest::File { op: OldOp::Write { path: ByteBuf::from(*b"a") } };
    let new: Request = from_bytes(&to_bytes(&old)).unwrap();
    let write = file::Write {
        path: ByteBuf::from(*b"a"),
        mode: None,
        set_mode: false,
        parents: false,
        create_only: false,
        expect: None,
    };
    assert_eq!(
        new,
        Request::File(file::FileRequest { session: None, op: file::FileOp::Write(write), once: 0 })
    );
}

#[test]
fn a_missing_field_without_default_is_malformed() {
    #[derive(Serialize)]
    struct Partial {
        version: u16,
    }
    let error = from_bytes::<Hello>(&to_bytes(&Partial { version: 1 })).unwrap_err();
    assert_eq!(error.to_string(), "malformed message: missing field `oldest`");
}

#[test]
fn a_bad_name_is_malformed() {
    #[derive(Serialize)]
    enum Raw {
        Status { id: String },
    }
    for bad in ["", ".", "..", "-x", "a/b", "a\0b", "ä", &"x".repeat(65)] {
        assert!(from_bytes::<Request>(&to_bytes(&Raw::Status { id: bad.into() })).is_err(), "{bad:?}");
    }
}

#[test]
fn errors_stay_readable() {
    let error = from_bytes::<ProcessId>(&to_bytes(&"it's/\\\n")).unwrap_err().to_string();
    assert!(error.starts_with(r#"malformed message: "it's/\\n" is not a process id: 1 to 64"#), "{error}");
}

#[test]
fn errors_quote_little_of_the_peer_and_nothing_that_a_terminal_obeys() {
    let hostile = "\x1b]0;title\x07".repeat(100_000);
    let short = |error: Malformed| {
        let text = error.to_string();
        assert!(text.len() < 600, "{} bytes", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    };
    short(from_bytes::<Request>(&to_bytes(&hostile)).unwrap_err());
    short(from_bytes::<ProcessId>(&to_bytes(&hostile)).unwrap_err());

    let peer = Hello { version: 9, oldest: 9, release: hostile, outpost: None };
    let text = Hello::engine().agree(&peer).unwrap_err().to_string();
    assert!(text.len() < 1000 && !text.chars().any(char::is_control), "{text:?}");
}

#[test]
fn nesting_is_refused_long_before_the_stack_ends() {
    // An unknown field of a hello, as deep as a frame can make it.
    for nest in [b"\x91".as_slice(), b"\x81\xa1a".as_slice(), b"\x81".as_slice()] {
        let mut bytes = b"\x81\xa2zz".to_vec();
        while bytes.len() < farshell_protocol::frame::MAX_PAYLOAD - 8 {
            bytes.extend_from_slice(nest);
        }
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let refused = thread
            .spawn(move || from_bytes::<Hello>(&bytes).is_err() && from_bytes::<Reply>(&bytes).is_err());
        assert!(refused.unwrap().join().unwrap());
    }
}

#[test]
fn sums_of_hostile_numbers_do_not_overflow() {
    let output = OutputStatus { stdout: u64::MAX, stderr: 1, ..OutputStatus::default() };
    assert_eq!(output.total(), u64::MAX);
}
