//! A second of what the fuzz targets do for hours, always with the same pseudo-random input.

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use farshell_protocol::message::to_bytes;
use farshell_protocol::text::{Encoder, Side};
use farshell_protocol::{ErrorKind, Event, Failure, Hello, Kind, Reply, Request, frame};
use fuzz::Random;
use std::time::{Duration, Instant};

/// Enough for thousands of inputs, also in a debug build.
const ROUNDS: u64 = 3000;
/// A slow machine does fewer.
const AT_MOST: Duration = Duration::from_secs(5);

fn rounds(mut round: impl FnMut(&mut Random)) {
    let start = Instant::now();
    for seed in 0..ROUNDS {
        round(&mut Random(seed));
        if start.elapsed() > AT_MOST {
            break;
        }
    }
}

fn noise(random: &mut Random, most: usize) -> Vec<u8> {
    let len = random.below(most);
    (0..len).map(|_| random.next() as u8).collect()
}

/// Changes, removes and inserts a few bytes, or none.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        let byte = random.next() as u8;
        match random.below(3) {
            0 => bytes.insert(at, byte),
            _ if bytes.is_empty() => {}
            1 => bytes[at] = byte,
            _ => drop(bytes.remove(at)),
        }
    }
}

#[test]
fn frames() {
    const KINDS: [Kind; 4] = [Kind::Hello, Kind::Data, Kind::Credit, Kind::Goodbye];
    rounds(|random| {
        let mut data = random.next().to_le_bytes().to_vec();
        let mut stream = Vec::new();
        for _ in 0..random.below(6) {
            let payload = noise(random, 700);
            frame::encode(&mut stream, KINDS[random.below(4)], random.next() as u32, &payload);
        }
        damage(random, &mut stream);
        data.extend_from_slice(&stream);
        fuzz::frames(&data);
    });
}

#[test]
fn messages() {
    let good = [
        to_bytes(&Hello::engine()),
        to_bytes(&Request::Ping),
        to_bytes(&Request::SetLease { seconds: 7 }),
        to_bytes(&Reply::Sessions(vec![])),
        to_bytes(&Event::Gap { from: 1, to: 1 << 40 }),
        to_bytes(&Failure::new(ErrorKind::Busy, "the session is busy")),
    ];
    rounds(|random| {
        let mut data = good[random.below(good.len())].clone();
        damage(random, &mut data);
        fuzz::messages(&data);
        fuzz::messages(&noise(random, 60));
    });
}

#[test]
fn text() {
    rounds(|random| {
        let mut data = random.next().to_le_bytes().to_vec();
        let (mut encoder, mut lines) = (Encoder::new(Side::Outpost), noise(random, 100));
        for _ in 0..random.below(4) {
            let payload = noise(random, 1500);
            encoder.encode(&mut lines, &payload);
        }
        damage(random, &mut lines);
        data.extend_from_slice(&lines);
        fuzz::text(&data);
    });
}
