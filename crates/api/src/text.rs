//! Text that may be bytes: commands, directories, variables and output need not be UTF-8, JSON strings must be.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Bytes that are a plain string in JSON if they are UTF-8, and `{"base64": "…"}` if not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded<'a> {
    base64: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Plain(String),
    Encoded(Encoded<'static>),
}

impl Text {
    /// For people: what is no text is replaced.
    #[must_use]
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl<T: Into<Vec<u8>>> From<T> for Text {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: STANDARD.encode(&self.0).into() }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Either::deserialize(deserializer)? {
            Either::Plain(text) => Ok(Self(text.into_bytes())),
            Either::Encoded(encoded) => {
                STANDARD.decode(encoded.base64.as_bytes()).map(Self).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A string; bytes that are not UTF-8 are an object with their base64 form.",
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
                    "required": ["base64"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_string_and_bytes_are_marked() {
        for (bytes, json) in [
            (b"abc\xc3\xa9\0".to_vec(), "\"abcé\\u0000\""),
            (b"a\xff".to_vec(), r#"{"base64":"Yf8="}"#),
            (Vec::new(), "\"\""),
        ] {
            let text = Text(bytes);
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            assert_eq!(serde_json::from_str::<Text>(json).unwrap(), text);
        }
        assert!(serde_json::from_str::<Text>(r#"{"base64":"*"}"#).is_err());
        assert!(serde_json::from_str::<Text>(r#"{"base64":"","more":1}"#).is_err());
    }
}
