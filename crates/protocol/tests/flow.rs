//! Credit, chunks and names.

use farshell_protocol::flow::{Credit, INITIAL_CREDIT, Window, decode_credit, encode_credit};
use farshell_protocol::process::{CHUNK_HEADER, Chunk, Stream};
use farshell_protocol::{ProcessId, SessionName};
use proptest::prelude::*;
use std::collections::VecDeque;

proptest! {
    /// A sender that always has more, a receiver that consumes whenever it likes, and two wires of any
    /// slowness: all bytes arrive, and never more than the budget are on their way or unread.
    #[test]
    fn flow_neither_stops_nor_overruns(steps in prop::collection::vec((0..4u8, 1..400_000usize), 1..400)) {
        let (mut credit, mut window) = (Credit::default(), Window::default());
        let (mut data, mut grants) = (VecDeque::new(), VecDeque::new());
        let (mut sent, mut unread, mut consumed) = (0u64, 0usize, 0u64);
        // Afterwards everybody does their part in turn for a while: it must go on.
        let turns = (0..40).flat_map(|_| (0..4).map(|who| (who, usize::MAX)));
        let random = steps.len();
        for (step, (who, amount)) in steps.into_iter().chain(turns).enumerate() {
            match who {
                0 => {
                    let n = credit.available().min(amount);
                    credit.spend(n);
                    sent += n as u64;
                    data.push_back(n);
                }
                1 => unread += data.pop_front().unwrap_or(0),
                2 => {
                    let n = unread.min(amount);
                    unread -= n;
                    consumed += n as u64;
                    grants.extend(window.consume(n));
                }
                _ => if let Some(grant) = grants.pop_front() {
                    credit.grant(decode_credit(&encode_credit(grant)).unwrap());
                },
            }
            prop_assert!(sent - consumed <= INITIAL_CREDIT);
            if step + 1 == random {
                // What waits is delivered, so that the last turns count only new bytes.
                while let Some(n) = data.pop_front() { unread += n }
                while let Some(grant) = grants.pop_front() { credit.grant(grant) }
                sent -= consumed;
                consumed = 0;
            }
        }
        prop_assert!(consumed >= 10 * INITIAL_CREDIT / 2, "only {} bytes in 40 turns", consumed);
    }

    #[test]
    fn credit_frames(bytes in any::<u64>(), other in prop::collection::vec(any::<u8>(), 0..20)) {
        prop_assert_eq!(decode_credit(&encode_credit(bytes)), Some(bytes));
        prop_assert_eq!(decode_credit(&other).is_some(), other.len() == 8);
    }

    #[test]
    fn chunks(
        stdout in any::<bool>(), offset in any::<u64>(), stream_offset in any::<u64>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let stream = if stdout { Stream::Stdout } else { Stream::Stderr };
        let chunk = Chunk { stream, offset, stream_offset, bytes: &bytes };
        let mut payload = chunk.header().to_vec();
        payload.extend_from_slice(&bytes);
        prop_assert_eq!(Chunk::decode(&payload), Some(chunk));
        for end in 0..CHUNK_HEADER {
            prop_assert_eq!(Chunk::decode(&payload[..end]), None);
        }
        for other in (0..=255).filter(|&kind| kind != 1 && kind != 2) {
            payload[0] = other;
            prop_assert_eq!(Chunk::decode(&payload), None);
        }
    }

    #[test]
    fn names(text in prop_oneof![any::<String>(), "[A-Za-z0-9._/ -]{0,70}"]) {
        let good = (1..=64).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            && !text.starts_with('.') && !text.starts_with('-');
        prop_assert_eq!(ProcessId::new(text.clone()).is_ok(), good);
        prop_assert_eq!(text.parse::<SessionName>().is_ok(), good);
        if let Ok(id) = ProcessId::new(text.clone()) {
            prop_assert_eq!(id.as_str(), &text);
            prop_assert_eq!(id.to_string(), text);
        }
    }
}

#[test]
fn absurd_grants_and_spends_saturate() {
    let mut credit = Credit::default();
    credit.grant(u64::MAX);
    credit.grant(u64::MAX);
    assert_eq!(credit.available(), usize::MAX);
    credit.spend(usize::MAX);
    credit.spend(usize::MAX);
    assert_eq!(credit.available(), 0);
    let mut window = Window::default();
    assert_eq!(window.consume(usize::MAX), Some(u64::MAX));
    assert_eq!(window.consume(1), None);
}

#[test]
fn bad_name_errors_say_what_is_allowed() {
    assert_eq!(
        ProcessId::new("a/b").unwrap_err().to_string(),
        "\"a/b\" is not a process id: 1 to 64 of the characters A-Z a-z 0-9 . _ - are needed, not starting with . or -"
    );
}
