//! Frames: any cut of the bytes gives the same frames, and no byte sequence does worse than a [`FrameError`].

use farshell_protocol::frame::{HEADER, MARKER, MAX_PAYLOAD, encode, header};
use farshell_protocol::{Decoder, FrameError, Kind};
use proptest::collection::vec;
use proptest::prelude::*;

type Owned = (Kind, u32, Vec<u8>);

const KINDS: [Kind; 9] = [
    Kind::Hello,
    Kind::Request,
    Kind::Response,
    Kind::Event,
    Kind::Data,
    Kind::Credit,
    Kind::End,
    Kind::Cancel,
    Kind::Goodbye,
];

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let payload = prop_oneof![4 => vec(any::<u8>(), 0..50), 1 => vec(any::<u8>(), 1000..9000)];
    vec((prop::sample::select(&KINDS[..]), any::<u32>(), payload), 0..12)
}

fn stream(frames: &[Owned]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, call, payload) in frames {
        encode(&mut out, *kind, *call, payload);
    }
    out
}

fn drain(decoder: &mut Decoder, into: &mut Vec<Owned>) -> Result<(), FrameError> {
    while let Some(frame) = decoder.next_frame()? {
        into.push((frame.kind, frame.call, frame.payload.to_vec()));
    }
    Ok(())
}

/// Cuts `bytes` into pieces of these sizes, again and again.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    sizes.iter().cycle().map_while(move |&size| {
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(frames in frames(), sizes in vec(1..3000usize, 1..20), read in any::<bool>()) {
        let bytes = stream(&frames);
        let (mut decoder, mut got) = (Decoder::new(), Vec::new());
        for piece in pieces(&bytes, &sizes) {
            if read {
                let space = decoder.space(piece.len());
                prop_assert!(space.len() >= piece.len());
                space[..piece.len()].copy_from_slice(piece);
                decoder.filled(piece.len());
            } else {
                decoder.push(piece);
            }
            drain(&mut decoder, &mut got).unwrap();
        }
        prop_assert_eq!(decoder.pending(), 0);
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn a_stream_that_is_cut_off_gives_its_whole_frames_only(frames in frames(), at in any::<prop::sample::Index>()) {
        let bytes = stream(&frames);
        let at = at.index(bytes.len() + 1);
        let (mut decoder, mut got) = (Decoder::new(), Vec::new());
        decoder.push(&bytes[..at]);
        drain(&mut decoder, &mut got).unwrap();
        prop_assert_eq!(&got[..], &frames[..got.len()]);
        let whole = stream(&got).len();
        prop_assert_eq!(decoder.pending(), at - whole);
        if let Some((_, _, payload)) = frames.get(got.len()) {
            prop_assert!(at - whole < HEADER + payload.len());
        }
        drain(&mut decoder, &mut got).unwrap();
        // The rest makes it good.
        decoder.push(&bytes[at..]);
        drain(&mut decoder, &mut got).unwrap();
        prop_assert_eq!(got, frames);
    }

    /// Reading exactly what is missing never takes a byte of the next frame and needs two reads a frame.
    #[test]
    fn the_hint_is_exact(frames in frames()) {
        let bytes = stream(&frames);
        let (mut decoder, mut got, mut rest) = (Decoder::new(), Vec::new(), &bytes[..]);
        let mut reads = 0;
        while !rest.is_empty() {
            let missing = decoder.missing();
            prop_assert!((1..=rest.len()).contains(&missing));
            decoder.push(&rest[..missing]);
            rest = &rest[missing..];
            reads += 1;
            let before = got.len();
            drain(&mut decoder, &mut got).unwrap();
            prop_assert!(got.len() <= before + 1);
            if got.len() > before {
                prop_assert_eq!(decoder.pending(), 0);
                prop_assert_eq!(decoder.missing(), HEADER);
            }
        }
        let with_payload = frames.iter().filter(|(_, _, payload)| !payload.is_empty()).count();
        prop_assert_eq!(reads, frames.len() + with_payload);
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn noise_is_an_error_and_stays_one(
        frames in frames(), noise in vec(any::<u8>(), 1..100), sizes in vec(1..50usize, 1..5),
    ) {
        let mut bytes = stream(&frames);
        bytes.extend_from_slice(&noise);
        let (mut decoder, mut got, mut failed) = (Decoder::new(), Vec::new(), None);
        for piece in pieces(&bytes, &sizes) {
            decoder.push(piece);
            let result = drain(&mut decoder, &mut got);
            if let Some(error) = failed {
                prop_assert_eq!(result, Err(error));
            }
            failed = result.err();
        }
        prop_assert_eq!(&got[..frames.len()], &frames[..]);
        if noise[0] != MARKER {
            prop_assert_eq!(failed, Some(FrameError::NotAFrame { found: noise[0] }));
            prop_assert_eq!(got.len(), frames.len());
        }
    }

    #[test]
    fn headers_are_checked(kind in any::<u8>(), reserved in any::<[u8; 2]>(), call in any::<u32>(), len in any::<u32>()) {
        let mut bytes = header(Kind::Data, call, 0);
        bytes[1] = kind;
        bytes[2..4].copy_from_slice(&reserved);
        bytes[8..].copy_from_slice(&len.to_le_bytes());
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        let expected = if !(1..=9).contains(&kind) {
            Err(FrameError::UnknownKind { found: kind })
        } else if reserved != [0, 0] {
            Err(FrameError::Reserved { found: u16::from_le_bytes(reserved) })
        } else if len as usize > MAX_PAYLOAD {
            Err(FrameError::TooLong { announced: len })
        } else {
            Ok(())
        };
        prop_assert!(decoder.missing() <= MAX_PAYLOAD);
        prop_assert_eq!(drain(&mut decoder, &mut Vec::new()), expected);
    }
}

/// All bytes that the decoder holds, used or not, once nothing in it is consumed.
fn held(decoder: &mut Decoder) -> usize {
    decoder.pending() + decoder.space(0).len()
}

#[test]
fn memory_is_one_frame_and_one_read() {
    const READ: usize = 64 << 10;
    let mut bytes = Vec::new();
    // An odd size in front, so that reads and frames never meet.
    encode(&mut bytes, Kind::Data, 1, &[1; 777]);
    for _ in 0..8 {
        encode(&mut bytes, Kind::Data, 2, &vec![2; MAX_PAYLOAD]);
        encode(&mut bytes, Kind::Event, 3, &[3; 5]);
    }
    let (mut decoder, mut frames) = (Decoder::new(), 0);
    for piece in bytes.chunks(READ) {
        decoder.space(READ)[..piece.len()].copy_from_slice(piece);
        decoder.filled(piece.len());
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames += 1;
            assert!(frame.payload.len() <= MAX_PAYLOAD);
        }
        assert!(held(&mut decoder) <= HEADER + MAX_PAYLOAD + READ);
    }
    assert_eq!((frames, decoder.pending()), (17, 0));
}

#[test]
fn a_failed_decoder_keeps_nothing_more() {
    let mut decoder = Decoder::new();
    decoder.push(b"Welcome to Ubuntu\n");
    assert_eq!(decoder.next_frame(), Err(FrameError::NotAFrame { found: b'W' }));
    let before = held(&mut decoder);
    for _ in 0..100 {
        decoder.push(&[MARKER; 10_000]);
        assert_eq!(decoder.next_frame(), Err(FrameError::NotAFrame { found: b'W' }));
    }
    assert!(held(&mut decoder) <= before + 10_000);
}

#[test]
fn small_pieces_of_a_large_frame_are_not_moved_again_and_again() {
    let mut bytes = Vec::new();
    encode(&mut bytes, Kind::Data, 1, b"first");
    encode(&mut bytes, Kind::Data, 1, &vec![7; MAX_PAYLOAD]);
    let mut decoder = Decoder::new();
    let mut frames = 0;
    // A quadratic decoder would move terabytes here.
    for piece in bytes.chunks(3) {
        decoder.push(piece);
        while decoder.next_frame().unwrap().is_some() {
            frames += 1;
        }
    }
    assert_eq!(frames, 2);
}

#[test]
#[should_panic(expected = "payload of 4194305 bytes")]
fn a_sender_must_split() {
    let _ = header(Kind::Data, 1, MAX_PAYLOAD + 1);
}
