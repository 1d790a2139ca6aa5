//! Writes values as YAML that every reader understands in the same way.

use serde_json::Value;

/// A value that fits on the rest of a line: scalars, and collections in flow style.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", scalar(key), inline(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Whether a value is better written below its key than beside it.
pub(super) fn is_tall(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => false,
    }
}

/// The lines of a collection in block style, each with its indentation and without a line end.
pub(super) fn block(value: &Value, indent: usize, step: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    let mut lines = Vec::new();
    match value {
        Value::Array(items) => lines.extend(items.iter().map(|item| format!("{pad}- {}", inline(item)))),
        Value::Object(entries) => {
            for (key, value) in entries {
                if is_tall(value) {
                    lines.push(format!("{pad}{}:", scalar(key)));
                    lines.extend(block(value, indent + step, step));
                } else {
                    lines.push(format!("{pad}{}: {}", scalar(key), inline(value)));
                }
            }
        }
        other => lines.push(format!("{pad}{}", inline(other))),
    }
    lines
}

/// Text: plain where nothing in it could be taken for anything else, otherwise in double quotes.
pub(super) fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // Control characters, and those that some readers take for line ends or marks.
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
            {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn is_plain(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    first
        && !word
        && !text.ends_with(':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./:@+-".contains(c))
}
