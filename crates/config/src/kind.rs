//! The types settings have: how text becomes a value, which values are allowed, and how that is said.
//!
//! Parsing never guesses. A value that isn't allowed becomes a [`Fault`], which carries what was given, what
//! would have been allowed and, where a slip is likely, what was probably meant.

use std::path::Path;

use crate::choice::{BackendKind, Words};
use crate::home::stays_below;
use crate::suggest::nearest;
use crate::value::{Raw, Value};
use crate::volume::{Volume, split_volumes};

/// An upper bound that is there to keep arithmetic safe, and not worth telling anyone about.
pub(crate) const NO_LIMIT: i64 = 1_000_000_000;

/// What a setting's value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Type {
    /// Yes or no.
    Bool,
    /// A whole number.
    Integer {
        /// The least allowed.
        min: i64,
        /// The greatest allowed.
        max: i64,
        /// What it counts, in the plural; empty for a pure number.
        unit: &'static str,
    },
    /// A number.
    Number {
        /// The least allowed.
        min: f64,
        /// The greatest allowed.
        max: f64,
        /// What it counts, in the plural.
        unit: &'static str,
    },
    /// Any text.
    Text,
    /// Text that becomes one argument of a program: no blanks, no control characters, no leading `-`.
    Word,
    /// A path; `~/` is the user's home directory.
    Path,
    /// One word of a few.
    Choice(Words),
    /// A list of texts.
    List,
    /// A list of variable names. Entries that can't be names are left out with a warning.
    Names,
    /// A list of backends.
    Backends,
    /// A list of `source:/target[:options]`.
    Volumes,
    /// The same, where `/path` alone stands for `/path:/path`.
    Binds,
    /// A list of capability names and named sets.
    Capabilities,
    /// A list of paths below the Hermes home.
    HomeFiles,
    /// A map from variable names to texts.
    Variables,
    /// What a Slurm job is asked for.
    Slurm,
}

/// Why something written is not a value of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part that is wrong, as it was written.
    pub given: String,
    /// What would have been right.
    pub expected: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// A value, and what had to be left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}

/// The keys of `singularity_slurm`.
pub const SLURM_KEYS: [&str; 7] = ["partition", "time", "cpus", "memory", "gpus", "account", "extra"];

/// The capabilities that package managers need: ownership and mode changes over files of any owner, and
/// dropping to a service's own user.
pub const PACKAGE_INSTALL: [&str; 5] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"];

/// Named sets that `docker_cap_add` understands beside capability names.
pub const CAPABILITY_SETS: [&str; 2] = ["package-install", "strict"];

/// Linux's capabilities, without `CAP_`.
const CAPABILITIES: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "SYSLOG",
    "WAKE_ALARM",
];

impl Type {
    /// The allowed values, as a phrase that follows "is not".
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::Bool => "a yes or no (true, false, yes, no, on, off, 1, 0)".into(),
            Self::Integer { min, max, unit } => {
                let what = if unit.is_empty() {
                    "a whole number".into()
                } else {
                    format!("a whole number of {unit}")
                };
                if *max >= NO_LIMIT {
                    format!("{what}, at least {min}")
                } else {
                    format!("{what} from {min} to {max}")
                }
            }
            Self::Number { min, max, unit } => {
                #[expect(clippy::cast_precision_loss, reason = "the constant is exact as a double")]
                let unlimited = *max >= NO_LIMIT as f64;
                if unlimited {
                    format!("a number of {unit}, at least {min}")
                } else {
                    format!("a number of {unit} from {min} to {max}")
                }
            }
            Self::Text => "text".into(),
            Self::Word => "one word without blanks that doesn't start with '-'".into(),
            Self::Path => "a path".into(),
            Self::Choice(words) => format!("one of {}", words.names.join(", ")),
            Self::List => "a list of texts".into(),
            Self::Names => "a list of variable names".into(),
            Self::Backends => format!("a list of backends ({})", BackendKind::WORDS.names.join(", ")),
            Self::Volumes => "a list of source:/target[:options]".into(),
            Self::Binds => "a list of source[:/target[:options]]".into(),
            Self::Capabilities => {
                "a list of Linux capabilities or of the sets package-install and strict".into()
            }
            Self::HomeFiles => "a list of relative paths that stay inside the Hermes home".into(),
            Self::Variables => "a map from variable names to texts".into(),
            Self::Slurm => format!("a map with the keys {}", SLURM_KEYS.join(", ")),
        }
    }

    /// The type in a word, for tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bool => "yes/no",
            Self::Integer { .. } => "integer",
            Self::Number { .. } => "number",
            Self::Text | Self::Word => "text",
            Self::Path => "path",
            Self::Choice(_) => "choice",
            Self::List | Self::Backends | Self::Volumes | Self::Binds | Self::Capabilities => "list",
            Self::Names => "list of names",
            Self::HomeFiles => "list of paths",
            Self::Variables | Self::Slurm => "map",
        }
    }

    /// Understands what was written.
    ///
    /// # Errors
    /// It is not a value of this type.
    pub fn parse(&self, raw: &Raw) -> Result<Parsed, Fault> {
        let mut notes = Vec::new();
        let value = match self {
            Self::Bool => Value::Bool(self.boolean(raw)?),
            Self::Integer { min, max, .. } => Value::Integer(self.integer(raw, *min, *max)?),
            Self::Number { min, max, .. } => Value::Number(self.number(raw, *min, *max)?),
            Self::Text => Value::Text(self.scalar(raw)?.to_owned()),
            Self::Word => {
                let text = self.scalar(raw)?.trim();
                if text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
                    return Err(self.fault(raw));
                }
                Value::Text(text.to_owned())
            }
            Self::Path => {
                let text = self.scalar(raw)?.trim();
                if text.contains(char::is_control) {
                    return Err(self.fault(raw));
                }
                Value::Text(text.to_owned())
            }
            Self::Choice(words) => {
                let text = self.scalar(raw)?.trim();
                let Some(name) = words.canonical(text) else {
                    let suggestion = nearest(text, words.names.iter().copied()).map(str::to_owned);
                    return Err(Fault { suggestion, ..self.fault(raw) });
                };
                Value::Text(name.to_owned())
            }
            Self::List => Value::List(self.list(raw, split_commas)?),
            Self::Names => Value::List(self.names(raw, &mut notes)?),
            Self::Backends => {
                let names = self.list(raw, split_commas)?;
                match names.iter().find(|name| name.parse::<BackendKind>().is_err()) {
                    Some(unknown) => return Err(self.fault_in(unknown)),
                    None => Value::List(names),
                }
            }
            Self::Volumes | Self::Binds => Value::List(self.volumes(raw)?),
            Self::Capabilities => Value::List(self.capabilities(raw)?),
            Self::HomeFiles => {
                let files = self.list(raw, split_commas)?;
                match files.iter().find(|file| !stays_below(Path::new(file))) {
                    Some(outside) => return Err(self.fault_in(outside)),
                    None => Value::List(files),
                }
            }
            Self::Variables => Value::Map(self.variables(raw, &mut notes)?),
            Self::Slurm => Value::Map(self.slurm(raw)?),
        };
        Ok(Parsed { value, notes })
    }

    fn fault(&self, raw: &Raw) -> Fault {
        Fault { given: raw.to_string(), expected: self.expected(), suggestion: None }
    }

    fn fault_in(&self, part: &str) -> Fault {
        Fault { given: format!("{part:?}"), expected: self.expected(), suggestion: None }
    }

    fn scalar<'a>(&self, raw: &'a Raw) -> Result<&'a str, Fault> {
        match raw {
            Raw::Scalar(text) => Ok(text),
            Raw::Nothing => Ok(""),
            Raw::List(_) | Raw::Map(_) => Err(self.fault(raw)),
        }
    }

    fn boolean(&self, raw: &Raw) -> Result<bool, Fault> {
        match self.scalar(raw)?.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(self.fault(raw)),
        }
    }

    fn integer(&self, raw: &Raw, min: i64, max: i64) -> Result<i64, Fault> {
        let text = self.scalar(raw)?.trim();
        let whole = text.parse::<i64>().ok().or_else(|| {
            // `180.0` is what some programs write for 180.
            let (digits, zeros) = text.split_once('.')?;
            (!zeros.is_empty() && zeros.bytes().all(|b| b == b'0')).then(|| digits.parse().ok())?
        });
        whole.filter(|value| (min..=max).contains(value)).ok_or_else(|| self.fault(raw))
    }

    fn number(&self, raw: &Raw, min: f64, max: f64) -> Result<f64, Fault> {
        let value = self.scalar(raw)?.trim().parse::<f64>().ok();
        value.filter(|value| value.is_finite() && (min..=max).contains(value)).ok_or_else(|| self.fault(raw))
    }

    /// A list of scalars; text is a JSON list if it starts like one, and otherwise cut by `split`.
    fn list(&self, raw: &Raw, split: fn(&str) -> Vec<String>) -> Result<Vec<String>, Fault> {
        match raw {
            Raw::Nothing => Ok(Vec::new()),
            Raw::Scalar(text) if text.trim_start().starts_with('[') => match Raw::from_json_text(text) {
                Ok(list @ Raw::List(_)) => self.list(&list, split),
                _ => Err(Fault {
                    expected: format!("{} (the JSON can't be read)", self.expected()),
                    ..self.fault(raw)
                }),
            },
            Raw::Scalar(text) => Ok(split(text)),
            Raw::List(items) => items
                .iter()
                .map(|item| match item {
                    Raw::Scalar(text) => Ok(text.trim().to_owned()),
                    _ => Err(Fault { given: item.to_string(), ..self.fault(raw) }),
                })
                .collect(),
            Raw::Map(_) => Err(self.fault(raw)),
        }
    }

    fn names(&self, raw: &Raw, notes: &mut Vec<String>) -> Result<Vec<String>, Fault> {
        let mut names: Vec<String> = Vec::new();
        let mut keep = |text: &str, notes: &mut Vec<String>| {
            let name = text.trim();
            if !is_variable_name(name) {
                if !name.is_empty() {
                    notes.push(format!("{text:?} can't be the name of a variable and is left out"));
                }
            } else if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        };
        match raw {
            // Entries that aren't text are left out like other entries that can't be names.
            Raw::List(items) => {
                for item in items {
                    match item {
                        Raw::Scalar(text) => keep(text, notes),
                        other => {
                            notes.push(format!("{other} can't be the name of a variable and is left out"));
                        }
                    }
                }
            }
            Raw::Scalar(text) if text.trim_start().starts_with('[') => match Raw::from_json_text(text) {
                Ok(list @ Raw::List(_)) => return self.names(&list, notes),
                _ => return Err(self.fault(raw)),
            },
            Raw::Scalar(text) => text.split(',').for_each(|part| keep(part, notes)),
            Raw::Nothing => {}
            Raw::Map(_) => return Err(self.fault(raw)),
        }
        Ok(names)
    }

    fn volumes(&self, raw: &Raw) -> Result<Vec<String>, Fault> {
        let mut volumes = self.list(raw, split_volumes)?;
        if *self == Self::Binds {
            for volume in &mut volumes {
                if volume.starts_with('/') && !volume.contains(':') {
                    *volume = format!("{volume}:{volume}");
                }
            }
        }
        match volumes.iter().find(|text| Volume::parse(text).is_none()) {
            Some(bad) => Err(self.fault_in(bad)),
            None => Ok(volumes),
        }
    }

    fn capabilities(&self, raw: &Raw) -> Result<Vec<String>, Fault> {
        let mut found: Vec<String> = Vec::new();
        for text in self.list(raw, split_commas)? {
            let set = text.to_ascii_lowercase().replace('_', "-");
            let upper = text.to_ascii_uppercase();
            let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
            let canonical = if CAPABILITY_SETS.contains(&set.as_str()) {
                set
            } else if CAPABILITIES.contains(&name) {
                name.to_owned()
            } else {
                let known = CAPABILITIES.iter().chain(&CAPABILITY_SETS).copied();
                let suggestion = nearest(name, known).map(str::to_owned);
                return Err(Fault { suggestion, ..self.fault_in(&text) });
            };
            if !found.contains(&canonical) {
                found.push(canonical);
            }
        }
        Ok(found)
    }

    fn variables(&self, raw: &Raw, notes: &mut Vec<String>) -> Result<Vec<(String, Value)>, Fault> {
        let entries = match raw {
            Raw::Map(entries) => entries,
            Raw::Nothing => return Ok(Vec::new()),
            Raw::Scalar(text) if text.trim_start().starts_with('{') => match Raw::from_json_text(text) {
                Ok(map @ Raw::Map(_)) => return self.variables(&map, notes),
                _ => {
                    return Err(Fault {
                        expected: format!("{} (the JSON can't be read)", self.expected()),
                        ..self.fault(raw)
                    });
                }
            },
            Raw::Scalar(text) => {
                let pairs: Option<Vec<(String, Raw)>> = split_commas(text)
                    .iter()
                    .map(|pair| {
                        let (name, value) = pair.split_once('=')?;
                        Some((name.trim().to_owned(), Raw::Scalar(value.to_owned())))
                    })
                    .collect();
                return match pairs {
                    Some(pairs) => self.variables(&Raw::Map(pairs), notes),
                    None => Err(self.fault(raw)),
                };
            }
            Raw::List(_) => return Err(self.fault(raw)),
        };
        let mut variables: Vec<(String, Value)> = Vec::new();
        for (name, value) in entries {
            let name = name.trim();
            if !is_variable_name(name) {
                notes.push(format!("{name:?} can't be the name of a variable and is left out"));
                continue;
            }
            let value = match value {
                Raw::Scalar(text) => text.clone(),
                Raw::Nothing => String::new(),
                Raw::List(_) | Raw::Map(_) => {
                    notes.push(format!("the value of {name} is not text and is left out"));
                    continue;
                }
            };
            variables.retain(|(known, _)| known != name);
            variables.push((name.to_owned(), Value::Text(value)));
        }
        Ok(variables)
    }

    fn slurm(&self, raw: &Raw) -> Result<Vec<(String, Value)>, Fault> {
        let entries = match raw {
            Raw::Map(entries) => entries,
            Raw::Nothing => return Ok(Vec::new()),
            Raw::Scalar(text) if text.trim_start().starts_with('{') => match Raw::from_json_text(text) {
                Ok(map @ Raw::Map(_)) => return self.slurm(&map),
                _ => return Err(self.fault(raw)),
            },
            Raw::Scalar(text) => {
                let mut pairs = Vec::new();
                for pair in split_commas(text) {
                    let Some((key, value)) = pair.split_once('=') else { return Err(self.fault(raw)) };
                    pairs.push((key.trim().to_owned(), Raw::Scalar(value.trim().to_owned())));
                }
                return self.slurm(&Raw::Map(pairs));
            }
            Raw::List(_) => return Err(self.fault(raw)),
        };
        let mut asked = Vec::new();
        for (key, value) in entries {
            if !SLURM_KEYS.contains(&key.as_str()) {
                let suggestion = nearest(key, SLURM_KEYS).map(str::to_owned);
                return Err(Fault { suggestion, ..self.fault_in(key) });
            }
            if value.is_nothing() {
                continue;
            }
            let part = match key.as_str() {
                "extra" => Self::List.parse(value)?.value,
                "cpus" => Self::Integer { min: 1, max: NO_LIMIT, unit: "cpus" }.parse(value)?.value,
                _ => Self::Word.parse(value)?.value,
            };
            asked.push((key.clone(), part));
        }
        Ok(asked)
    }
}

/// Whether `name` can be a variable in every shell.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(crate) fn split_commas(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
