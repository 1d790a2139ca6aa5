//! YAML with the place of every node.
//!
//! The reader is strict where YAML is treacherous: `no` is text, a duplicate key is an error, and nesting and
//! aliases are bounded. Scalars that aren't text keep how they were written, so that `3.10` can still be a tag.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::{MergeKeyPolicy, NonFiniteFloatPolicy};

use crate::value::{MASK, looks_secret};

/// The file is not YAML that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line, from 1; 0 if it is not known.
    pub line: usize,
    /// The column, from 1; 0 if it is not known.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The lines around the fault, with a mark under it and with secrets hidden.
    pub snippet: String,
}

/// What `<<` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The keys of another map, as in YAML 1.1.
    Expand,
    /// A key like any other: how the file looks, not what it means.
    Keep,
}

/// A node and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The line it is used on, from 1.
    pub line: usize,
    /// Its bytes, if they are known. A collection has only its start.
    pub(super) span: Option<Range<usize>>,
    /// Whether this is an alias (`*name`) or something that came in by one.
    pub(super) alias: bool,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in its order.
    Map(Vec<(Node, Node)>),
}

/// Two nodes are equal when they mean the same, wherever they stand.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Float(a), Kind::Float(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        }
    }
}

impl Node {
    pub(super) fn null() -> Self {
        Self { kind: Kind::Null, line: 1, span: None, alias: false }
    }

    /// The text of a scalar, as it was written if it isn't text.
    pub(crate) fn scalar_text(&self, source: &str) -> Option<String> {
        match &self.kind {
            Kind::Text(text) => Some(text.clone()),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
            // What an alias stands for isn't written here.
            Kind::Bool(value) if self.alias => Some(value.to_string()),
            Kind::Integer(value) if self.alias => Some(value.to_string()),
            Kind::Float(value) if self.alias => Some(value.to_string()),
            _ => self.span.clone().and_then(|span| source.get(span)).map(str::to_owned),
        }
    }

    /// The same as JSON. Numbers that JSON doesn't have become text.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Integer(value) => {
                i64::try_from(*value).map_or_else(|_| value.to_string().into(), Value::from)
            }
            Kind::Float(value) => {
                serde_json::Number::from_f64(*value).map_or_else(|| value.to_string().into(), Value::Number)
            }
            Kind::Text(text) => text.clone().into(),
            Kind::List(items) => items.iter().map(Self::to_json).collect(),
            Kind::Map(entries) => {
                let name = |key: &Self| match key.to_json() {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                entries
                    .iter()
                    .map(|(key, value)| (name(key), value.to_json()))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
        }
    }

    /// The entries of a map.
    #[must_use]
    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The entry of this key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<(&Node, &Node)> {
        self.entries().iter().find(|(name, _)| name.is_key(key)).map(|(name, value)| (name, value))
    }

    /// Whether this node, as a key, is this word.
    pub(super) fn is_key(&self, key: &str) -> bool {
        matches!(&self.kind, Kind::Text(text) if text == key)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::<Kind>::deserialize(deserializer)?;
        let place = referenced.span();
        let span = match (place.byte_offset(), place.byte_len()) {
            (Some(start), Some(length)) => usize::try_from(start)
                .ok()
                .zip(usize::try_from(start.saturating_add(length)).ok())
                .map(|(a, b)| a..b),
            _ => None,
        };
        let line = usize::try_from(referenced.line()).unwrap_or(0);
        Ok(Self { kind: value, line, span, alias: referenced != defined })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        Kind::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Kind, E> {
        Ok(Kind::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Kind, E> {
        Ok(i128::try_from(value).map_or_else(|_| Kind::Text(value.to_string()), Kind::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Kind, E> {
        Ok(Kind::Text(String::from_utf8_lossy(value).into_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Kind, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Kind::Map(map))
    }
}

/// How deep a file may be nested. Settings need four levels; each level costs stack, and a thread may have little.
const MAX_DEPTH: usize = 24;

/// How many values a file may have, aliases counted as often as they are used.
const MAX_NODES: usize = 50_000;

/// Reads one document.
///
/// # Errors
/// It is not YAML, has a key twice, holds more than one document, or is nested beyond reason.
pub fn parse(text: &str, merge: Merge) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES },
        strict_booleans: true,
        with_snippet: false,
        merge_keys: match merge {
            Merge::Expand => MergeKeyPolicy::Merge,
            Merge::Keep => MergeKeyPolicy::AsOrdinary,
        },
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| describe(text, &error))
}

fn describe(text: &str, error: &serde_saphyr::Error) -> SyntaxError {
    let place = error.location();
    let number = |value: u64| usize::try_from(value).unwrap_or(0);
    let (line, column) = place.map_or((0, 0), |place| (number(place.line()), number(place.column())));
    let full = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    // The place is told apart from the message.
    let message = match full.split(" at line ").next().unwrap_or(&full) {
        // The reader's own words name its internal counters.
        text if text.contains("limits breached") => "too large or nested too deeply".to_owned(),
        text => text.to_owned(),
    };
    SyntaxError { line, column, message, snippet: snippet(text, line, column) }
}

/// The line of the fault and the one before it.
fn snippet(text: &str, line: usize, column: usize) -> String {
    let mut shown = String::new();
    let Some(index) = line.checked_sub(1) else { return shown };
    for (number, content) in
        text.lines().enumerate().skip(index.saturating_sub(1)).take_while(|(n, _)| *n <= index)
    {
        let content = hide_secret(content.replace('\t', " ").trim_end());
        let content: String = content.chars().take(120).collect();
        shown.push_str(&format!("{:>5} | {content}\n", number + 1));
    }
    if (1..=120).contains(&column) && !shown.is_empty() {
        shown.push_str(&format!("      | {}^\n", " ".repeat(column - 1)));
    }
    shown
}

/// The line with its value hidden if its key is the name of a secret.
fn hide_secret(line: &str) -> String {
    match line.split_once(':') {
        Some((key, value))
            if looks_secret(key.trim().trim_matches(['"', '\''])) && !value.trim().is_empty() =>
        {
            format!("{key}: {MASK}")
        }
        _ => line.to_owned(),
    }
}
