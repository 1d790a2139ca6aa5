//! Values of settings, before and after they are understood.
//!
//! [`Raw`] is what somebody wrote: text from a variable, or a YAML node. [`Value`] is what it means for a
//! setting of a given [`Type`](crate::kind::Type). The step between them is in [`crate::kind`].

use std::fmt;

use serde_json::json;

/// What was written, with no meaning yet. A scalar is its text, whichever file it came from, so that `180`,
/// `"180"` and `TERMINAL_TIMEOUT=180` are one thing.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw {
    /// Nothing: an empty variable, or YAML's null.
    Nothing,
    /// Text.
    Scalar(String),
    /// A YAML or JSON list.
    List(Vec<Raw>),
    /// A YAML or JSON map, in its order.
    Map(Vec<(String, Raw)>),
}

impl Raw {
    /// Text that holds a JSON list or object, as variables do.
    pub(crate) fn from_json_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<serde_json::Value>(text).map(|value| Self::from_json(&value))
    }

    fn from_json(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Nothing,
            serde_json::Value::String(text) => Self::Scalar(text.clone()),
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Self::Scalar(value.to_string()),
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(map) => {
                Self::Map(map.iter().map(|(key, value)| (key.clone(), Self::from_json(value))).collect())
            }
        }
    }

    /// Whether nothing was said.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Scalar(text) => text.trim().is_empty(),
            Self::List(_) | Self::Map(_) => false,
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Nothing => serde_json::Value::Null,
            Self::Scalar(text) => json!(text),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone(), value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(text) => write!(f, "{text:?}"),
            _ => write!(f, "{}", self.to_json()),
        }
    }
}

/// What a setting means.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Text, a path, or a canonical choice.
    Text(String),
    /// Several.
    List(Vec<String>),
    /// Several with names, in their order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// The same as JSON.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(value) => json!(value),
            Self::Integer(value) => json!(value),
            Self::Number(value) if value.fract() == 0.0 && value.abs() < 1e15 => {
                #[expect(clippy::cast_possible_truncation, reason = "whole and far below the limit of i64")]
                let whole = *value as i64;
                json!(whole)
            }
            Self::Number(value) => json!(value),
            Self::Text(value) => json!(value),
            Self::List(items) => json!(items),
            Self::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone(), value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// The value with everything that looks like a secret hidden.
    pub(crate) fn masked(&self, secret: bool) -> Self {
        match self {
            _ if secret => Self::Text(MASK.to_owned()),
            Self::Map(entries) => Self::Map(
                entries
                    .iter()
                    .map(|(name, value)| (name.clone(), value.masked(looks_secret(name))))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            other => write!(f, "{}", other.to_json()),
        }
    }
}

/// What is shown in place of a secret. Its length says nothing about the secret's.
pub const MASK: &str = "********";

/// Whether a variable of this name holds something that must not be shown.
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"]
        .iter()
        .any(|ending| name.ends_with(ending))
        // Names of files and settings of ours that end like a secret and are none.
        && !matches!(name.as_str(), "TERMINAL_SSH_KEY" | "SSH_KEY")
}

/// Whether a variable of this name holds something that nobody should see, by the words in it.
#[must_use]
pub fn holds_secret(name: &str) -> bool {
    const WORDS: [&str; 15] = [
        "KEY",
        "KEYS",
        "APIKEY",
        "TOKEN",
        "TOKENS",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "JWT",
        "PAT",
        "COOKIE",
    ];
    name.to_ascii_uppercase().split(['_', '-']).any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_secret() {
        for name in ["SUDO_PASSWORD", "OPENAI_API_KEY", "GH_TOKEN", "MODAL_TOKEN_SECRET", "sudo_password"] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["TERMINAL_SSH_KEY", "MODAL_TOKEN_ID", "PATH", "TERMINAL_TIMEOUT"] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn maps_hide_only_their_secrets() {
        let map = Value::Map(vec![
            ("LANG".into(), Value::Text("C".into())),
            ("NPM_TOKEN".into(), Value::Text("abc".into())),
        ]);
        assert_eq!(map.masked(false).to_string(), r#"{"LANG":"C","NPM_TOKEN":"********"}"#);
        assert_eq!(map.masked(true).to_string(), MASK);
    }
}
