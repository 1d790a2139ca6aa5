//! What a key on the command line means.

use crate::error::UnknownKey;
use crate::kind::{Type, is_variable_name};
use crate::suggest::{nearest, nearest_variable};
use crate::table::{self, SETTINGS, Setting};
use crate::value::looks_secret;

/// What a key means.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// A setting: `timeout` or `terminal.timeout`.
    Setting(&'static Setting),
    /// One entry of a setting that is a map: `terminal.docker_env.LANG`.
    Entry(&'static Setting, String),
    /// A variable that sets a setting: `TERMINAL_TIMEOUT`.
    SettingVariable(&'static Setting, &'static str),
    /// Another variable that belongs into `.env`: `DAYTONA_API_KEY`.
    Variable(String),
    /// A key of the file that is none of ours: `approvals.mode`.
    Foreign(Vec<String>),
}

impl Key {
    pub(crate) fn parse(key: &str) -> Result<Self, UnknownKey> {
        let key = key.trim();
        if let Some(rest) = key.strip_prefix("terminal.") {
            return match Self::below_terminal(rest) {
                Some(Self::Setting(setting)) if setting.top => Err(unknown(key, rest)),
                found => found.ok_or_else(|| unknown(key, rest)),
            };
        }
        if key.contains('.') {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            let sound = path.iter().all(|part| !part.trim().is_empty() && !part.contains(char::is_control));
            // `docker_env.LANG` is short for `terminal.docker_env.LANG`.
            return match Self::below_terminal(key) {
                Some(entry) => Ok(entry),
                // A list that nobody reads protects nobody.
                None if is_slip(key) => Err(unknown(key, key)),
                None if sound => Ok(Self::Foreign(path)),
                None => Err(UnknownKey { key: key.to_owned(), suggestion: None }),
            };
        }
        if let Some(setting) = Self::below_terminal(key) {
            return Ok(setting);
        }
        if let Some(setting) = table::find_variable(key)
            && let Some(variable) = setting.variables().find(|known| *known == key)
        {
            return Ok(Self::SettingVariable(setting, variable));
        }
        if key.starts_with("TERMINAL_") {
            let suggestion =
                nearest_variable(key, SETTINGS.iter().flat_map(Setting::variables)).map(str::to_owned);
            return Err(UnknownKey { key: key.to_owned(), suggestion });
        }
        if is_variable_name(key)
            && key.to_ascii_uppercase() == key
            && (looks_secret(key) || key.contains("_TOKEN"))
        {
            return Ok(Self::Variable(key.to_owned()));
        }
        // A bare word close to a setting is a slip; any other is somebody else's key at the top of the file.
        let near = nearest(key, SETTINGS.iter().map(|setting| setting.key)).is_some();
        if near || key == "terminal" || key.is_empty() || key.contains(char::is_control) {
            return Err(unknown(key, key));
        }
        Ok(Self::Foreign(vec![key.to_owned()]))
    }

    fn below_terminal(rest: &str) -> Option<Self> {
        if let Some(setting) = table::find(rest) {
            return Some(Self::Setting(setting));
        }
        let (key, entry) = rest.split_once('.')?;
        let setting = table::find(key)?;
        (matches!(setting.kind, Type::Variables | Type::Slurm) && !entry.is_empty())
            .then(|| Self::Entry(setting, entry.to_owned()))
    }
}

/// Whether a key below `approvals` is probably meant to be one of ours.
pub(crate) fn is_slip(key: &str) -> bool {
    let below = |key: &'_ str| key.strip_prefix(table::APPROVALS)?.strip_prefix('.').map(str::to_owned);
    let Some(name) = below(key) else { return false };
    let ours: Vec<String> = SETTINGS.iter().filter_map(|setting| below(setting.key)).collect();
    !ours.contains(&name)
        && !table::APPROVALS_OF_HERMES.contains(&name.as_str())
        && nearest(&name, ours.iter().map(String::as_str)).is_some()
}

pub(crate) fn suggestion(name: &str) -> Option<String> {
    let near = nearest(name, SETTINGS.iter().map(|setting| setting.key))?;
    table::find(near).map(Setting::path)
}

fn unknown(key: &str, name: &str) -> UnknownKey {
    let suggestion = suggestion(name);
    UnknownKey { key: key.to_owned(), suggestion }
}
