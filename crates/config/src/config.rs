//! The layers of settings: reading them, and finding what each of them says about one setting.
//!
//! The process environment is read in one place, [`Context::from_process`]; everything else works on what it is
//! given, so a test has its own world.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::choice::BackendKind;
use crate::dotenv::DotEnv;
use crate::error::{LoadError, LoadErrorKind};
use crate::expand::expand;
use crate::files::{self, Stored};
use crate::home::{HOME_VARIABLE, HermesHome, expand_tilde};
use crate::kind::{Fault, Parsed, Type};
use crate::source::Source;
use crate::table::{self, BACKEND_ALIAS, Preset, Setting};
use crate::value::{MASK, Raw, holds_secret};
use crate::yaml::{self, Kind, Merge, Node};

/// The world that settings are read from.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where the files are.
    pub home: HermesHome,
    /// The process environment.
    pub environment: BTreeMap<String, String>,
    /// Settings given for this one run, by key. They beat everything else; the last one of a key counts.
    pub overrides: Vec<(String, String)>,
}

impl Context {
    /// The world of this process.
    ///
    /// # Errors
    /// There is no home directory, or a variable of ours is not text.
    pub fn from_process() -> Result<Self, LoadError> {
        let mut environment = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            // A variable whose name isn't text is none of ours.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.insert(name, value)),
                Err(_) if name == HOME_VARIABLE || name == "HOME" || is_ours(&name) => {
                    return Err(LoadError::new(name, LoadErrorKind::NotUnicode));
                }
                Err(_) => {}
            }
        }
        Self::from_environment(environment)
    }

    /// The world in which these variables are set.
    ///
    /// # Errors
    /// They name no home directory.
    pub fn from_environment(environment: BTreeMap<String, String>) -> Result<Self, LoadError> {
        let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let user_home = variable("HOME").map(PathBuf::from);
        let root = match (variable(HOME_VARIABLE), &user_home) {
            (Some(root), _) => {
                let root = expand_tilde(root, user_home.as_deref());
                std::path::absolute(&root).unwrap_or(root)
            }
            (None, Some(home)) => home.join(".hermes"),
            (None, None) => return Err(LoadError::new(HOME_VARIABLE, LoadErrorKind::NoHome)),
        };
        Ok(Self { home: HermesHome::new(root, user_home), environment, overrides: Vec::new() })
    }

    /// The same with one setting given for this run.
    #[must_use]
    pub fn with_override(mut self, key: &str, value: impl Into<String>) -> Self {
        self.overrides.push((key.strip_prefix("terminal.").unwrap_or(key).to_owned(), value.into()));
        self
    }
}

/// Whether a variable of this name is, or looks like, one that sets something here.
pub(crate) fn is_ours(variable: &str) -> bool {
    variable.starts_with("TERMINAL_") || table::find_variable(variable).is_some()
}

/// `config.yaml`, as read.
#[derive(Clone, Debug)]
pub(crate) struct YamlFile {
    pub(crate) text: String,
    pub(crate) root: Node,
}

impl YamlFile {
    pub(crate) fn read(path: &Path, stored: &Stored) -> Result<Self, LoadError> {
        let bytes = stored.bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(&stored.bytes);
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            LoadError::new(path, LoadErrorKind::NotText(crate::dotenv::NotText { line }))
        })?;
        let root = yaml::parse(text, Merge::Expand)
            .map_err(|error| LoadError::new(path, LoadErrorKind::Syntax(error)))?;
        if !matches!(root.kind, Kind::Map(_) | Kind::Null) {
            return Err(LoadError::new(path, LoadErrorKind::NotAMap));
        }
        Ok(Self { text: text.to_owned(), root })
    }
}

/// All layers of settings, read and not yet judged.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) context: Context,
    pub(crate) yaml: Option<YamlFile>,
    pub(crate) dotenv: DotEnv,
    pub(crate) yaml_mode: u32,
    pub(crate) dotenv_mode: u32,
}

/// What one layer says about one setting.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) source: Source,
    pub(crate) raw: Raw,
    pub(crate) parsed: Result<Parsed, Fault>,
}

impl Config {
    /// Reads the files. A file that isn't there says nothing.
    ///
    /// # Errors
    /// A file is there and can't be read.
    pub fn load(context: Context) -> Result<Self, LoadError> {
        let read =
            |path: &Path| files::read(path).map_err(|error| LoadError::new(path, LoadErrorKind::Io(error)));
        let (yaml_path, dotenv_path) = (context.home.config_file(), context.home.env_file());
        let (yaml, dotenv) = (read(&yaml_path)?, read(&dotenv_path)?);
        Ok(Self {
            yaml_mode: yaml.as_ref().map_or(0, |stored| stored.mode),
            dotenv_mode: dotenv.as_ref().map_or(0, |stored| stored.mode),
            yaml: yaml.map(|stored| YamlFile::read(&yaml_path, &stored)).transpose()?,
            dotenv: dotenv
                .map(|stored| DotEnv::read(&stored.bytes))
                .transpose()
                .map_err(|error| LoadError::new(&dotenv_path, LoadErrorKind::NotText(error)))?
                .unwrap_or_default(),
            context,
        })
    }

    /// Reads the settings of this process.
    ///
    /// # Errors
    /// As for [`Context::from_process`] and [`Config::load`].
    pub fn from_process() -> Result<Self, LoadError> {
        Self::load(Context::from_process()?)
    }

    /// Where the files are.
    #[must_use]
    pub fn home(&self) -> &HermesHome {
        &self.context.home
    }

    /// A variable that isn't a setting, such as a credential: from the process environment, otherwise from `.env`.
    /// An empty value in the environment is a value.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        self.context
            .environment
            .get(name)
            .cloned()
            .or_else(|| self.dotenv.get(name).and_then(|variable| variable.value.clone()))
    }

    /// The values of variables that are to be forwarded into a place. Those that are set nowhere are left out.
    #[must_use]
    pub fn forwarded(&self, names: &[String]) -> Vec<(String, String)> {
        names.iter().filter_map(|name| Some((name.clone(), self.variable(name)?))).collect()
    }

    /// Variables of the environment and of `.env` whose values are secrets, by their names.
    #[must_use]
    pub fn secrets(&self) -> Vec<(String, String)> {
        let file =
            self.dotenv.variables().iter().filter_map(|entry| Some((&entry.name, entry.value.as_ref()?)));
        self.context
            .environment
            .iter()
            .chain(file)
            .filter(|(name, _)| holds_secret(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The `terminal` section of the file.
    pub(crate) fn section(&self) -> Option<&Node> {
        self.yaml.as_ref()?.root.entry("terminal").map(|(_, section)| section)
    }

    pub(crate) fn raw(&self, node: &Node) -> Raw {
        let text = self.yaml.as_ref().map_or("", |file| file.text.as_str());
        read(text, node, &|scalar| expand(&scalar, &|name| self.variable(name)))
    }

    fn in_file(&self, setting: &Setting) -> Option<(Source, Raw)> {
        if setting.top {
            let file = self.yaml.as_ref()?;
            let mut steps = setting.steps().into_iter();
            let first = file.root.entry(steps.next()?)?;
            let (key, value) = steps.try_fold(first, |(_, node), step| node.entry(step))?;
            return Some((self.file_source(key), literal(&file.text, value)));
        }
        let section = self.section()?;
        let (key, value) = section
            .entry(setting.key)
            .or_else(|| (setting.key == "backend").then(|| section.entry(BACKEND_ALIAS))?)?;
        Some((self.file_source(key), self.raw(value)))
    }

    pub(crate) fn file_source(&self, key: &Node) -> Source {
        Source::File { path: self.context.home.config_file(), line: key.line }
    }

    /// What the layers say about a setting for a backend, the one that counts first, the default last.
    pub(crate) fn candidates(&self, setting: &Setting, backend: BackendKind) -> Vec<Candidate> {
        let mut found: Vec<(Source, Raw)> = Vec::new();
        let given = self.context.overrides.iter().rev().find(|(key, _)| key == setting.key);
        found.extend(given.map(|(_, value)| (Source::CommandLine, Raw::Scalar(value.clone()))));
        let special =
            setting.backend_variables.iter().filter(|(kind, _)| *kind == backend).map(|(_, name)| *name);
        let own = std::iter::once(setting.variable).filter(|variable| !variable.is_empty());
        let variables: Vec<&str> = special.chain(own).collect();
        for variable in &variables {
            if let Some(value) = self.context.environment.get(*variable) {
                found.push((
                    Source::Environment { variable: (*variable).to_owned() },
                    Raw::Scalar(value.clone()),
                ));
            }
        }
        found.extend(self.in_file(setting));
        for variable in &variables {
            if let Some(entry) = self.dotenv.get(variable) {
                let source = Source::DotEnv {
                    path: self.context.home.env_file(),
                    line: entry.line,
                    variable: (*variable).to_owned(),
                };
                found.push((source, entry.value.clone().map_or(Raw::Nothing, Raw::Scalar)));
            }
        }
        // An empty value says nothing, except that an empty password is a password.
        found.retain(|(_, raw)| !raw.is_nothing() || (setting.secret && *raw != Raw::Nothing));
        found.extend(self.preset(setting, backend).map(|raw| (Source::Default, raw)));
        found
            .into_iter()
            .map(|(source, raw)| {
                let parsed = setting.kind.parse(&raw).map_err(|fault| hide(setting, fault));
                Candidate { source, raw, parsed }
            })
            .collect()
    }

    fn preset(&self, setting: &Setting, backend: BackendKind) -> Option<Raw> {
        let text = match setting.default {
            Preset::Unset => return None,
            Preset::Text(text) => text.to_owned(),
            Preset::UnderHome(name) => self.context.home.root().join(name).to_string_lossy().into_owned(),
            Preset::YesExceptLocal => (backend != BackendKind::Local).to_string(),
        };
        Some(Raw::Scalar(text))
    }
}

/// What the file says, as it stands there.
pub(crate) fn literal(text: &str, node: &Node) -> Raw {
    read(text, node, &|scalar| scalar)
}

fn read(text: &str, node: &Node, scalar: &dyn Fn(String) -> String) -> Raw {
    match &node.kind {
        Kind::Null => Raw::Nothing,
        Kind::List(items) => Raw::List(items.iter().map(|item| read(text, item, scalar)).collect()),
        Kind::Map(entries) => Raw::Map(
            entries
                .iter()
                .map(|(key, value)| (key.scalar_text(text).unwrap_or_default(), read(text, value, scalar)))
                .collect(),
        ),
        _ => Raw::Scalar(scalar(node.scalar_text(text).unwrap_or_default())),
    }
}

/// A fault's text must not show what the setting's value must not.
pub(crate) fn hide(setting: &Setting, fault: Fault) -> Fault {
    let given = match setting.kind {
        _ if setting.secret => MASK.to_owned(),
        Type::Variables => "the value".to_owned(),
        _ => return fault,
    };
    Fault { given, ..fault }
}
