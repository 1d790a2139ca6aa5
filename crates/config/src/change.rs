//! Changes settings: which file a key belongs to, whether the value is allowed, and the change itself under a lock.
//!
//! Settings go to `config.yaml`; secrets and variables go to `.env`. A file that can't be read is never written.

use std::path::{Path, PathBuf};

use crate::config::{Config, Context, YamlFile, hide, literal};
use crate::dotenv::{self, NotEditable};
use crate::error::{EditError, EditErrorKind, LoadError, LoadErrorKind, Problem, ProblemKind, UnknownKey};
use crate::files::{self, LockError, PRIVATE, Stored};
use crate::key::Key;
use crate::kind::{Fault, Parsed, Type};
use crate::source::Source;
use crate::table::{BACKEND_ALIAS, Setting};
use crate::value::{Raw, Value, looks_secret};
use crate::yaml::{self, Refusal, RefusalKind};

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key as the file has it: a dotted path, or a variable.
    pub key: String,
    /// The file.
    pub path: PathBuf,
    /// Whether the file is different from before.
    pub changed: bool,
    /// What the person should know.
    pub notes: Vec<Note>,
}

/// What the person should know about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The key isn't one of Farshell's, so its value was not checked.
    NotChecked,
    /// The change has no effect as long as something else is set.
    OverriddenBy(Source),
    /// A part of the value was left out.
    LeftOut(String),
    /// The file could be read by others and now can't.
    MadePrivate {
        /// The file's mode before.
        from: u32,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotChecked => {
                f.write_str("the value is not checked, since the key is not one of Farshell's")
            }
            Self::OverriddenBy(source) => {
                write!(f, "it has no effect yet: {source} is set and counts for more")
            }
            Self::LeftOut(note) => f.write_str(note),
            Self::MadePrivate { from } => {
                write!(
                    f,
                    "others could read the file, which holds secrets (mode {from:04o}); now only its owner can"
                )
            }
        }
    }
}

/// Sets a key. A setting is named `timeout` or `terminal.timeout`; lists and maps are given as JSON or
/// separated by commas.
///
/// # Errors
/// There is no such setting, the value is not allowed, or the file can't be read or changed safely. Then no file
/// is different from before.
pub fn set(context: &Context, key: &str, value: &str) -> Result<Change, EditError> {
    let fail = |kind| EditError::new(key, kind);
    let parsed = Key::parse(key).map_err(|unknown| fail(EditErrorKind::UnknownKey(unknown)))?;
    let check = |setting: &Setting, raw: &Raw| {
        if raw.is_nothing() && !setting.secret {
            let expected = format!("{} (to go back to the default, unset it)", setting.kind.expected());
            return Err(fail(EditErrorKind::BadValue(Fault {
                given: "\"\"".into(),
                expected,
                suggestion: None,
            })));
        }
        setting.kind.parse(raw).map_err(|fault| fail(EditErrorKind::BadValue(hide(setting, fault))))
    };
    let raw = Raw::Scalar(value.to_owned());
    let mut change = match &parsed {
        Key::Setting(setting) if setting.secret => {
            check(setting, &raw)?;
            edit_dotenv(context, key, setting.variable, Some(value))?
        }
        Key::Setting(setting) => {
            let parsed = check(setting, &raw)?;
            if let Some(problem) = conflict(context, setting, value) {
                return Err(fail(EditErrorKind::Conflict(Box::new(problem))));
            }
            let mut change = edit_yaml(context, key, &setting.steps(), Some(&parsed.value.to_json()))?;
            change.notes.extend(parsed.notes.into_iter().map(Note::LeftOut));
            change
        }
        Key::Entry(setting, name) => {
            let parsed = check(setting, &Raw::Map(vec![(name.clone(), raw)]))?;
            let entry = match &parsed.value {
                Value::Map(entries) => entries.first().map(|(_, value)| value.to_json()),
                _ => None,
            };
            let Some(entry) = entry else {
                let given = format!("{name:?}");
                let expected = setting.kind.expected();
                return Err(fail(EditErrorKind::BadValue(Fault { given, expected, suggestion: None })));
            };
            edit_yaml(context, key, &["terminal", setting.key, name], Some(&entry))?
        }
        Key::SettingVariable(setting, variable) => {
            check(setting, &raw)?;
            edit_dotenv(context, key, variable, Some(value))?
        }
        Key::Variable(name) => edit_dotenv(context, key, name, Some(value))?,
        Key::Foreign(path) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let mut change = edit_yaml(context, key, &path, Some(&guess(value)))?;
            change.notes.push(Note::NotChecked);
            change
        }
    };
    if let Key::Setting(setting) | Key::SettingVariable(setting, _) | Key::Entry(setting, _) = &parsed {
        change.notes.extend(overridden(context, setting, &change.path).map(Note::OverriddenBy));
    }
    Ok(change)
}

/// Removes a key, so that the next layer or the default counts again. A key that isn't there is no error.
///
/// # Errors
/// As for [`set`].
pub fn unset(context: &Context, key: &str) -> Result<Change, EditError> {
    let parsed =
        Key::parse(key).map_err(|unknown| EditError::new(key, EditErrorKind::UnknownKey(unknown)))?;
    match &parsed {
        Key::Setting(setting) => {
            let mut change = edit_yaml(context, key, &setting.steps(), None)?;
            if setting.key == "backend" {
                change.changed |= edit_yaml(context, key, &["terminal", BACKEND_ALIAS], None)?.changed;
            }
            if setting.secret {
                let other = edit_dotenv(context, key, setting.variable, None)?;
                if other.changed || !change.changed {
                    change = other;
                }
            }
            Ok(change)
        }
        Key::Entry(setting, name) => edit_yaml(context, key, &["terminal", setting.key, name], None),
        Key::SettingVariable(_, variable) => edit_dotenv(context, key, variable, None),
        Key::Variable(name) => edit_dotenv(context, key, name, None),
        Key::Foreign(path) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            edit_yaml(context, key, &path, None)
        }
    }
}

/// Adds an entry to a setting that is a list, unless it is there.
///
/// # Errors
/// As for [`set`], and if the setting is no list.
pub fn add(context: &Context, key: &str, entry: &str) -> Result<Change, EditError> {
    let fail = |kind| EditError::new(key, kind);
    let setting = match Key::parse(key).map_err(|unknown| fail(EditErrorKind::UnknownKey(unknown)))? {
        Key::Setting(setting) if setting.kind == Type::List && setting.top => setting,
        _ => return Err(fail(EditErrorKind::UnknownKey(UnknownKey { key: key.into(), suggestion: None }))),
    };
    let steps = setting.steps();
    edit_yaml_with(context, key, &steps, &format!("add {entry:?} to {}", setting.path()), |file| {
        let root = Some(&file.root);
        let node =
            steps.iter().try_fold(root, |node, step| node.map(|node| node.entry(step).map(|found| found.1)));
        let list = match node.flatten().map(|node| setting.kind.parse(&literal(&file.text, node))) {
            None => Vec::new(),
            Some(Ok(Parsed { value: Value::List(list), .. })) => list,
            Some(Ok(_)) => Vec::new(),
            Some(Err(fault)) => return Err(EditErrorKind::BadValue(fault)),
        };
        if list.iter().any(|known| known == entry) {
            return Ok(None);
        }
        let all: Vec<serde_json::Value> =
            list.into_iter().map(Into::into).chain(std::iter::once(entry.into())).collect();
        Ok(Some(all.into()))
    })
}

/// What a value of somebody else's key probably is.
fn guess(text: &str) -> serde_json::Value {
    let trimmed = text.trim();
    match trimmed {
        "true" => true.into(),
        "false" => false.into(),
        _ => match serde_json::from_str::<serde_json::Value>(trimmed) {
            Ok(value @ (serde_json::Value::Array(_) | serde_json::Value::Object(_))) => value,
            // Only numbers that are written back as they were given: 1e3 and 3.10 stay text.
            Ok(value @ serde_json::Value::Number(_))
                if serde_json::to_string(&value).is_ok_and(|text| text == trimmed) =>
            {
                value
            }
            _ => text.into(),
        },
    }
}

/// The contradiction between settings that this value would bring about. What can't be read is none of this
/// function's business: writing will meet it.
fn conflict(context: &Context, setting: &Setting, value: &str) -> Option<Problem> {
    let config = Config::load(context.clone().with_override(setting.key, value)).ok()?;
    config.resolve().err()?.problems.into_iter().find(|problem| match &problem.kind {
        ProblemKind::TooLarge { limit_key, .. } => [&problem.key, limit_key].contains(&&setting.path()),
        _ => false,
    })
}

/// What counts for more than what was just written to `path`.
fn overridden(context: &Context, setting: &'static Setting, path: &Path) -> Option<Source> {
    let config = Config::load(Context { overrides: Vec::new(), ..context.clone() }).ok()?;
    let explanation = config.explain(setting.key).ok()?;
    match &explanation.steps.first()?.source {
        Source::File { path: file, .. } | Source::DotEnv { path: file, .. } if file == path => None,
        Source::Default => None,
        other => Some(other.clone()),
    }
}

fn edit_yaml(
    context: &Context,
    key: &str,
    path: &[&str],
    value: Option<&serde_json::Value>,
) -> Result<Change, EditError> {
    let by_hand = match value {
        Some(value) => format!("set {} to {value}", path.join(".")),
        None => format!("remove {}", path.join(".")),
    };
    edit_text(context, key, path, value.is_some(), &by_hand, |file| match value {
        Some(value) => Ok(yaml::set(&file.text, path, value).map(Some)),
        None => Ok(yaml::unset(&file.text, path)),
    })
}

/// Sets what follows from what is there; nothing, if that is `None`.
fn edit_yaml_with(
    context: &Context,
    key: &str,
    path: &[&str],
    by_hand: &str,
    value: impl FnOnce(&YamlFile) -> Result<Option<serde_json::Value>, EditErrorKind>,
) -> Result<Change, EditError> {
    edit_text(context, key, path, true, by_hand, |file| {
        Ok(match value(file)? {
            Some(value) => yaml::set(&file.text, path, &value).map(Some),
            None => Ok(None),
        })
    })
}

type NewText = Result<Option<String>, Refusal>;

fn edit_text(
    context: &Context,
    key: &str,
    path: &[&str],
    create: bool,
    by_hand: &str,
    change: impl FnOnce(&YamlFile) -> Result<NewText, EditErrorKind>,
) -> Result<Change, EditError> {
    let file = context.home.config_file();
    let (changed, notes) = edit_file(key, &file, create, |stored| {
        let read = YamlFile::read(&file, stored).map_err(EditErrorKind::Load)?;
        let new = change(&read)?.map_err(|refusal| refused(&file, refusal, by_hand))?;
        let Some(new) = new else { return Ok(None) };
        let mark: &[u8] =
            if stored.bytes.starts_with(&[0xef, 0xbb, 0xbf]) { &[0xef, 0xbb, 0xbf] } else { &[] };
        let secret = read.root.entry("terminal").is_some_and(|(_, section)| {
            section
                .entries()
                .iter()
                .any(|(key, _)| key.scalar_text(&read.text).is_some_and(|key| looks_secret(&key)))
        });
        Ok(Some(New { bytes: [mark, new.as_bytes()].concat(), secret }))
    })?;
    Ok(Change { key: path.join("."), path: file, changed, notes })
}

fn refused(file: &Path, refusal: Refusal, by_hand: &str) -> EditErrorKind {
    let why = match refusal.kind {
        RefusalKind::Syntax(error) => {
            return EditErrorKind::Load(LoadError::new(file, LoadErrorKind::Syntax(error)));
        }
        RefusalKind::NotAMap { key } => format!("{key} can't be put there, since what is there is not a map"),
        RefusalKind::Comments => "the value has comments inside, which would be lost".into(),
        RefusalKind::Shape => {
            "the file is written in a way that can't be changed without touching something else".into()
        }
    };
    EditErrorKind::ByHand { path: file.to_owned(), line: refusal.line, why, text: by_hand.to_owned() }
}

fn edit_dotenv(
    context: &Context,
    key: &str,
    variable: &str,
    value: Option<&str>,
) -> Result<Change, EditError> {
    let file = context.home.env_file();
    let (changed, notes) = edit_file(key, &file, value.is_some(), |stored| {
        let new = match value {
            Some(value) => dotenv::set(&stored.bytes, variable, value).map(Some),
            None => dotenv::remove(&stored.bytes, variable),
        };
        let new = new.map_err(|error| match error {
            NotEditable::NotText(error) => {
                EditErrorKind::Load(LoadError::new(&file, LoadErrorKind::NotText(error)))
            }
            // The text that would have to be written is a secret more often than not.
            NotEditable::Unsafe => EditErrorKind::ByHand {
                path: file.clone(),
                line: 0,
                why: error.to_string(),
                text: format!("{} {variable}", if value.is_some() { "set" } else { "remove" }),
            },
        })?;
        let Some(bytes) = new else { return Ok(None) };
        let secret = dotenv::DotEnv::read(&bytes)
            .is_ok_and(|file| file.variables().iter().any(|variable| looks_secret(&variable.name)));
        Ok(Some(New { bytes, secret }))
    })?;
    Ok(Change { key: variable.to_owned(), path: file, changed, notes })
}

/// A file's new content.
struct New {
    bytes: Vec<u8>,
    /// Whether some of it must not be read by others.
    secret: bool,
}

/// Reads, changes and replaces a file while nobody else does. Says whether it changed.
fn edit_file(
    key: &str,
    file: &Path,
    create: bool,
    change: impl FnOnce(&Stored) -> Result<Option<New>, EditErrorKind>,
) -> Result<(bool, Vec<Note>), EditError> {
    let fail = |kind| EditError::new(key, kind);
    let io = |action| move |error| fail(EditErrorKind::Io { path: file.to_owned(), action, error });
    // A link stays a link; what it points to is what changes.
    let real = files::real_path(file).map_err(io("find"))?;
    if create {
        files::create_parent(&real).map_err(io("make the directory of"))?;
    } else if files::read(&real).map_err(io("read"))?.is_none() {
        return Ok((false, Vec::new()));
    }
    let _lock = files::lock(&real).map_err(|error| match error {
        LockError::Busy => fail(EditErrorKind::Busy { lock: files::lock_path(&real) }),
        LockError::Io(error) => io("lock")(error),
    })?;
    let found = files::read(&real).map_err(io("read"))?;
    let before = found.clone().unwrap_or(Stored { bytes: Vec::new(), mode: PRIVATE });
    let Some(new) = change(&before).map_err(fail)? else { return Ok((false, Vec::new())) };
    if found.is_some() && new.bytes == before.bytes {
        return Ok((false, Vec::new()));
    }
    let exposed = new.secret && before.mode & 0o077 != 0;
    let mode = if exposed { PRIVATE } else { before.mode };
    // Programs that don't know the lock may write too; their change must not be lost.
    let now = files::read(&real).map_err(io("read"))?;
    if now.map(|stored| stored.bytes) != found.map(|stored| stored.bytes) {
        return Err(fail(EditErrorKind::Changed { path: real }));
    }
    files::replace(&real, &new.bytes, mode).map_err(io("write"))?;
    let notes = if exposed { vec![Note::MadePrivate { from: before.mode }] } else { Vec::new() };
    Ok((true, notes))
}
