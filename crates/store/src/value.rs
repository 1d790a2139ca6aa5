//! Values on their way into columns and back.

use crate::error::{Error, Kind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// SQLite's integers have a sign.
pub(crate) fn int(value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| Error::new(Kind::Invalid, format!("the number {value} is too large")))
}

pub(crate) fn natural(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| unreadable(format!("the number {value} is less than 0")))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(Kind::Invalid, format!("it can't be written as JSON: {error}")))
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(unreadable)
}

/// The name that the API has for a state or a kind.
pub(crate) fn to_word(value: &impl Serialize) -> Result<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Ok(word),
        _ => Err(Error::new(Kind::Invalid, "it has no name")),
    }
}

pub(crate) fn from_word<T: DeserializeOwned>(word: String) -> Result<T> {
    serde_json::from_value(Value::String(word)).map_err(unreadable)
}

fn unreadable(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Corrupt, format!("a row does not hold what it should: {why}"))
        .with_hint("the row was changed by another program or by an unknown release of farshell")
}
