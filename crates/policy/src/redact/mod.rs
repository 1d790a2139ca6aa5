//! Masks secrets in what a model and logs get to see. Never used on bytes that are written back to a file.
//!
//! Two sources: values that are known to be secret ([`Redactor::new`]: from `.env`, forwarded variables), found
//! wherever they stand, and shapes of tokens (`shapes`). A secret becomes `«redacted:name»`, which no program takes
//! for a value, which is found by no shape (so that masking twice changes nothing), and which says whose it was.
//!
//! Time is linear in the text: one pass of Aho-Corasick for the values and the marks of all shapes, and an
//! expression of the regex crate for those shapes whose mark was there.

mod shapes;
mod stream;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;
use shapes::SHAPES;
use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};
pub use stream::Stream;

/// Values shorter than this stand in ordinary text by chance.
const MIN_VALUE: usize = 8;
/// The longest secret that a stream waits for.
pub(crate) const MAX_SECRET: usize = 16 * 1024;
/// Values that are in `.env` files and are no secrets.
const COMMON: &[&str] = &[
    "localhost",
    "127.0.0.1",
    "0.0.0.0",
    "development",
    "production",
    "password",
    "postgres",
    "username",
    "disabled",
    "enabled",
    "undefined",
    "changeme",
    "example.com",
    "administrator",
    "anonymous",
    "us-east-1",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "application/json",
    "/usr/bin/bash",
    "/bin/bash",
    "/usr/bin/zsh",
    "xterm-256color",
    "en_us.utf-8",
    "c.utf-8",
    "truecolor",
    "your-api-key",
    "your_api_key",
    "docker.io",
    "openai/gpt-4",
    "information",
];

/// Each is made when the first text has its mark: all of them would take as much memory as the rest of a server.
static EXPRESSIONS: [OnceLock<Option<Regex>>; SHAPES.len()] = [const { OnceLock::new() }; SHAPES.len()];

fn expression(at: usize) -> Option<&'static Regex> {
    EXPRESSIONS.get(at)?.get_or_init(|| Regex::new(SHAPES.get(at)?.expression).ok()).as_ref()
}

static MARKS: LazyLock<Option<(AhoCorasick, Vec<usize>)>> = LazyLock::new(|| {
    let mut marks = Vec::new();
    let mut owners = Vec::new();
    for (at, shape) in SHAPES.iter().enumerate() {
        for mark in shape.marks {
            marks.push(*mark);
            owners.push(at);
        }
    }
    let finder = AhoCorasick::builder().ascii_case_insensitive(true).build(marks).ok()?;
    Some((finder, owners))
});

/// Finds secrets in text.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    values: Option<AhoCorasick>,
    names: Vec<String>,
    longest: usize,
}

impl Redactor {
    /// Knows these secrets by name and value. Values that are too short or too common to be told from ordinary text
    /// are left out; lines of a value of several lines count each.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut names = Vec::new();
        let mut values: Vec<String> = Vec::new();
        for (name, value) in secrets {
            for line in value.as_ref().lines() {
                let line = line.trim();
                if is_secret(line) && !values.iter().any(|known| known == line) {
                    values.push(line.to_owned());
                    names.push(name.as_ref().to_owned());
                }
            }
        }
        let longest = values.iter().map(String::len).max().unwrap_or(0);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values);
        Self { values: if values.is_empty() { None } else { finder.ok() }, names, longest }
    }

    /// `text` without the secrets in it.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.values_masked(text);
        let keys = match private_keys(&known) {
            Some(masked) => Cow::Owned(masked),
            None => known,
        };
        match shapes_masked(&keys) {
            Some(masked) => Cow::Owned(masked),
            None => keys,
        }
    }

    /// For text that comes in pieces.
    pub fn stream(&self) -> Stream<'_> {
        Stream::new(self)
    }

    fn values_masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(values) = &self.values else { return Cow::Borrowed(text) };
        let mut out = String::new();
        let mut from = 0;
        for found in values.find_iter(text) {
            let name = self.names.get(found.pattern().as_usize()).map_or("secret", String::as_str);
            out.push_str(&text[from..found.start()]);
            mask(&mut out, name);
            from = found.end();
        }
        if from == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[from..]);
        Cow::Owned(out)
    }
}

fn mask(out: &mut String, name: &str) {
    out.push_str("«redacted:");
    out.push_str(name);
    out.push('»');
}

/// Whether a value can be told from ordinary text.
fn is_secret(value: &str) -> bool {
    let lower = value.to_lowercase();
    let plain_number =
        value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-') && value.len() < 16;
    let path_or_address =
        (value.starts_with('/') || lower.starts_with("http://") || lower.starts_with("https://"))
            && !value.contains('@')
            && !value.contains("key=")
            && !value.contains("token=");
    let one_letter = value.chars().next().is_some_and(|first| value.chars().all(|c| c == first));
    // A lower-case word, such as a name; a password of one word is longer than most words.
    let word = value.len() < 12 && value.bytes().all(|byte| byte.is_ascii_lowercase());
    value.len() >= MIN_VALUE
        && value.len() <= MAX_SECRET
        && !plain_number
        && !path_or_address
        && !one_letter
        && !word
        && !COMMON.contains(&lower.as_str())
        && !value.contains('«')
}

/// Masks what stands between the lines of a private key.
fn private_keys(text: &str) -> Option<String> {
    const BEGIN: &str = "-----BEGIN ";
    const LABEL: &str = "PRIVATE KEY";
    let mut out = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        let head = from[BEGIN.len()..]
            .find("-----")
            .filter(|length| *length < 60)
            .map(|length| BEGIN.len() + length + 5);
        let head = head.filter(|end| from[..*end].contains(LABEL));
        let Some(head) = head else {
            out.push_str(before);
            out.push_str(BEGIN);
            rest = &from[BEGIN.len()..];
            continue;
        };
        out.push_str(before);
        out.push_str(&from[..head]);
        let body = &from[head..];
        let end = body.find("-----END ").unwrap_or(body.len());
        if !body[..end].trim_start().starts_with('«') {
            out.push('\n');
            mask(&mut out, "private key");
            out.push('\n');
            changed = true;
        } else {
            out.push_str(&body[..end]);
        }
        rest = &body[end..];
        // Past the closing line, which is no beginning.
        if let Some(skip) = rest.strip_prefix("-----END ") {
            out.push_str("-----END ");
            rest = skip;
        }
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// Where tokens stand in `text`: start, end, whose.
pub(crate) fn shape_hits(text: &str) -> Vec<(usize, usize, &'static str)> {
    let Some((marks, owners)) = MARKS.as_ref() else { return Vec::new() };
    let mut wanted = [false; SHAPES.len()];
    for found in marks.find_overlapping_iter(text) {
        if let Some(owner) = owners.get(found.pattern().as_usize()) {
            wanted[*owner] = true;
        }
    }
    let mut hits = Vec::new();
    for (at, shape) in SHAPES.iter().enumerate().filter(|(at, _)| wanted[*at]) {
        let Some(expression) = expression(at) else { continue };
        for captures in expression.captures_iter(text) {
            let Some(found) = captures.get(1).or_else(|| captures.get(0)) else { continue };
            hits.push((found.start(), found.end(), shape.name));
        }
    }
    hits
}

/// The beginning of a private key that `cut` would go through, or that has not ended yet.
pub(crate) fn private_key_at(text: &str, cut: usize) -> Option<usize> {
    let begin = text.get(..cut)?.rfind("-----BEGIN ")?;
    let block = &text[begin..];
    let head = block.lines().next().unwrap_or_default();
    if head.contains("-----BEGIN ") && head.ends_with("-----") && !head.contains("PRIVATE KEY") {
        return None;
    }
    let end = block.find("-----END ").and_then(|at| block[at..].find('\n').map(|line| begin + at + line + 1));
    end.is_none_or(|end| end > cut).then_some(begin)
}

fn shapes_masked(text: &str) -> Option<String> {
    let mut hits = shape_hits(text);
    if hits.is_empty() {
        return None;
    }
    // The longest first where they overlap: the narrower name is the better one only if both begin together.
    hits.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (start, end, name) in hits {
        if start < from {
            continue;
        }
        out.push_str(&text[from..start]);
        mask(&mut out, name);
        from = end;
    }
    out.push_str(&text[from..]);
    Some(out)
}

#[cfg(test)]
mod tests;
