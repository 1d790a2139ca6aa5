//! What went wrong, as a model reads it.

use crate::Answer;
use farshell_engine::{Error, Kind};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// A result, or why there is none.
pub(crate) type Outcome = Result<Answer, Failure>;

/// A call that could not do what was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Failure {
    /// What went wrong and what to do next. Null or absent if the call did what was asked.
    pub(crate) error: String,
    /// The sort of error: `invalid`, `denied`, `not_found`, `stale`, `unknown_outcome`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_kind: Option<&'static str>,
    /// `blocked` by the user or a rule, `error`, `not_found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<&'static str>,
    /// Whether the same call can help: `never`, `safe`, or `unsafe` (it may have taken effect already).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<&'static str>,
    /// Fields of the tool's own that are there even so.
    #[serde(skip)]
    pub(crate) more: Box<Map<String, Value>>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            error: message.into(),
            error_kind: Some(kind.name()),
            status: Some("error"),
            ..Self::default()
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// An argument that can't be used: which, what it was, and what would be right.
    pub(crate) fn argument(field: &str, value: impl std::fmt::Debug, right: &str) -> Self {
        let value = format!("{value:?}");
        let end = value.floor_char_boundary(200);
        let dots = if end < value.len() { "…" } else { "" };
        Self::invalid(format!("argument `{field}` can't be {}{dots}: {right}", &value[..end]))
    }

    pub(crate) fn status(mut self, status: &'static str) -> Self {
        self.status = Some(status);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// What stands beside the error comes first: it is what a model looks at.
    pub(crate) fn answer(self) -> Answer {
        let mut result = Map::clone(&self.more);
        if let Ok(Value::Object(fields)) = serde_json::to_value(&self) {
            result.extend(fields);
        }
        Answer { result: Value::Object(result), failed: true }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let unknown = if error.kind == Kind::UnknownOutcome { "unknown outcome: " } else { "" };
        let mut text = format!("{unknown}{error}");
        if let Some(hint) = &error.hint {
            text.push_str(". ");
            text.push_str(hint);
        }
        let retry = match error.retry() {
            farshell_engine::Retry::Never => "never",
            farshell_engine::Retry::Safe => "safe",
            farshell_engine::Retry::Unsafe => "unsafe",
        };
        Self { retry: Some(retry), ..Self::new(error.kind, text) }
    }
}

/// A result that is shaped by its type.
pub(crate) fn answer(result: &impl Serialize) -> Outcome {
    match serde_json::to_value(result) {
        Ok(result) => Ok(Answer { result, failed: false }),
        Err(error) => Err(Failure::new(Kind::System, format!("the result can't be shown: {error}"))),
    }
}
