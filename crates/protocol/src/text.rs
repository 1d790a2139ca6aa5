//! Frames as lines of plain text, for channels that are not 8-bit clean.
//!
//! A terminal between the two sides may translate line ends, swallow control characters, echo what is sent,
//! print a login banner first and cut lines at 4096 bytes. None of that harms these lines:
//!
//! ```text
//!  #F  o  0000002a  9QEAAAAAAAA…  2f6ac015  newline
//!  |   |  |         |             CRC-32 of everything before it, hex
//!  |   |  |         up to PAYLOAD bytes of the stream, base64 without padding
//!  |   |  number of the line, from 0, hex, wraps
//!  |   who wrote it: `e` engine, `o` outpost
//!  marker: a shell that reads the line by mistake takes it for a comment
//! ```
//! # The flow
//! 1. The outpost puts its terminal into raw mode without echo and only then writes its first line.
//! 2. The engine skips everything before that line (banner, prompt, its own typed command) and answers only
//!    after it, so its lines are not echoed into the middle of the outpost's.
//! 3. From then on each line must be whole, undamaged and the next one. Lines of one's own direction are an
//!    echo and are skipped; anything else ends the stream with a [`TextError`].
//!
//! An empty line means nothing to a decoder. An engine sends one to say that it is there, and one for each [`GRANT`] bytes
//! that it has received, for outposts that are told to keep no more than so much under way (see [`empty_lines`]): what
//! carries a terminal's output may drop whoever reads it too slowly.
//!
//! The checksum finds accidents; it is no protection against somebody who wants to forge a line.

use crate::excerpt;

/// Stream bytes in one line: 4000 characters of base64, so that the line fits into a terminal's 4096.
pub const PAYLOAD: usize = 3000;
/// Longest line, without its end.
pub const MAX_LINE: usize = PREFIX + PAYLOAD / 3 * 4 + HEX;
/// Stream bytes that one empty line of an engine stands for.
pub const GRANT: u64 = 64 << 10;
/// Bytes that may come before the peer's first line. A generous login banner fits many times.
pub const MAX_NOISE: usize = 64 << 10;

/// Bytes of the noise that are kept to be shown to the reader of an error.
const KEPT_NOISE: usize = 2 << 10;
const MARKER: &[u8] = b"#F";
const HEX: usize = 8;
const PREFIX: usize = MARKER.len() + 1 + HEX;

/// One of the two ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Engine,
    Outpost,
}

impl Side {
    fn letter(self) -> u8 {
        match self {
            Self::Engine => b'e',
            Self::Outpost => b'o',
        }
    }

    fn peer(self) -> Self {
        match self {
            Self::Engine => Self::Outpost,
            Self::Outpost => Self::Engine,
        }
    }

    fn wrote(self, line: &[u8]) -> bool {
        line.strip_prefix(MARKER).and_then(|rest| rest.first()) == Some(&self.letter())
    }
}

/// Why a stream of lines cannot be used any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// More than [`MAX_NOISE`] bytes came and no line of the peer. [`Decoder::noise`] has the last of them.
    TooMuchNoise,
    /// A line that belongs to neither side, after the peer's first line; `text` is its printable start.
    NotALine { text: String },
    /// A line longer than [`MAX_LINE`].
    TooLong,
    /// A line of the peer whose checksum or form is wrong.
    Damaged { expected: u32 },
    /// A line of the peer was lost, repeated or moved.
    OutOfOrder { expected: u32, found: u32 },
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMuchNoise => write!(f, "more than {MAX_NOISE} bytes of text before the first line"),
            Self::NotALine { text } => write!(f, "foreign text between the lines: {text}"),
            Self::TooLong => write!(f, "line of more than {MAX_LINE} bytes"),
            Self::Damaged { expected } => write!(f, "line {expected} is damaged"),
            Self::OutOfOrder { expected, found } => {
                write!(f, "line {expected} expected, line {found} came: one was lost, repeated or moved")
            }
        }
    }
}

impl std::error::Error for TextError {}

/// How many empty lines there are in a piece of a stream. `last` is the byte before it, and then its last.
pub fn empty_lines(last: &mut u8, piece: &[u8]) -> u64 {
    let mut count = 0;
    for &byte in piece {
        count += u64::from(byte == b'\n' && *last == b'\n');
        *last = byte;
    }
    count
}

/// Turns bytes into lines.
#[derive(Debug)]
pub struct Encoder {
    side: Side,
    next: u32,
    begun: bool,
}

impl Encoder {
    /// For the side that writes.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, next: 0, begun: false }
    }

    /// Appends the lines that carry `bytes` to `out`; nothing if there are none. Every line is complete, so
    /// nothing waits for a flush.
    pub fn encode(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        if !self.begun && !bytes.is_empty() {
            // Ends whatever stands in the line already: a prompt has no line end of its own.
            out.push(b'\n');
            self.begun = true;
        }
        let lines = bytes.len().div_ceil(PAYLOAD);
        out.reserve(bytes.len().div_ceil(3) * 4 + lines * (PREFIX + HEX + 1));
        for payload in bytes.chunks(PAYLOAD) {
            let start = out.len();
            out.extend_from_slice(MARKER);
            out.push(self.side.letter());
            out.extend_from_slice(&to_hex(self.next));
            base64_encode(out, payload);
            let checksum = crc32(&out[start..]);
            out.extend_from_slice(&to_hex(checksum));
            out.push(b'\n');
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// Turns lines that arrive in arbitrary pieces back into bytes. Holds one line and a little noise at most.
#[derive(Debug)]
pub struct Decoder {
    reader: Side,
    /// The start of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The rest of the line is noise that is too long to be kept.
    skipping: bool,
    /// The peer's first line has come.
    begun: bool,
    expected: u32,
    noise_bytes: usize,
    noise: Vec<u8>,
    failed: Option<TextError>,
}

impl Decoder {
    /// For the side that reads.
    #[must_use]
    pub fn new(reader: Side) -> Self {
        Self {
            reader,
            partial: Vec::new(),
            skipping: false,
            begun: false,
            expected: 0,
            noise_bytes: 0,
            noise: Vec::new(),
            failed: None,
        }
    }

    /// Takes what arrived and appends the bytes of all lines it completes to `out` (at most three for each
    /// four taken, and one line more). How the input is cut makes no difference.
    ///
    /// # Errors
    /// The stream is broken; every later call gives the same error. The bytes of the good lines before it
    /// are in `out`.
    pub fn push(&mut self, out: &mut Vec<u8>, input: &[u8]) -> Result<(), TextError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.take(out, input).inspect_err(|error| {
            self.failed = Some(error.clone());
            self.partial = Vec::new();
        })
    }

    /// The peer's first line has come.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Bytes of a line whose end has not come. Not zero at the end of the stream means that it was cut off.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    /// The last of what was skipped before the peer's first line: often the reason why it never came
    /// (`command not found`). Hostile bytes: escape them before they are shown.
    #[must_use]
    pub fn noise(&self) -> &[u8] {
        &self.noise
    }

    fn take(&mut self, out: &mut Vec<u8>, mut input: &[u8]) -> Result<(), TextError> {
        while let Some(end) = input.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
            let head = &input[..end];
            input = &input[end + 1..];
            if self.partial.is_empty() && !self.skipping {
                self.line(out, head)?;
                continue;
            }
            self.keep(head)?;
            if std::mem::take(&mut self.skipping) {
                self.skip(b"\n")?;
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            self.line(out, &line)?;
            // Gives the buffer back for the next line.
            self.partial = line;
            self.partial.clear();
        }
        self.keep(input)
    }

    /// A piece of a line without its end.
    fn keep(&mut self, piece: &[u8]) -> Result<(), TextError> {
        if self.skipping {
            return self.skip(piece);
        }
        if self.partial.len() + piece.len() <= MAX_LINE {
            self.partial.extend_from_slice(piece);
            return Ok(());
        }
        // Enough of the piece to tell whose line it is; the rest of a long line never needs to be held.
        let rest = piece.split_at(piece.len().min(MARKER.len() + 1)).1;
        self.partial.extend_from_slice(&piece[..piece.len() - rest.len()]);
        if self.begun || self.reader.peer().wrote(&self.partial) {
            return Err(TextError::TooLong);
        }
        self.skipping = true;
        let start = std::mem::take(&mut self.partial);
        self.skip(&start)?;
        self.skip(rest)
    }

    /// A whole line without its end.
    fn line(&mut self, out: &mut Vec<u8>, line: &[u8]) -> Result<(), TextError> {
        if self.reader.peer().wrote(line) {
            return self.payload(out, line);
        }
        if line.len() > MAX_LINE && self.begun {
            return Err(TextError::TooLong);
        }
        if line.len() <= MAX_LINE && self.reader.wrote(line) {
            return Ok(());
        }
        if !self.begun {
            self.skip(line)?;
            return self.skip(b"\n");
        }
        // An empty line is what a translated line end leaves.
        if line.is_empty() { Ok(()) } else { Err(TextError::NotALine { text: excerpt(line) }) }
    }

    /// A line that says it is the peer's.
    fn payload(&mut self, out: &mut Vec<u8>, line: &[u8]) -> Result<(), TextError> {
        if line.len() > MAX_LINE {
            return Err(TextError::TooLong);
        }
        let damaged = TextError::Damaged { expected: self.expected };
        let Some((body, checksum)) = line.split_last_chunk::<HEX>() else { return Err(damaged) };
        if body.len() < PREFIX || *checksum != to_hex(crc32(body)) {
            return Err(damaged);
        }
        let (prefix, payload) = body.split_at(PREFIX);
        let Some(found) = from_hex(&prefix[PREFIX - HEX..]) else { return Err(damaged) };
        if found != self.expected {
            return Err(TextError::OutOfOrder { expected: self.expected, found });
        }
        if !base64_decode(out, payload) {
            return Err(damaged);
        }
        self.begun = true;
        self.expected = self.expected.wrapping_add(1);
        Ok(())
    }

    /// Noise before the peer's first line.
    fn skip(&mut self, noise: &[u8]) -> Result<(), TextError> {
        self.noise.extend_from_slice(&noise[noise.len().saturating_sub(KEPT_NOISE)..]);
        let surplus = self.noise.len().saturating_sub(KEPT_NOISE);
        self.noise.drain(..surplus);
        self.noise_bytes = self.noise_bytes.saturating_add(noise.len());
        if self.noise_bytes > MAX_NOISE { Err(TextError::TooMuchNoise) } else { Ok(()) }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn to_hex(number: u32) -> [u8; HEX] {
    std::array::from_fn(|at| DIGITS[(number >> (28 - 4 * at)) as usize & 15])
}

fn from_hex(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |number: u32, byte| {
        let digit = DIGITS.iter().position(|known| known == byte)?;
        Some(number << 4 | digit as u32)
    })
}

/// CRC-32 as in Ethernet and zip.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, &byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64_encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0, |bits: u32, &byte| bits << 8 | u32::from(byte)) << (24 - 8 * group.len());
        for at in 0..=group.len() {
            out.push(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]);
        }
    }
}

/// Appends nothing and gives `false` if the text is not what [`base64_encode`] writes.
fn base64_decode(out: &mut Vec<u8>, text: &[u8]) -> bool {
    const NONE: u8 = 64;
    const VALUES: [u8; 256] = {
        let mut values = [NONE; 256];
        let mut value = 0;
        while value < 64 {
            values[ALPHABET[value as usize] as usize] = value;
            value += 1;
        }
        values
    };
    let start = out.len();
    out.reserve(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0;
        let mut bad = group.len() == 1;
        for &byte in group {
            let value = VALUES[byte as usize];
            bad |= value == NONE;
            bits = bits << 6 | u32::from(value & 63);
        }
        bits <<= 24 - 6 * group.len();
        let bytes = group.len() * 6 / 8;
        bad |= bits.to_be_bytes()[1 + bytes..].iter().any(|&left| left != 0);
        if bad {
            out.truncate(start);
            return false;
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..=bytes]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_are_counted_however_they_are_cut() {
        let text = b"\n#Fe00\n\n\n#Fe01\n\nx";
        for cut in 0..=text.len() {
            let mut last = 0;
            let (head, tail) = text.split_at(cut);
            assert_eq!(empty_lines(&mut last, head) + empty_lines(&mut last, tail), 3, "{cut}");
        }
    }

    #[test]
    fn checksum_and_digits_are_the_usual_ones() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(&to_hex(0x0123_abcd), b"0123abcd");
        assert_eq!(from_hex(b"0123abcd"), Some(0x0123_abcd));
        assert_eq!(from_hex(b"+123abcd"), None);
        assert_eq!(from_hex(b"0123ABCD"), None);
    }

    #[test]
    fn base64_is_the_usual_one_without_padding() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("\u{7ff}?", "378/")]
        {
            let mut out = Vec::new();
            base64_encode(&mut out, bytes.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), text);
            let mut back = Vec::new();
            assert!(base64_decode(&mut back, &out));
            assert_eq!(back, bytes.as_bytes());
        }
        for wrong in ["Z", "Zh", "Zm9", "Zg==", "Zm9v\u{e9}", "Zm9vY", "Zm 9"] {
            let mut out = b"kept".to_vec();
            assert!(!base64_decode(&mut out, wrong.as_bytes()), "{wrong}");
            assert_eq!(out, b"kept");
        }
    }

    #[test]
    fn line_numbers_wrap() {
        let mut encoder = Encoder { next: u32::MAX, ..Encoder::new(Side::Outpost) };
        let mut decoder = Decoder { expected: u32::MAX, ..Decoder::new(Side::Engine) };
        let (mut lines, mut back) = (Vec::new(), Vec::new());
        encoder.encode(&mut lines, &[7; 2 * PAYLOAD]);
        assert_eq!(decoder.push(&mut back, &lines), Ok(()));
        assert_eq!(back, [7; 2 * PAYLOAD]);
    }
}
