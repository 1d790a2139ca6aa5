//! Shows settings to people: each value with where it came from, and secrets hidden.

use std::path::PathBuf;

use crate::choice::BackendKind;
use crate::config::{Candidate, Config};
use crate::error::{Problem, UnknownKey};
use crate::key::Key;
use crate::resolve::bad_value;
use crate::source::Source;
use crate::table::{SETTINGS, Setting};
use crate::value::{MASK, Raw, Value, looks_secret};

/// One setting as it stands.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value with secrets hidden; `None` if it has none.
    pub value: Option<Value>,
    /// Where the value came from.
    pub source: Source,
    /// Why the value can't be used, if it can't.
    pub problem: Option<Problem>,
    /// Whether the selected backend has this setting.
    pub matters: bool,
}

/// What one layer says about a setting.
#[derive(Clone, Debug)]
pub struct Step {
    /// The layer.
    pub source: Source,
    /// What it says, with secrets hidden.
    pub value: String,
    /// Why that can't be used, if it can't.
    pub problem: Option<Problem>,
}

/// Where a setting's value came from, and what was overridden on the way.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The setting.
    pub setting: &'static Setting,
    /// The backend it was looked up for.
    pub backend: BackendKind,
    /// Whether that backend has this setting.
    pub matters: bool,
    /// What the layers say. The first counts; the others are overridden, in order. Empty if it is set nowhere and
    /// has no default.
    pub steps: Vec<Step>,
}

/// The answer to a question about one key.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A setting.
    Setting(Box<Entry>),
    /// A key of the file that Farshell doesn't know, or a variable, with secrets hidden; `None` if it isn't set.
    Other(Option<serde_json::Value>),
}

/// The files that settings are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The Hermes home.
    pub home: PathBuf,
    /// The settings file.
    pub config: PathBuf,
    /// The file for secrets.
    pub env: PathBuf,
}

impl Config {
    /// Where the files are.
    #[must_use]
    pub fn paths(&self) -> Paths {
        let home = &self.context.home;
        Paths { home: home.root().to_owned(), config: home.config_file(), env: home.env_file() }
    }

    /// Every setting as it stands, in the order of the table. Works however broken the values are.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        let backend = self.backend();
        SETTINGS.iter().map(|setting| self.entry(setting, backend)).collect()
    }

    /// One setting, or another key of the file, as it stands.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn get(&self, key: &str) -> Result<Answer, UnknownKey> {
        let backend = self.backend();
        Ok(match Key::parse(key)? {
            Key::Setting(setting) | Key::SettingVariable(setting, _) => {
                Answer::Setting(Box::new(self.entry(setting, backend)))
            }
            Key::Entry(setting, name) => Answer::Other(match self.entry(setting, backend).value {
                Some(Value::Map(entries)) => {
                    entries.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_json())
                }
                _ => None,
            }),
            Key::Variable(name) => Answer::Other(self.variable(&name).map(|_| MASK.into())),
            Key::Foreign(path) => Answer::Other(self.foreign(&path)),
        })
    }

    /// Where a setting's value came from.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn explain(&self, key: &str) -> Result<Explanation, UnknownKey> {
        let setting = match Key::parse(key)? {
            Key::Setting(setting) | Key::SettingVariable(setting, _) | Key::Entry(setting, _) => setting,
            Key::Variable(_) | Key::Foreign(_) => {
                return Err(UnknownKey { key: key.to_owned(), suggestion: None });
            }
        };
        let backend = self.backend().unwrap_or(BackendKind::Local);
        let steps =
            self.candidates(setting, backend).iter().map(|candidate| step(setting, candidate)).collect();
        Ok(Explanation { setting, backend, matters: setting.matters_for(backend), steps })
    }

    fn entry(&self, setting: &'static Setting, selected: Option<BackendKind>) -> Entry {
        let backend = selected.unwrap_or(BackendKind::Local);
        let matters = selected.is_none_or(|backend| setting.matters_for(backend));
        let candidates = self.candidates(setting, backend);
        let Some(candidate) = candidates.first() else {
            return Entry { setting, value: None, source: Source::Default, problem: None, matters };
        };
        let problem = candidate.parsed.as_ref().err().map(|fault| bad_value(setting, candidate, fault));
        let value = match &candidate.parsed {
            Ok(parsed) => parsed.value.masked(setting.secret),
            Err(_) => Value::Text(shown(setting, candidate)),
        };
        Entry { setting, value: Some(value), source: candidate.source.clone(), problem, matters }
    }

    fn foreign(&self, path: &[String]) -> Option<serde_json::Value> {
        let root = &self.yaml.as_ref()?.root;
        let node = path.iter().try_fold(root, |node, key| node.entry(key).map(|(_, value)| value))?;
        if path.last().is_some_and(|name| looks_secret(name)) {
            return Some(MASK.into());
        }
        Some(hide_secrets(node.to_json()))
    }
}

fn hide_secrets(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(entries) => entries
            .into_iter()
            .map(|(name, value)| {
                let value = if looks_secret(&name) { MASK.into() } else { hide_secrets(value) };
                (name, value)
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        serde_json::Value::Array(items) => items.into_iter().map(hide_secrets).collect(),
        other => other,
    }
}

fn step(setting: &Setting, candidate: &Candidate) -> Step {
    Step {
        source: candidate.source.clone(),
        value: shown(setting, candidate),
        problem: candidate.parsed.as_ref().err().map(|fault| bad_value(setting, candidate, fault)),
    }
}

fn shown(setting: &Setting, candidate: &Candidate) -> String {
    match &candidate.parsed {
        Ok(parsed) => parsed.value.masked(setting.secret).to_string(),
        Err(fault) => match &candidate.raw {
            _ if setting.secret || setting.kind == crate::kind::Type::Variables => MASK.to_owned(),
            Raw::Scalar(text) => text.clone(),
            _ => fault.given.clone(),
        },
    }
}
