//! What a command writes, where that can be told.

use crate::value::Arg;

/// Longer output is not followed.
const MAX: usize = 64 * 1024;

/// The standard output of a command, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) text: Option<String>,
    /// Some of it was fetched from the network.
    pub(crate) fetched: bool,
    /// Some of it was decoded from something unreadable.
    pub(crate) decoded: bool,
    /// Patterns for the paths that it is made of, where `find` writes them.
    pub(crate) paths: Vec<String>,
}

impl Output {
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), fetched: false, decoded: false, paths: Vec::new() }
    }

    pub(crate) fn nothing() -> Self {
        Self::known("")
    }

    pub(crate) fn unknown() -> Self {
        Self { text: None, fetched: false, decoded: false, paths: Vec::new() }
    }

    /// This, and then `other`.
    pub(crate) fn then(mut self, other: Output) -> Self {
        self.text = match (self.text, other.text) {
            (Some(mut text), Some(more)) if text.len() + more.len() <= MAX => {
                text.push_str(&more);
                Some(text)
            }
            _ => None,
        };
        self.fetched |= other.fetched;
        self.decoded |= other.decoded;
        self.paths.clear();
        self
    }

    /// One of the two.
    pub(crate) fn or(mut self, other: &Output) -> Self {
        if self.text != other.text {
            self.text = None;
        }
        self.fetched |= other.fetched;
        self.decoded |= other.decoded;
        self.paths.clear();
        self
    }
}

/// What `name` with `args` writes, given what it reads.
pub(crate) fn of(name: &str, args: &[Arg], input: &Output) -> Output {
    let words: Option<Vec<&str>> = args.iter().map(Arg::literal).collect();
    let text = words.and_then(|words| match name {
        "echo" => Some(echo(&words)),
        "printf" => printf(&words),
        "true" | ":" | "false" | "cd" | "export" | "set" | "sleep" | "mkdir" | "touch" => Some(String::new()),
        "cat" | "tee" if words.iter().all(|word| *word == "-") => input.text.clone(),
        "cat" | "tee" => None,
        "mktemp" => Some("/tmp/tmp.mktemp\n".into()),
        "rev" => input
            .text
            .as_ref()
            .map(|text| text.lines().map(|line| line.chars().rev().collect::<String>() + "\n").collect()),
        "base64" | "openssl"
            if words.iter().any(|word| matches!(*word, "-d" | "-D" | "--decode" | "-di")) =>
        {
            input.text.as_ref().and_then(|text| base64_text(text))
        }
        "xxd" if words.iter().any(|word| word.starts_with("-r")) => {
            input.text.as_ref().and_then(|text| hex_text(text))
        }
        "which" | "whence" => words.last().map(|word| format!("{word}\n")),
        "command" if matches!(words.first(), Some(&"-v" | &"-V")) => {
            words.last().map(|word| format!("{word}\n"))
        }
        _ => None,
    });
    // A decoder passes on what it reads, and hides it.
    let decodes =
        matches!(name, "base64" | "base32" | "xxd" | "openssl" | "rev" | "tr" | "gunzip" | "zcat" | "sed");
    let fetches = matches!(
        name,
        "curl" | "wget" | "fetch" | "aria2c" | "nc" | "ncat" | "lynx" | "http" | "https" | "xh"
    );
    let passes_on = input.text.is_none() && !matches!(name, "echo" | "printf");
    Output {
        text,
        fetched: fetches || (passes_on && input.fetched),
        decoded: decodes || input.decoded,
        paths: Vec::new(),
    }
}

fn echo(words: &[&str]) -> String {
    let mut words = words;
    let (mut newline, mut escapes) = (true, false);
    while let Some((first, rest)) = words.split_first() {
        let Some(flags) = first.strip_prefix('-') else { break };
        if flags.is_empty() || !flags.bytes().all(|byte| matches!(byte, b'n' | b'e' | b'E')) {
            break;
        }
        for flag in flags.bytes() {
            match flag {
                b'n' => newline = false,
                flag => escapes = flag == b'e',
            }
        }
        words = rest;
    }
    let mut text = words.join(" ");
    if escapes {
        text = unescaped(&text);
    }
    if newline {
        text.push('\n');
    }
    text
}

fn printf(words: &[&str]) -> Option<String> {
    let words = if words.first() == Some(&"--") { &words[1..] } else { words };
    let (format, mut args) = words.split_first()?;
    let format = unescaped(format);
    let mut out = String::new();
    loop {
        let before = args.len();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let next = args.first().copied().unwrap_or_default();
            match chars.next()? {
                '%' => out.push('%'),
                's' | 'd' | 'i' | 'c' | 'q' => {
                    out.push_str(next);
                    args = args.get(1..).unwrap_or_default();
                }
                'b' => {
                    out.push_str(&unescaped(next));
                    args = args.get(1..).unwrap_or_default();
                }
                _ => return None,
            }
        }
        // The format is used again as long as it takes arguments.
        if args.is_empty() || args.len() == before || out.len() > MAX {
            return Some(out);
        }
    }
}

/// Backslash escapes of `echo -e` and `printf`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let (radix, most) = match chars.peek() {
            Some('x') => {
                chars.next();
                (16, 2)
            }
            Some('0') => (8, 4),
            Some('1'..='7') => (8, 3),
            Some(c @ ('n' | 't' | 'r' | '\\' | 'a' | 'b' | 'f' | 'v' | 'e')) => {
                bytes.push(match c {
                    'n' => b'\n',
                    't' => b'\t',
                    'r' => b'\r',
                    '\\' => b'\\',
                    'a' => 7,
                    'b' => 8,
                    'f' => 12,
                    'v' => 11,
                    _ => 27,
                });
                chars.next();
                continue;
            }
            _ => {
                bytes.push(b'\\');
                continue;
            }
        };
        let mut value = 0u32;
        for _ in 0..most {
            let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
            value = value * radix + digit;
            chars.next();
        }
        bytes.push(value as u8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn base64_text(text: &str) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    engine.decode(packed).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn hex_text(text: &str) -> Option<String> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
