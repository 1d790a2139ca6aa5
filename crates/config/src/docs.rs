//! The documentation's table of settings, made from the table that the program itself uses.

use crate::choice::BackendKind;
use crate::kind::Type;
use crate::table::{Preset, SETTINGS, Setting};

/// The settings as a Markdown table, with a line end after each row.
#[must_use]
pub fn markdown_table() -> String {
    let mut text = String::from(
        "| key (below `terminal`, except the last ones) | variable | value | default | backends | meaning |\n|---|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let variables: Vec<String> = setting.variables().map(|variable| format!("`{variable}`")).collect();
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            setting.key,
            variables.join(", "),
            value(setting),
            default(setting),
            backends(setting),
            setting.help.replace('|', "\\|"),
        ));
    }
    text
}

fn value(setting: &Setting) -> String {
    match setting.kind {
        Type::Choice(words) => {
            words.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
        Type::Integer { .. } | Type::Number { .. } => {
            setting.kind.expected().trim_start_matches("a ").to_owned()
        }
        other => other.name().to_owned(),
    }
}

fn default(setting: &Setting) -> String {
    match setting.default {
        Preset::Unset => "none".into(),
        Preset::Text(text) => format!("`{text}`"),
        Preset::UnderHome(name) => format!("`{name}` in the Hermes home"),
        Preset::YesExceptLocal => "`true`; `false` on local".into(),
    }
}

fn backends(setting: &Setting) -> String {
    match setting.backends {
        all if all.len() == BackendKind::ALL.len() => "all".into(),
        some if some.len() == BackendKind::ALL.len() - 1 && !some.contains(&BackendKind::Local) => {
            "all but local".into()
        }
        some => some.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "),
    }
}
