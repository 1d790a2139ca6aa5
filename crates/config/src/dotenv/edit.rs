//! Changes one variable of a `.env` file and leaves every other byte as it was.

use super::parse::{DotEnv, Encoding, NotText};

/// The file can't be changed safely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEditable {
    /// It is not text.
    #[error(transparent)]
    NotText(#[from] NotText),
    /// The change would not have read back as intended.
    #[error("the change could not be made without touching something else")]
    Unsafe,
}

/// The file with `name` set to `value`: in place if it is there, otherwise on a new last line.
///
/// # Errors
/// The file is not text, or the new text would not mean exactly the intended change.
pub fn set(bytes: &[u8], name: &str, value: &str) -> Result<Vec<u8>, NotEditable> {
    let (encoding, text) = Encoding::decode(bytes)?;
    let before = DotEnv::parse(&text);
    let written = quote(value);
    let mut after = text.clone();
    // The last entry is the one that counts.
    if let Some(entry) = before.variables().iter().rev().find(|variable| variable.name == name) {
        let written = if entry.value.is_none() { format!("={written}") } else { written };
        after.replace_range(entry.value_span.clone(), &written);
    } else {
        let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
        if !after.is_empty() && !after.ends_with(['\n', '\r']) {
            after.push_str(eol);
        }
        after.push_str(&format!("{name}={written}{eol}"));
    }
    let mut expected = meaning(&before);
    match expected.iter_mut().rev().find(|(known, _)| known == name) {
        Some(entry) => entry.1 = Some(value.to_owned()),
        None => expected.push((name.to_owned(), Some(value.to_owned()))),
    }
    checked(encoding, &before, &expected, &after)
}

/// The file without `name`; `None` if it is not there.
///
/// # Errors
/// As for [`set`].
pub fn remove(bytes: &[u8], name: &str) -> Result<Option<Vec<u8>>, NotEditable> {
    let (encoding, mut after) = Encoding::decode(bytes)?;
    let before = DotEnv::parse(&after);
    let mut expected = meaning(&before);
    expected.retain(|(known, _)| known != name);
    if expected.len() == before.variables().len() {
        return Ok(None);
    }
    for entry in before.variables().iter().rev().filter(|variable| variable.name == name) {
        after.replace_range(entry.entry.clone(), "");
    }
    checked(encoding, &before, &expected, &after).map(Some)
}

type Meaning = Vec<(String, Option<String>)>;

fn meaning(file: &DotEnv) -> Meaning {
    file.variables().iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect()
}

fn checked(
    encoding: Encoding,
    before: &DotEnv,
    expected: &Meaning,
    after: &str,
) -> Result<Vec<u8>, NotEditable> {
    let read = DotEnv::parse(after);
    if &meaning(&read) == expected && read.skipped().len() == before.skipped().len() {
        Ok(encoding.encode(after))
    } else {
        Err(NotEditable::Unsafe)
    }
}

/// The value as it is written: bare where every reader agrees on it, otherwise in double quotes.
fn quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,=-~^*?!".contains(c);
    let json = value.starts_with(['[', '{'])
        && !value.contains(['\n', '\r', '\0', '#'])
        && serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok()
        && value.ends_with([']', '}']);
    if value.chars().all(plain) || json {
        return value.to_owned();
    }
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', c]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
