//! Reads a `.env` file, keeping where everything stands so that it can be edited in place.

use std::ops::Range;

/// The bytes are neither UTF-8 nor marked UTF-16.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not UTF-8 text")]
pub struct NotText {
    /// The line, from 1.
    pub line: usize,
}

/// How the text was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8 { mark: bool },
    Utf16 { big_endian: bool },
}

impl Encoding {
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, String), NotText> {
        if let Some(rest) = bytes.strip_prefix(&[0xff, 0xfe]) {
            return Ok((Self::Utf16 { big_endian: false }, decode_utf16(rest, u16::from_le_bytes)));
        }
        if let Some(rest) = bytes.strip_prefix(&[0xfe, 0xff]) {
            return Ok((Self::Utf16 { big_endian: true }, decode_utf16(rest, u16::from_be_bytes)));
        }
        let (mark, rest) = match bytes.strip_prefix(&[0xef, 0xbb, 0xbf]) {
            Some(rest) => (true, rest),
            None => (false, bytes),
        };
        match std::str::from_utf8(rest) {
            Ok(text) => Ok((Self::Utf8 { mark }, text.to_owned())),
            Err(error) => {
                let before = rest.get(..error.valid_up_to()).unwrap_or_default();
                Err(NotText { line: before.iter().filter(|b| **b == b'\n').count() + 1 })
            }
        }
    }

    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Self::Utf8 { mark: false } => text.as_bytes().to_vec(),
            Self::Utf8 { mark: true } => [&[0xef, 0xbb, 0xbf], text.as_bytes()].concat(),
            Self::Utf16 { big_endian } => {
                let units = std::iter::once(0xfeff).chain(text.encode_utf16());
                units
                    .flat_map(|unit| if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() })
                    .collect()
            }
        }
    }
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair)).collect();
    String::from_utf16_lossy(&units)
}

/// One variable of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What it is set to. A name without `=` sets nothing and has none.
    pub value: Option<String>,
    /// The line it starts on, from 1.
    pub line: usize,
    /// The bytes of the whole entry, line end included.
    pub(super) entry: Range<usize>,
    /// The bytes of the value with its quotes.
    pub(super) value_span: Range<usize>,
}

/// A line that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The line, from 1.
    pub line: usize,
}

/// What a `.env` file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotEnv {
    variables: Vec<Variable>,
    skipped: Vec<Skipped>,
}

impl DotEnv {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They are not text.
    pub fn read(bytes: &[u8]) -> Result<Self, NotText> {
        Encoding::decode(bytes).map(|(_, text)| Self::parse(&text))
    }

    /// Reads text. There is no text that can't be read; lines that make no sense are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut at = 0;
        let mut line = 1;
        while at < text.len() {
            let next = match parse_line(text, at) {
                Line::Blank => line_end(text, at),
                Line::Unknown => {
                    found.skipped.push(Skipped { line });
                    line_end(text, at)
                }
                Line::Entry { name, value, value_span, end } => {
                    let without_nul = |text: &str| text.replace('\0', "");
                    found.variables.push(Variable {
                        name: without_nul(name),
                        value: value.map(|value| without_nul(&value)),
                        line,
                        entry: at..end,
                        value_span,
                    });
                    end
                }
            };
            line += count_lines(text.get(at..next).unwrap_or_default());
            at = next;
        }
        found
    }

    /// The variable that counts under this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().rev().find(|variable| variable.name == name && variable.value.is_some())
    }

    /// Every entry in the order of the file, overridden ones too.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The lines that were not understood.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

enum Line<'a> {
    Blank,
    Unknown,
    Entry { name: &'a str, value: Option<String>, value_span: Range<usize>, end: usize },
}

fn count_lines(text: &str) -> usize {
    let breaks = text.bytes().filter(|b| *b == b'\n').count();
    // A lone carriage return ends a line as well.
    let bytes = text.as_bytes();
    breaks + (0..bytes.len()).filter(|i| bytes[*i] == b'\r' && bytes.get(i + 1) != Some(&b'\n')).count()
}

/// Where the line that holds `at` stops, its end not included.
fn content_end(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find(['\n', '\r'])).map_or(text.len(), |length| at + length)
}

/// Where the next line starts.
fn line_end(text: &str, at: usize) -> usize {
    let end = content_end(text, at);
    let rest = text.get(end..).unwrap_or_default();
    end + if rest.starts_with("\r\n") { 2 } else { usize::from(!rest.is_empty()) }
}

fn is_blank(c: char) -> bool {
    c != '\n' && c != '\r' && (c.is_whitespace() || c == '\0')
}

/// The offset of the first character at or after `at` that isn't a blank.
fn skip_blanks(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + (rest.len() - rest.trim_start_matches(is_blank).len())
}

fn parse_line(text: &str, start: usize) -> Line<'_> {
    let stop = content_end(text, start);
    let mut at = skip_blanks(text, start);
    if at >= stop || text[at..].starts_with('#') {
        return Line::Blank;
    }
    if let Some(rest) = text[at..stop].strip_prefix("export")
        && rest.starts_with(is_blank)
    {
        let after = skip_blanks(text, at + "export".len());
        // `export = 1` sets a variable of that name.
        if !text[after..stop].starts_with('=') {
            at = after;
        }
    }
    let (name_span, after_name) = match text[at..stop].strip_prefix('\'').and_then(|rest| rest.find('\'')) {
        Some(length) => (at + 1..at + 1 + length, at + length + 2),
        None => {
            let length =
                text[at..stop].find(|c: char| c == '=' || c == '#' || is_blank(c)).unwrap_or(stop - at);
            (at..at + length, at + length)
        }
    };
    let name = &text[name_span];
    if name.trim_matches('\0').is_empty() {
        return Line::Unknown;
    }
    let after = skip_blanks(text, after_name);
    if after >= stop || text[after..].starts_with('#') {
        return Line::Entry {
            name,
            value: None,
            value_span: after_name..after_name,
            end: line_end(text, stop),
        };
    }
    if !text[after..].starts_with('=') {
        return Line::Unknown;
    }
    let value_start = skip_blanks(text, after + 1).min(stop);
    match parse_value(text, value_start, stop) {
        Some((value, end)) => {
            Line::Entry { name, value: Some(value), value_span: value_start..end, end: line_end(text, end) }
        }
        None => Line::Unknown,
    }
}

/// The value that starts at `start`, and where it ends.
fn parse_value(text: &str, start: usize, stop: usize) -> Option<(String, usize)> {
    let rest = &text[start..stop];
    match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => quoted(text, start, quote),
        Some('[' | '{') => {
            Some(json(rest).map_or_else(
                || plain(text, start, stop),
                |length| (rest[..length].to_owned(), start + length),
            ))
        }
        _ => Some(plain(text, start, stop)),
    }
}

fn plain(text: &str, start: usize, stop: usize) -> (String, usize) {
    let rest = &text[start..stop];
    let mut end = rest.len();
    // The comment may start right after `=` and its blanks, hence the look at the character before.
    for (offset, _) in rest.match_indices('#') {
        if text[..start + offset].ends_with(is_blank) {
            end = offset;
            break;
        }
    }
    let value = rest[..end].trim_end_matches(is_blank);
    (value.to_owned(), start + value.len())
}

/// The length of the JSON list or object that makes up the whole rest of the line but for a comment.
fn json(rest: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    let length = values.byte_offset();
    only_comment(rest.get(length..)?).then_some(length)
}

fn only_comment(rest: &str) -> bool {
    let after = rest.trim_start_matches(is_blank);
    after.is_empty() || (after.starts_with('#') && after.len() < rest.len())
}

/// A quoted value. Its closing quote must be the last thing on its line but for a comment: otherwise the quote
/// belongs to something else, and the line makes no sense.
fn quoted(text: &str, start: usize, quote: char) -> Option<(String, usize)> {
    let body = start + 1;
    let mut value = String::new();
    let mut chars = text.get(body..)?.char_indices();
    while let Some((offset, c)) = chars.next() {
        if c == quote {
            let end = body + offset + 1;
            let rest = &text[end..content_end(text, end)];
            let after = rest.trim_start_matches(is_blank);
            return (after.is_empty() || after.starts_with('#')).then_some((value, end));
        }
        if c != '\\' {
            value.push(c);
            continue;
        }
        let after = chars.clone().next().map(|(_, next)| next);
        let meaning = match (quote, after) {
            // A backslash before the quote that ends the line is literal, as in 'C:\'.
            ('\'', Some('\'')) if !closes_here(text, body + offset + 2) => Some('\''),
            ('"', Some('n')) => Some('\n'),
            ('"', Some('r')) => Some('\r'),
            ('"', Some('t')) => Some('\t'),
            ('"', Some(same @ ('"' | '\'' | '\\' | '$'))) => Some(same),
            _ => None,
        };
        match meaning {
            Some(meaning) => {
                value.push(meaning);
                chars.next();
            }
            None => value.push('\\'),
        }
    }
    None
}

fn closes_here(text: &str, at: usize) -> bool {
    let rest = text.get(at..content_end(text, at)).unwrap_or_default();
    only_comment(rest)
}
