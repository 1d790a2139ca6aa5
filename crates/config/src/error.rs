//! What can go wrong with settings, in words for the person who wrote them.
//!
//! * [`LoadError`]: a file can't be read at all.
//! * [`InvalidSettings`]: the files can be read, and what they say can't be used. All of it is reported at once.
//! * [`UnknownKey`], [`EditError`]: a question or a change that can't be served.
//! * [`Warning`]: nothing is wrong with the result, and somebody should still know.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::dotenv::NotText;
use crate::kind::Fault;
use crate::source::Source;
use crate::yaml::SyntaxError;

/// A settings file or the process environment can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read {}: {kind}", .subject.display())]
pub struct LoadError {
    /// The file, or the name of the variable.
    pub subject: PathBuf,
    /// What is wrong with it.
    pub kind: LoadErrorKind,
}

/// Why settings can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadErrorKind {
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The bytes are not text.
    #[error(transparent)]
    NotText(#[from] NotText),
    /// The text is not YAML.
    #[error("line {}, column {}: {}\n{}", .0.line, .0.column, .0.message, .0.snippet.trim_end())]
    Syntax(SyntaxError),
    /// The text is YAML, and not a map at the top.
    #[error("it is not a map of keys and values at the top")]
    NotAMap,
    /// Neither variable says where the settings are.
    #[error("neither HERMES_HOME nor HOME is set")]
    NoHome,
    /// A variable's value is not text.
    #[error("the variable's value is not UTF-8 text")]
    NotUnicode,
}

impl LoadError {
    pub(crate) fn new(subject: impl Into<PathBuf>, kind: LoadErrorKind) -> Self {
        Self { subject: subject.into(), kind }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match &self.kind {
            LoadErrorKind::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "check who owns the file and its mode".into()
            }
            LoadErrorKind::Io(_) => "check that it is a file that can be read".into(),
            LoadErrorKind::NotText(_) => "save the file as UTF-8".into(),
            LoadErrorKind::Syntax(error) if error.line > 0 => {
                format!("correct line {} of the file; it is not changed until it can be read", error.line)
            }
            LoadErrorKind::Syntax(_) | LoadErrorKind::NotAMap => {
                "correct the file; it is not changed until it can be read".into()
            }
            LoadErrorKind::NoHome => "set HERMES_HOME to the directory that holds config.yaml".into(),
            LoadErrorKind::NotUnicode => "set the variable again".into(),
        }
    }
}

/// One setting that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The full key, `terminal.…`.
    pub key: String,
    /// Where the value came from; `None` if the trouble is that there is none.
    pub source: Option<Source>,
    /// What is wrong.
    pub kind: ProblemKind,
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// There is no setting of this name.
    UnknownKey {
        /// What was probably meant.
        suggestion: Option<String>,
    },
    /// Its value is not allowed.
    BadValue(Fault),
    /// The section is not a map of settings.
    NotAMap,
    /// The selected backend can't do without it.
    Missing {
        /// The backend.
        backend: &'static str,
        /// The variable that would set it.
        variable: &'static str,
    },
    /// It contradicts another setting.
    TooLarge {
        /// Its value.
        value: String,
        /// The setting that limits it.
        limit_key: String,
        /// The limit.
        limit: String,
        /// Where the limit came from.
        limit_source: Source,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = |f: &mut fmt::Formatter<'_>| match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        };
        let key = &self.key;
        match &self.kind {
            ProblemKind::UnknownKey { suggestion } => {
                write!(f, "{key} is not a setting")?;
                from(f)?;
                did_you_mean(f, suggestion.as_deref())
            }
            ProblemKind::BadValue(fault) => {
                write!(f, "{key}: {} is not {}", fault.given, fault.expected)?;
                from(f)?;
                did_you_mean(f, fault.suggestion.as_deref())
            }
            ProblemKind::NotAMap => {
                write!(f, "{key} is not a map of settings")?;
                from(f)
            }
            ProblemKind::Missing { backend, variable } => write!(
                f,
                "{key} is not set, and the {backend} backend needs it: set {key} in config.yaml or the variable {variable}"
            ),
            ProblemKind::TooLarge { value, limit_key, limit, limit_source } => {
                write!(f, "{key}: {value}")?;
                from(f)?;
                write!(
                    f,
                    " is more than {limit_key}: {limit} ({limit_source}); lower the first or raise the second"
                )
            }
        }
    }
}

fn did_you_mean(f: &mut fmt::Formatter<'_>, suggestion: Option<&str>) -> fmt::Result {
    match suggestion {
        Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
        None => Ok(()),
    }
}

/// Settings that can't be used, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSettings {
    /// Each with its own reason; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "{only}"),
            several => {
                write!(f, "{} settings can't be used:", several.len())?;
                several.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for InvalidSettings {}

/// There is no setting of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// What was asked for.
    pub key: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a setting", self.key)?;
        did_you_mean(f, self.suggestion.as_deref())
    }
}

impl std::error::Error for UnknownKey {}

/// Something that doesn't stand in the way of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A variable that starts like one of ours and isn't.
    UnknownVariable {
        /// The variable.
        variable: String,
        /// Where it is set.
        source: Source,
        /// What was probably meant.
        suggestion: Option<String>,
    },
    /// A key of another program that shares the file.
    NotUsed {
        /// The full key.
        key: String,
        /// Where it is set.
        source: Source,
        /// What takes its place.
        why: &'static str,
    },
    /// A part of a value that can't be used and was left out.
    LeftOut {
        /// The full key.
        key: String,
        /// Where it is set.
        source: Source,
        /// What was left out.
        note: String,
    },
    /// A value that can't be used, and isn't: something else is set in its place.
    Overridden(Problem),
    /// A value that can't be used, of a setting that the selected backend doesn't have.
    OtherBackend(Problem),
    /// A line of the `.env` file that is not understood.
    SkippedLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A file that holds secrets can be read by other users of this machine.
    ReadableByOthers {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVariable { variable: _, source, suggestion } => {
                write!(f, "{source} is not a variable of Farshell's")?;
                did_you_mean(f, suggestion.as_deref())
            }
            Self::NotUsed { key, source, why } => write!(f, "{key} ({source}) is not used: {why}"),
            Self::LeftOut { key, source, note } => write!(f, "{key} ({source}): {note}"),
            Self::Overridden(problem) => write!(f, "overridden and not usable: {problem}"),
            Self::OtherBackend(problem) => write!(f, "not usable if its backend is selected: {problem}"),
            Self::SkippedLine { path, line } => {
                write!(f, "{} line {line} is not understood and is skipped", path.display())
            }
            Self::ReadableByOthers { path, mode } => {
                let path = path.display();
                write!(
                    f,
                    "{path} holds secrets and others can read it (mode {mode:04o}): run chmod 600 {path}"
                )
            }
        }
    }
}

/// A setting that was not changed. No file is different from before.
#[derive(Debug)]
pub struct EditError {
    /// The key, as it was given.
    pub key: String,
    /// Why.
    pub kind: EditErrorKind,
}

/// Why a setting was not changed.
#[derive(Debug)]
pub enum EditErrorKind {
    /// There is no such setting.
    UnknownKey(UnknownKey),
    /// The value is not allowed.
    BadValue(Fault),
    /// The value is allowed, and contradicts another setting.
    Conflict(Box<Problem>),
    /// The file can't be read, and so is not written.
    Load(LoadError),
    /// The file can't be changed by machine without changing something else too.
    ByHand {
        /// The file.
        path: PathBuf,
        /// The line that is in the way; 0 if there is no one line.
        line: usize,
        /// What is in the way.
        why: String,
        /// What to write instead.
        text: String,
    },
    /// The system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// Another program is changing the file and doesn't finish.
    Busy {
        /// The lock it holds.
        lock: PathBuf,
    },
    /// Another program changed the file at the same time.
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl EditError {
    pub(crate) fn new(key: &str, kind: EditErrorKind) -> Self {
        Self { key: key.to_owned(), kind }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match &self.kind {
            EditErrorKind::Load(error) => Some(error.hint()),
            EditErrorKind::ByHand { path, text, .. } => {
                Some(format!("edit {} by hand: {text}", path.display()))
            }
            EditErrorKind::Busy { .. } | EditErrorKind::Changed { .. } => Some("try again".into()),
            EditErrorKind::Io { path, .. } => Some(format!("check the owner and mode of {}", path.display())),
            EditErrorKind::UnknownKey(_) => Some("`farshell config list` shows every setting".into()),
            EditErrorKind::BadValue(_) | EditErrorKind::Conflict(_) => None,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, EditErrorKind::Busy { .. } | EditErrorKind::Changed { .. })
    }

    /// The file concerned, if it is a matter of a file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            EditErrorKind::Load(error) => Some(&error.subject),
            EditErrorKind::ByHand { path, .. }
            | EditErrorKind::Io { path, .. }
            | EditErrorKind::Changed { path } => Some(path),
            EditErrorKind::Busy { lock } => Some(lock),
            EditErrorKind::UnknownKey(_) | EditErrorKind::BadValue(_) | EditErrorKind::Conflict(_) => None,
        }
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.kind {
            EditErrorKind::UnknownKey(unknown) => write!(f, "{unknown}"),
            EditErrorKind::BadValue(fault) => {
                write!(f, "{key}: {} is not {}", fault.given, fault.expected)?;
                did_you_mean(f, fault.suggestion.as_deref())
            }
            EditErrorKind::Conflict(problem) => write!(f, "{key} is not changed: {problem}"),
            EditErrorKind::Load(error) => write!(f, "{key} is not changed: {error}"),
            EditErrorKind::ByHand { path, line: 0, why, .. } => {
                write!(f, "{key} is not changed: {}: {why}", path.display())
            }
            EditErrorKind::ByHand { path, line, why, .. } => {
                write!(f, "{key} is not changed: {} line {line}: {why}", path.display())
            }
            EditErrorKind::Io { path, action, error } => {
                write!(f, "{key} is not changed: can't {action} {}: {error}", path.display())
            }
            EditErrorKind::Busy { lock } => {
                write!(f, "{key} is not changed: another program holds {}", lock.display())
            }
            EditErrorKind::Changed { path } => {
                write!(f, "{key} is not changed: another program changed {} at the same time", path.display())
            }
        }
    }
}

impl std::error::Error for EditError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            EditErrorKind::Load(error) => Some(error),
            EditErrorKind::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
