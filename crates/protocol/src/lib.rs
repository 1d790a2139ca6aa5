//! What an engine and an outpost say to each other.
//!
//! This crate is the vocabulary and the grammar; it does no I/O, so both sides (and the tests, and the
//! fuzzer) share one implementation.
//!
//! # From bytes to meaning
//! 1. [`frame`]: a byte stream is cut into frames of at most [`frame::MAX_PAYLOAD`] bytes. Channels that are
//!    not 8-bit clean wrap the same frames with [`text`].
//! 2. [`hello`]: the first frame each side sends. Versions are compared here and nowhere else.
//! 3. [`message`]: after the hello, the engine opens *calls*. A call is a request with an id; the outpost
//!    answers with any number of data and event frames and exactly one response. Many calls are in flight
//!    at once, and each has its own flow control ([`flow`]), so a call that moves gigabytes never delays the
//!    answer of another.
//!
//! # Compatibility
//! Frames are fixed for ever. Messages are MessagePack maps with named fields: a field that one side does
//! not know is ignored, a field that is missing takes its default, so fields may be added within a version.
//! Whatever can't be expressed that way raises [`hello::VERSION`].

pub mod file;
pub mod flow;
pub mod frame;
pub mod hello;
pub mod id;
pub mod message;
pub mod once;
pub mod process;
pub mod session;
pub mod text;

pub use frame::{Decoder, Frame, FrameError, Kind};
pub use hello::Hello;
pub use id::{ProcessId, SessionName, TaskName};
pub use message::{ErrorKind, Event, Failure, Reply, Request};

/// The start of what a peer sent, fit to stand in an error text: short, and nothing that a terminal obeys.
fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 160;
    let start = &bytes[..bytes.len().min(MAX)];
    let mut text = String::with_capacity(start.len());
    for c in String::from_utf8_lossy(start).chars() {
        match c {
            '"' | '\'' | '\\' => text.push(c),
            _ => text.extend(c.escape_debug()),
        }
    }
    if bytes.len() > MAX {
        text.push('…');
    }
    text
}
