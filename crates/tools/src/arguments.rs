//! Arguments, read strictly: what a model misspells must not be dropped in silence.

use crate::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a tool's arguments.
///
/// # Errors
/// Says which field, what was given, and what is right.
pub(crate) fn read<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, Failure> {
    let arguments = match arguments {
        // A tool without required arguments is called with nothing.
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(mut fields) => {
            // Null is how some models leave a field out.
            fields.retain(|_, value| !value.is_null());
            Value::Object(fields)
        }
        other => {
            let message = format!("the arguments of {tool} are a JSON object, not {}", kind_of(&other));
            return Err(Failure::invalid(message));
        }
    };
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!(" `{path}`") };
        Failure::invalid(format!("argument{at} of {tool}: {}", error.into_inner()))
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Some {
        command: String,
        #[serde(default)]
        background: bool,
    }

    fn refused(arguments: Value) -> String {
        read::<Some>("terminal", arguments).unwrap_err().error
    }

    #[test]
    fn errors_name_the_field_the_value_and_what_is_right() {
        assert_eq!(
            refused(json!({"command": 5})),
            "argument `command` of terminal: invalid type: integer `5`, expected a string"
        );
        assert_eq!(
            refused(json!({"command": "x", "backgroud": true})),
            "argument `backgroud` of terminal: unknown field `backgroud`, expected `command` or `background`"
        );
        assert_eq!(refused(json!({})), "argument of terminal: missing field `command`");
        assert_eq!(refused(json!("ls")), "the arguments of terminal are a JSON object, not a string");
        assert!(read::<Some>("terminal", json!({"command": "x", "background": null})).is_ok());
    }
}
