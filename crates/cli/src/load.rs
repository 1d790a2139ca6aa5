//! Reads the settings once, and says in the engine's words what is wrong with them.

use crate::output::invalid;
use farshell_config::{Answer, BackendKind, Config, Context, EditError, LoadError, Settings, UnknownKey};
use farshell_engine::{Error, Kind};

/// The settings' files and this process's environment, with a backend chosen for this call if one was named.
pub(crate) fn config(backend: Option<&str>) -> Result<Config, Error> {
    Config::load(context(backend)?).map_err(unreadable)
}

pub(crate) fn context(backend: Option<&str>) -> Result<Context, Error> {
    let context = Context::from_process().map_err(unreadable)?;
    Ok(match backend {
        Some(name) => context.with_override("backend", name),
        None => context,
    })
}

/// What the files come to.
pub(crate) fn settings(config: &Config) -> Result<Settings, Error> {
    match config.resolve() {
        Ok(resolved) => Ok(resolved.settings),
        Err(problems) => Err(invalid("checking the settings", problems.to_string())
            .with_hint("`farshell config explain KEY` shows where a value comes from, `farshell config set` and `unset` change it")),
    }
}

/// The selected backend, if the settings name one that exists.
pub(crate) fn selected(config: &Config) -> Option<BackendKind> {
    match config.get("backend").ok()? {
        Answer::Setting(entry) if entry.problem.is_none() => entry.value?.to_string().parse().ok(),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a mapping of errors")]
pub(crate) fn unreadable(error: LoadError) -> Error {
    invalid("reading the settings", error.to_string()).with_hint(error.hint())
}

#[expect(clippy::needless_pass_by_value, reason = "used as a mapping of errors")]
pub(crate) fn unknown_key(error: UnknownKey) -> Error {
    Error::new(Kind::NotFound, "looking up a setting", error.to_string())
        .with_hint("`farshell config list --all` shows every setting")
}

#[expect(clippy::needless_pass_by_value, reason = "used as a mapping of errors")]
pub(crate) fn not_changed(error: EditError) -> Error {
    let kind = if error.is_retryable() { Kind::Busy } else { Kind::Invalid };
    let failed = Error::new(kind, "changing a setting", error.to_string());
    match error.hint() {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}
