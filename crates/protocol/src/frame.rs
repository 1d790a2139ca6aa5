//! Frames: how a byte stream is cut into pieces that belong to calls.
//!
//! ```text
//!  0        1      2          4            8             12
//!  | 0xF5   | kind | 0x0000   | call id    | payload len | payload …
//!  | u8     | u8   | u16 LE   | u32 LE     | u32 LE      |
//! ```
//! The marker and the two zero bytes cost nothing and make noise (a login banner, a crashed peer's panic
//! text) a clean [`FrameError`] at the first byte, instead of a wait for four gigabytes that never come.

/// First byte of every frame. Not ASCII and not the start of any UTF-8 text.
pub const MARKER: u8 = 0xF5;
/// Bytes before the payload.
pub const HEADER: usize = 12;
/// Largest payload of any frame: a request that carries a command of a megabyte or a small file fits, and a
/// hostile peer can make us hold this much and no more.
pub const MAX_PAYLOAD: usize = 4 << 20;
/// Largest payload that a sender puts into one [`Kind::Data`] frame. It bounds how long any other call's
/// answer waits behind data that is already on its way.
pub const MAX_DATA: usize = 256 << 10;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first frame in each direction; its call id is 0.
    Hello = 1,
    /// Engine to outpost: opens the call named by the id.
    Request = 2,
    /// Outpost to engine: the one answer, which ends the call.
    Response = 3,
    /// Outpost to engine: something happened in a call that goes on.
    Event = 4,
    /// Bytes of a call, in either direction, paid for with credit.
    Data = 5,
    /// Grants the peer more bytes of [`Kind::Data`] in a call (payload: u64 LE).
    Credit = 6,
    /// Engine to outpost: no more [`Kind::Data`] will come in this call.
    End = 7,
    /// Engine to outpost: the call's answer is no longer wanted. What the call started goes on.
    Cancel = 8,
    /// Either side is about to close, with the reason as a [`crate::message::Failure`]; its call id is 0.
    Goodbye = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Request,
            3 => Self::Response,
            4 => Self::Event,
            5 => Self::Data,
            6 => Self::Credit,
            7 => Self::End,
            8 => Self::Cancel,
            9 => Self::Goodbye,
            _ => return None,
        })
    }
}

/// One frame, borrowed from the decoder's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: Kind,
    pub call: u32,
    pub payload: &'a [u8],
}

/// A frame of which only the beginning has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    pub kind: Kind,
    pub call: u32,
    /// Bytes that the payload will have.
    pub len: usize,
    /// Those that it has, with room for the rest.
    pub payload: Vec<u8>,
}

/// The bytes are not frames. The stream cannot be used any further: after a bad header nobody knows where
/// the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The byte where a frame should start is not [`MARKER`].
    NotAFrame { found: u8 },
    /// No such [`Kind`].
    UnknownKind { found: u8 },
    /// The two reserved bytes are not zero.
    Reserved { found: u16 },
    /// The payload is announced as longer than [`MAX_PAYLOAD`].
    TooLong { announced: u32 },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAFrame { found } => write!(f, "expected a frame, found byte 0x{found:02x}"),
            Self::UnknownKind { found } => write!(f, "unknown frame kind {found}"),
            Self::Reserved { found } => write!(f, "reserved header bytes are 0x{found:04x}, not zero"),
            Self::TooLong { announced } => {
                write!(f, "frame of {announced} bytes announced, at most {MAX_PAYLOAD} are allowed")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// The header of a frame with a payload of `len` bytes.
///
/// # Panics
/// If `len` is more than [`MAX_PAYLOAD`]: that is a bug of the sender, who must split.
#[must_use]
pub fn header(kind: Kind, call: u32, len: usize) -> [u8; HEADER] {
    assert!(len <= MAX_PAYLOAD, "payload of {len} bytes");
    let mut out = [0; HEADER];
    out[0] = MARKER;
    out[1] = kind as u8;
    out[4..8].copy_from_slice(&call.to_le_bytes());
    out[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    out
}

/// Appends one whole frame to `out`.
///
/// # Panics
/// As [`header`].
pub fn encode(out: &mut Vec<u8>, kind: Kind, call: u32, payload: &[u8]) {
    out.reserve(HEADER + payload.len());
    out.extend_from_slice(&header(kind, call, payload.len()));
    out.extend_from_slice(payload);
}

/// Cuts a byte stream that arrives in arbitrary pieces into frames.
///
/// Feed it with [`Decoder::space`] and [`Decoder::filled`] (a read straight into the buffer) or with
/// [`Decoder::push`], then call [`Decoder::next_frame`] until it gives `None`. It never holds more than one
/// frame of the largest size and one read.
#[derive(Debug, Default)]
pub struct Decoder {
    buf: Vec<u8>,
    /// Consumed bytes at the front of `buf`.
    start: usize,
    /// Valid bytes in `buf` (the rest is space for reads).
    end: usize,
    failed: Option<FrameError>,
}

impl Decoder {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At least `want` writable bytes; say how many were used with [`Decoder::filled`].
    pub fn space(&mut self, want: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buf.len() - self.end < want && self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buf.len() - self.end < want {
            self.buf.resize(self.end + want, 0);
        }
        &mut self.buf[self.end..]
    }

    /// `n` bytes of [`Decoder::space`] now hold data. After an error they are of no use and are not kept.
    pub fn filled(&mut self, n: usize) {
        assert!(n <= self.buf.len() - self.end, "more bytes than there was space for");
        if self.failed.is_none() {
            self.end += n;
        }
    }

    /// Appends bytes that were read elsewhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Bytes that have arrived and are not part of a frame given out yet. Not zero at the end of the
    /// stream means that the peer was cut off in the middle of a frame.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.end - self.start
    }

    /// How many more bytes complete the frame that has begun (at least 1): a hint for the next read.
    #[must_use]
    pub fn missing(&self) -> usize {
        let have = self.pending();
        if have < HEADER {
            return HEADER - have;
        }
        let len = read_u32(&self.buf[self.start + 8..]) as usize;
        (HEADER + len.min(MAX_PAYLOAD)).saturating_sub(have).max(1)
    }

    /// Takes a frame out of which only the beginning has come, so that the rest can be read straight into its
    /// payload. `None` unless at least `worth` bytes are missing. To be called when [`Decoder::next_frame`] gave
    /// `None`.
    #[must_use]
    pub fn take_begun(&mut self, worth: usize) -> Option<Begun> {
        if self.failed.is_some() || self.pending() < HEADER || self.missing() < worth.max(1) {
            return None;
        }
        let bytes = &self.buf[self.start..self.end];
        let kind = Kind::from_byte(bytes[1])?;
        let (call, len) = (read_u32(&bytes[4..]), read_u32(&bytes[8..]) as usize);
        let mut payload = Vec::with_capacity(len);
        payload.extend_from_slice(&bytes[HEADER..]);
        self.start = self.end;
        Some(Begun { kind, call, len, payload })
    }

    /// The next whole frame, `None` if more bytes are needed.
    ///
    /// # Errors
    /// The stream is not made of frames; every later call gives the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match check(&self.buf[self.start..self.end]) {
            Ok(Some((kind, call, len))) => {
                let from = self.start + HEADER;
                self.start = from + len;
                Ok(Some(Frame { kind, call, payload: &self.buf[from..from + len] }))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }
}

/// Looks at a header as soon as its bytes are there, so that noise is noticed before twelve bytes of it came.
fn check(bytes: &[u8]) -> Result<Option<(Kind, u32, usize)>, FrameError> {
    if let Some(&found) = bytes.first()
        && found != MARKER
    {
        return Err(FrameError::NotAFrame { found });
    }
    if bytes.len() < HEADER {
        return Ok(None);
    }
    let kind = Kind::from_byte(bytes[1]).ok_or(FrameError::UnknownKind { found: bytes[1] })?;
    let reserved = u16::from_le_bytes([bytes[2], bytes[3]]);
    if reserved != 0 {
        return Err(FrameError::Reserved { found: reserved });
    }
    let len = read_u32(&bytes[8..]);
    if len as usize > MAX_PAYLOAD {
        return Err(FrameError::TooLong { announced: len });
    }
    if bytes.len() - HEADER < len as usize {
        return Ok(None);
    }
    Ok(Some((kind, read_u32(&bytes[4..]), len as usize)))
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
