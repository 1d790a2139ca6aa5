//! What a line says, as far as it matters on the way, and what is said in the server's place.

use farshell_api::ApiError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

pub(super) const CANCELLED: &str = "notifications/cancelled";
/// JSON-RPC: the one who was asked has failed.
const INTERNAL: i32 = -32603;

/// A line.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Value,
        method: String,
    },
    Notification {
        method: String,
    },
    Response {
        id: Value,
    },
    /// No message that can be understood.
    Other,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    result: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

impl Message {
    pub(super) fn read(line: &[u8]) -> Self {
        match serde_json::from_slice::<Envelope>(line) {
            Ok(Envelope { id: Some(id), method: Some(method), .. }) => Self::Request { id, method },
            Ok(Envelope { id: None, method: Some(method), .. }) => Self::Notification { method },
            Ok(Envelope { id: Some(id), result, error, .. }) if result.is_some() || error.is_some() => {
                Self::Response { id }
            }
            _ => Self::Other,
        }
    }
}

/// The same message under another id.
pub(super) fn with_id(line: &[u8], id: Value) -> Vec<u8> {
    let mut message: Value = serde_json::from_slice(line).unwrap_or_default();
    if let Some(message) = message.as_object_mut() {
        message.insert("id".into(), id);
    }
    message.to_string().into_bytes()
}

/// Which request a notification cancels.
pub(super) fn cancelled_id(line: &[u8]) -> Option<Value> {
    let message: Value = serde_json::from_slice(line).ok()?;
    Some(message.get("params")?.get("requestId")?.clone())
}

/// Takes a question back. The id is as it is written.
pub(super) fn take_back(id: &str, reason: &str) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    let params = json!({"requestId": id, "reason": reason});
    json!({"jsonrpc": "2.0", "method": CANCELLED, "params": params}).to_string().into_bytes()
}

/// Nobody can be asked.
pub(super) fn failure(id: &Value, error: &ApiError) -> Vec<u8> {
    let hint = error.hint.as_ref().map_or_else(String::new, |hint| format!("; hint: {hint}"));
    let message = format!("{}: {}{hint}", error.operation, error.message);
    let error = json!({"code": INTERNAL, "message": message, "data": error});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes()
}

/// The result of a tool that was called, and whose server has gone.
pub(super) fn unknown_outcome(id: &Value, modern: bool) -> Vec<u8> {
    let message = "unknown outcome: the server was lost in the middle of this call. It was not sent again. What it began may go on: \
                   look at what has become of it (process, action list, and the files it changes) before you do it again";
    let structured = json!({"error": message});
    let text = structured.to_string();
    let mut result = json!({
        "content": [{"type": "text", "text": text}],
        "structuredContent": structured,
        "isError": true,
    });
    if modern && let Some(result) = result.as_object_mut() {
        result.insert("resultType".into(), "complete".into());
    }
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let read = |text: &str| Message::read(text.as_bytes());
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#),
            Message::Request { id: 1.into(), method: "ping".into() }
        );
        assert_eq!(
            read(r#"{"method":"notifications/x"}"#),
            Message::Notification { method: "notifications/x".into() }
        );
        assert_eq!(read(r#"{"id":"a","result":{}}"#), Message::Response { id: "a".into() });
        assert_eq!(read(r#"{"id":"a","error":{}}"#), Message::Response { id: "a".into() });
        for other in
            ["", "x", "[]", "{}", r#"{"id":1}"#, r#"{"id":null,"error":{}}"#, r#"{"id":1,"method":2}"#]
        {
            assert_eq!(read(other), Message::Other, "{other}");
        }
    }

    #[test]
    fn ids_are_replaced_and_nothing_else() {
        let line = br#"{"id":3,"method":"m","params":{"b":1.5,"a":[12345678901234567890]}}"#;
        let changed = String::from_utf8(with_id(line, "x".into())).unwrap();
        assert_eq!(changed, r#"{"id":"x","method":"m","params":{"b":1.5,"a":[12345678901234567890]}}"#);
        assert_eq!(cancelled_id(&take_back("\"x\"", "why")), Some("x".into()));
        assert_eq!(cancelled_id(b"{}"), None);
    }
}
