//! What was typed, together with the settings, comes to this.

use crate::args::{EnvironmentArgs, RunArgs};
use crate::output::invalid;
use crate::variables::{self, Homes};
use crate::{load, registry};
use farshell_config::{BackendKind, Config, Settings, settings};
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Backend, Error, RunOptions, Spec, TaskName};
use farshell_protocol::SessionName;
use farshell_protocol::process::Stdin;
use farshell_protocol::session::Mode;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An environment that is wanted, with the backend that has it.
#[derive(Clone, Debug)]
pub(crate) struct EnvironmentPlan {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) spec: Spec,
}

/// A command that is wanted.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) environment: EnvironmentPlan,
    pub(crate) sessions: SessionDefaults,
    pub(crate) options: RunOptions,
    pub(crate) input: Option<Input>,
    pub(crate) report: Report,
}

/// What a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Our own standard input.
    Ours,
    File(PathBuf),
}

/// How the caller wants to hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Output as it comes.
    Stream,
    /// One object at the end, with this much of each stream.
    Json { limit: usize },
}

impl EnvironmentPlan {
    pub(crate) fn new(args: &EnvironmentArgs) -> Result<(Self, Config, Settings), Error> {
        let task = TaskName::new(args.task.as_str()).map_err(|e| invalid("reading --task", e.to_string()))?;
        let config = load::config(args.backend.as_deref())?;
        let settings = load::settings(&config)?;
        let backend = Arc::from(registry::open(&settings, config.home().root())?);
        let spec = Spec { task, lease: settings.lifetime, settings: BTreeMap::new() };
        Ok((Self { backend, spec }, config, settings))
    }
}

impl RunPlan {
    pub(crate) fn new(args: RunArgs) -> Result<Self, Error> {
        let session = SessionName::new(args.session.as_str())
            .map_err(|e| invalid("reading --session", e.to_string()))?;
        let (environment, config, settings) = EnvironmentPlan::new(&args.environment)?;
        let timeout = timeout(args.timeout.as_deref(), &settings)?;
        let input =
            args.stdin.map(|file| if file.as_os_str() == "-" { Input::Ours } else { Input::File(file) });
        let mut options = RunOptions::new(session, command(args.command));
        options.workdir = args.workdir.map(OsString::into_vec);
        options.timeout = Some(timeout);
        options.grace = settings.term_grace;
        options.stdin = if input.is_some() { Stdin::Pipe } else { Stdin::Null };
        options.log_cap = settings.log_cap;
        let sessions = session_defaults(&config, &settings)?;
        let report = if args.json { Report::Json { limit: args.max_output } } else { Report::Stream };
        Ok(Self { environment, sessions, options, input, report })
    }
}

fn session_defaults(config: &Config, settings: &Settings) -> Result<SessionDefaults, Error> {
    let mode = if settings.persistent_shell { Mode::Live } else { Mode::OneShot };
    let settings::Backend::Local(local) = &settings.backend else {
        return Ok(SessionDefaults::plain(mode));
    };
    let here = std::env::current_dir().map_err(|e| {
        Error::io("finding the current directory", e)
            .with_hint("it may have been removed: change to another one")
    })?;
    let real_home = std::env::var_os("HOME");
    let homes = Homes::choose(local.home_mode, real_home.as_deref(), config.home().root());
    if let Some(profile) = homes.profile() {
        make_private(profile)?;
    }
    let mut env = variables::for_session(std::env::vars_os(), &settings.env_passthrough, &homes);
    for (name, value) in config.forwarded(&settings.env_passthrough) {
        // Those of `.env` are not among our own.
        if std::env::var_os(&name).is_none() {
            env.push((ByteBuf::from(name), ByteBuf::from(value)));
        }
    }
    let cwd = match &settings.cwd {
        settings::StartDirectory::BackendDefault => here.into_os_string().into_vec(),
        path @ settings::StartDirectory::Path(_) => path.resolve(BackendKind::Local, &here).into_bytes(),
    };
    let init_files = if !local.shell_init_files.is_empty() {
        local.shell_init_files.clone()
    } else if let (true, Some(home)) = (local.auto_source_bashrc, homes.real()) {
        [".profile", ".bash_profile", ".bashrc"].map(|name| home.join(name)).to_vec()
    } else {
        Vec::new()
    };
    let init_files = init_files.iter().map(|file| ByteBuf::from(file.as_os_str().as_bytes())).collect();
    Ok(SessionDefaults { mode, env, clear_env: true, cwd: Some(cwd), init_files })
}

fn make_private(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        Error::io(format!("making the profile's home {}", dir.display()), e)
            .with_hint("`farshell config set home_mode real` uses your own home directory instead")
    })
}

/// How long the command may take.
fn timeout(given: Option<&str>, settings: &Settings) -> Result<Duration, Error> {
    const WHAT: &str = "reading --timeout";
    let Some(text) = given else { return Ok(settings.timeout) };
    let seconds = text.trim().parse::<f64>().ok().filter(|s| *s > 0.0);
    // What rounds to nothing is nothing.
    let timeout = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|t| t.as_millis() > 0);
    let most = settings.max_foreground_timeout;
    match timeout {
        Some(timeout) if timeout > most => Err(invalid(
            WHAT,
            format!("{text} s is more than max_foreground_timeout, which is {} s", most.as_secs()),
        )
        .with_hint(format!(
            "give at most {} s, or raise the limit with `farshell config set max_foreground_timeout SECONDS`",
            most.as_secs()
        ))),
        Some(timeout) => Ok(timeout),
        // Above what a duration holds, and so above the limit too.
        None => Err(invalid(WHAT, format!("{text:?} is not a number of seconds above 0"))
            .with_hint(format!("give a number above 0 and up to {}, such as 10 or 0.5", most.as_secs()))),
    }
}

/// One argument is a command line; several are words.
fn command(words: Vec<OsString>) -> Vec<u8> {
    if let [line] = words.as_slice() {
        return line.as_bytes().to_vec();
    }
    let mut text = Vec::new();
    for word in words {
        if !text.is_empty() {
            text.push(b' ');
        }
        quote(&mut text, word.as_bytes());
    }
    text
}

/// Quotes a word for the shell, unless it means nothing but itself.
fn quote(text: &mut Vec<u8>, word: &[u8]) {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./,:@%+".contains(b);
    if !word.is_empty() && word.iter().all(plain) {
        text.extend_from_slice(word);
        return;
    }
    text.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_argument_is_a_command_line_and_several_are_words() {
        let said =
            |words: &[&str]| String::from_utf8(command(words.iter().map(OsString::from).collect())).unwrap();
        assert_eq!(said(&["echo $HOME; ls *"]), "echo $HOME; ls *");
        assert_eq!(said(&["ls", "-l", "a b"]), "ls -l 'a b'");
        assert_eq!(said(&["echo", "it's", "", "$HOME", "*"]), r"echo 'it'\''s' '' '$HOME' '*'");
        assert_eq!(said(&["A=1", "~", "{a,b}"]), "'A=1' '~' '{a,b}'");
    }
}
