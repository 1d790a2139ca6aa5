//! What must hold for any input. The fuzz targets look for input that breaks it; `tests/smoke.rs` includes this
//! file and tries pseudo-random input, so that every test run does some of it.
//!
//! ```sh
//! cargo +nightly fuzz run frames -- -max_total_time=60
//! cargo +nightly fuzz run messages -- -max_total_time=60 -dict=messages.dict
//! cargo +nightly fuzz run text -- -max_total_time=60
//! ```

use farshell_protocol::frame::{self, HEADER, MAX_PAYLOAD};
use farshell_protocol::message::{from_bytes, to_bytes};
use farshell_protocol::text::{self, Side};
use farshell_protocol::{Decoder, Event, Failure, FrameError, Hello, Kind, Reply, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// SplitMix64: enough to choose cuts and positions.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Cuts `bytes` into pieces, mostly small ones.
    fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let bits = self.below(14);
            let (piece, rest) = bytes.split_at((1 + self.below(1 << bits)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// The first eight bytes choose the cuts, the rest is the stream.
fn seeded(data: &[u8]) -> Option<(Random, &[u8])> {
    let (seed, rest) = data.split_first_chunk::<8>()?;
    Some((Random(u64::from_le_bytes(*seed)), rest))
}

/// A stream gives the same frames and the same error however it is cut, the frames are what was in it, and the
/// decoder holds no more than it says.
pub fn frames(data: &[u8]) {
    let Some((mut random, stream)) = seeded(data) else { return };
    let mut whole = Decoder::new();
    whole.push(stream);
    let mut expected = Vec::new();
    let outcome = drain(&mut whole, &mut expected);

    let mut again = Vec::new();
    for (kind, call, payload) in &expected {
        frame::encode(&mut again, *kind, *call, payload);
    }
    assert_eq!(again, &stream[..again.len()]);
    if outcome.is_ok() {
        assert_eq!(whole.pending(), stream.len() - again.len());
    }

    let (mut decoder, mut got, mut result) = (Decoder::new(), Vec::new(), Ok(()));
    let mut largest = 0;
    for piece in random.cut(stream) {
        largest = largest.max(piece.len());
        if random.next() & 1 == 0 {
            decoder.push(piece);
        } else {
            decoder.space(piece.len() + random.below(100))[..piece.len()].copy_from_slice(piece);
            decoder.filled(piece.len());
        }
        assert!(decoder.missing() >= 1 && decoder.missing() <= HEADER + MAX_PAYLOAD);
        result = drain(&mut decoder, &mut got);
        assert!(decoder.pending() + decoder.space(0).len() <= HEADER + MAX_PAYLOAD + largest + 100);
    }
    assert_eq!(got, expected);
    assert_eq!(result, outcome);
}

fn drain(decoder: &mut Decoder, into: &mut Vec<(Kind, u32, Vec<u8>)>) -> Result<(), FrameError> {
    while let Some(frame) = decoder.next_frame()? {
        into.push((frame.kind, frame.call, frame.payload.to_vec()));
    }
    Ok(())
}

/// Bytes are either no message or one that can be written and read again.
pub fn messages(data: &[u8]) {
    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) {
        match from_bytes::<T>(data) {
            Ok(message) => {
                assert_eq!(from_bytes::<T>(&to_bytes(&message)), Ok(message));
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() < 2000 && !text.chars().any(char::is_control), "{text:?}");
            }
        }
    }
    check::<Hello>(data);
    check::<Request>(data);
    check::<Reply>(data);
    check::<Event>(data);
    check::<Failure>(data);
}

/// As noise, the data gives the same whatever its cut; as payload, it goes through, and one changed byte never
/// makes other bytes of it.
pub fn text(data: &[u8]) {
    let Some((mut random, data)) = seeded(data) else { return };
    let noise = read(data, &mut random);
    let mut whole = Vec::new();
    let result = text::Decoder::new(Side::Engine).push(&mut whole, data);
    assert_eq!(noise, (whole, result));

    let (mut encoder, mut lines) = (text::Encoder::new(Side::Outpost), Vec::new());
    for piece in random.cut(data) {
        encoder.encode(&mut lines, piece);
    }
    assert_eq!(read(&lines, &mut random), (data.to_vec(), Ok(())));

    let at = random.below(lines.len());
    if let Some(byte) = lines.get_mut(at) {
        *byte = random.next() as u8;
        let (got, _) = read(&lines, &mut random);
        assert_eq!(got, &data[..got.len()]);
    }
}

fn read(lines: &[u8], random: &mut Random) -> (Vec<u8>, Result<(), text::TextError>) {
    let (mut decoder, mut out) = (text::Decoder::new(Side::Engine), Vec::new());
    for piece in random.cut(lines) {
        if let Err(error) = decoder.push(&mut out, piece) {
            return (out, Err(error));
        }
        assert!(decoder.pending() <= text::MAX_LINE && decoder.noise().len() <= 4096);
    }
    (out, Ok(()))
}
