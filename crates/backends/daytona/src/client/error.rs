//! What went wrong, out of all shapes in which Daytona says so.

use serde::Deserialize;
use std::fmt;

/// One request failed.
#[derive(Debug)]
pub struct ClientError {
    /// What was being done, a lowercase fragment.
    pub what: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server answered, and said no.
    Refused { status: u16, code: Option<String>, message: String },
    /// It could not be reached: nothing was sent.
    NotSent(String),
    /// The request was sent, and no answer came: it may have been carried out.
    Lost(String),
    /// The same, for as long as was allowed.
    TimedOut,
    /// The answer is none that Daytona gives.
    Malformed(String),
    /// An address to which the key must not go.
    Forbidden(String),
}

impl ClientError {
    pub(crate) fn new(what: impl Into<String>, fault: Fault) -> Self {
        Self { what: what.into(), fault }
    }

    /// What the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &self.fault {
            Fault::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The server's own words.
    #[must_use]
    pub fn message(&self) -> String {
        self.fault.to_string()
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.fault)
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status, message, .. } if message.is_empty() => {
                write!(f, "Daytona answered {status} and said nothing")
            }
            Self::Refused { message, .. } => f.write_str(message),
            Self::NotSent(why) => write!(f, "Daytona can't be reached: {why}"),
            Self::Lost(why) => write!(f, "the connection to Daytona broke: {why}"),
            Self::TimedOut => f.write_str("Daytona did not answer in time"),
            Self::Malformed(why) => write!(f, "the answer is not one of Daytona's: {why}"),
            Self::Forbidden(why) => f.write_str(why),
        }
    }
}

/// How much of a message is kept.
const WORDS: usize = 1000;

/// All shapes of an error in one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    message: Option<Text>,
    error: Option<Text>,
    code: Option<String>,
    error_code: Option<String>,
    errors: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    One(String),
    Many(Vec<String>),
    Other(serde_json::Value),
}

impl Text {
    fn words(self) -> String {
        match self {
            Self::One(text) => text,
            Self::Many(texts) => texts.join(", "),
            Self::Other(value) => value.to_string(),
        }
    }
}

/// What a refusal says, whatever its shape. Bytes from outside: nothing that could steer a terminal is kept.
pub(crate) fn refused(status: u16, body: &[u8]) -> Fault {
    let (code, message) = match serde_json::from_slice::<Body>(body) {
        Ok(body) => {
            let errors = (!body.errors.is_empty()).then(|| body.errors.join("; "));
            let message = body.message.or(body.error).map(Text::words).or(errors).unwrap_or_default();
            (body.code.or(body.error_code), message)
        }
        // A proxy in between may answer with a page.
        Err(_) => (None, String::from_utf8_lossy(body).lines().next().unwrap_or_default().to_owned()),
    };
    let plain = |c: char| if c == '\n' { ' ' } else { c };
    let message: String = message.chars().map(plain).filter(|c| !c.is_control()).take(WORDS).collect();
    Fault::Refused { status, code, message: message.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_an_error_is_understood() {
        for (body, code, message) in [
            (
                r#"{"statusCode":404,"error":"Not Found","message":"Sandbox x not found"}"#,
                None,
                "Sandbox x not found",
            ),
            (r#"{"statusCode":400,"error":"Bad Request","message":["a","b"]}"#, None, "a, b"),
            (
                r#"{"statusCode":409,"message":"conflict: x","code":"CONFLICT"}"#,
                Some("CONFLICT"),
                "conflict: x",
            ),
            ("", None, ""),
            (r#"{"error":"PTY session not found"}"#, None, "PTY session not found"),
            (r#"{"errors":["one","two"],"files":[]}"#, None, "one; two"),
            (r#"{"message":{"odd":1},"error_code":"X"}"#, Some("X"), r#"{"odd":1}"#),
            ("<html>\n<body>", None, "<html>"),
            ("\u{1b}[31mred", None, "[31mred"),
        ] {
            let expected =
                Fault::Refused { status: 400, code: code.map(str::to_owned), message: message.to_owned() };
            assert_eq!(refused(400, body.as_bytes()), expected, "{body}");
        }
    }
}
