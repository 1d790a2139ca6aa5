//! `apptainer` or `singularity` itself.

use crate::config::Config;
use farshell_engine::{Error, Kind, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::Command;

const WHAT: &str = "preparing the singularity backend";
/// In the order of preference.
const NAMES: [&str; 2] = ["apptainer", "singularity"];
/// How long it may take to say its version.
const ANSWER: Duration = Duration::from_secs(20);

/// What it needs of the caller's environment to find its files, helpers and the user's control groups.
const NEEDED: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "APPTAINER_CACHEDIR",
    "APPTAINER_TMPDIR",
    "APPTAINER_CONFIGDIR",
    "SINGULARITY_CACHEDIR",
    "SINGULARITY_TMPDIR",
    "SINGULARITY_CONFIGDIR",
];

/// What it needs besides to get at a registry. No instance is started with these.
const REGISTRY: [&str; 17] = [
    "APPTAINER_DOCKER_USERNAME",
    "APPTAINER_DOCKER_PASSWORD",
    "APPTAINER_NOHTTPS",
    "APPTAINER_DISABLE_CACHE",
    "SINGULARITY_DOCKER_USERNAME",
    "SINGULARITY_DOCKER_PASSWORD",
    "SINGULARITY_NOHTTPS",
    "SINGULARITY_DISABLE_CACHE",
    "DOCKER_CONFIG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// The programs of this machine, and what they said of themselves: asking takes longer than a command.
static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Program>>> = LazyLock::new(Mutex::default);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// `apptainer`, `singularity-ce`, `singularity`
    pub(crate) product: String,
    pub(crate) version: String,
}

impl Program {
    /// Finds it and asks for its version, once.
    pub(crate) async fn find(config: &Config) -> Result<Self> {
        let path = path(config)?;
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = known().get(&path) {
            return Ok(program.clone());
        }
        let what = format!("asking {} for its version", path.display());
        let mut command = bare(&path, config);
        let output = match tokio::time::timeout(ANSWER, command.arg("--version").output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(Error::io(what, error).with_hint("check singularity_binary")),
            Err(_) => return Err(Error::new(Kind::TimedOut, what, "it does not answer")),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let Some((product, version)) = parse(&said).filter(|_| output.status.success()) else {
            let said = format!("{}{}", said, String::from_utf8_lossy(&output.stderr));
            let message =
                format!("it is neither Apptainer nor Singularity, or broken: {}", crate::error::plain(&said));
            return Err(Error::new(Kind::Unavailable, what, message).with_hint("check singularity_binary"));
        };
        let program = Self { path: path.clone(), product, version };
        known().insert(path, program.clone());
        Ok(program)
    }

    /// Runs with what it needs, and with nothing else of the caller's environment.
    pub(crate) fn command(&self, config: &Config) -> Command {
        bare(&self.path, config)
    }

    /// The same for what needs a registry.
    pub(crate) fn for_registry(&self, config: &Config) -> Command {
        let mut command = self.command(config);
        command.envs(REGISTRY.iter().filter_map(|name| Some((name, config.variable(name)?))));
        command
    }

    /// It can leave out the directories that its administrator shares with all containers.
    pub(crate) fn can_leave_out_binds(&self) -> bool {
        let version = self.numbers();
        match self.product.as_str() {
            "apptainer" => version >= (1, 1),
            "singularity-ce" => version >= (3, 10),
            _ => false,
        }
    }

    /// Major and minor version.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit());
        let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        (next(), next())
    }

    /// Singularity from before Apptainer, of which only the setuid mode is common.
    pub(crate) fn is_old(&self) -> bool {
        self.product == "singularity" || (self.product == "singularity-ce" && self.numbers() < (3, 10))
    }
}

fn bare(path: &Path, config: &Config) -> Command {
    let mut command = Command::new(path);
    command.env_clear();
    command.envs(variables(config));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The variables that it gets.
pub(crate) fn variables(config: &Config) -> impl Iterator<Item = (&'static str, &str)> {
    NEEDED.into_iter().filter_map(|name| Some((name, config.variable(name)?)))
}

/// `apptainer version 1.4.5`
fn parse(said: &str) -> Option<(String, String)> {
    let mut words = said.split_whitespace();
    let (product, word, version) = (words.next()?, words.next()?, words.next()?);
    let known = product == "apptainer" || product.starts_with("singularity");
    (known && word == "version").then(|| (product.to_owned(), version.to_owned()))
}

/// Where it is: the configured one, or the first in `PATH`.
fn path(config: &Config) -> Result<PathBuf> {
    let in_path = |name: &Path| in_path(config, name);
    if let Some(binary) = &config.settings.binary {
        let found = match binary.is_absolute() {
            true => is_program(binary).then(|| binary.clone()),
            false => in_path(binary),
        };
        return found.ok_or_else(|| {
            let message = format!("singularity_binary is {}, and there is no such program", binary.display());
            Error::new(Kind::Unavailable, WHAT, message)
                .with_hint("set it to the path of apptainer or singularity, or unset it")
        });
    }
    NAMES.iter().find_map(|name| in_path(Path::new(name))).ok_or_else(|| {
        let message = "neither apptainer nor singularity is in PATH";
        Error::new(Kind::Unavailable, WHAT, message).with_hint(
            "install Apptainer (https://apptainer.org), load its module (`module load apptainer`) before the server \
             starts, or set singularity_binary",
        )
    })
}

/// The first program of this name in the caller's `PATH`.
pub(crate) fn in_path(config: &Config, name: &Path) -> Option<PathBuf> {
    let search = config.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let files = std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    files.into_iter().find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn versions_are_understood() {
        let of = |said: &str| {
            let (product, version) = parse(said)?;
            let program = Program { path: PathBuf::new(), product, version };
            Some((program.can_leave_out_binds(), program.is_old()))
        };
        assert_eq!(of("apptainer version 1.4.5\n"), Some((true, false)));
        assert_eq!(of("apptainer version 1.0.3-1.el8\n"), Some((false, false)));
        assert_eq!(of("singularity-ce version 4.1.0-jammy\n"), Some((true, false)));
        assert_eq!(of("singularity version 3.8.7\n"), Some((false, true)));
        assert_eq!(of("singularity 0.30\n"), None, "a game has the same name");
    }

    #[tokio::test]
    async fn it_is_looked_for_by_name_and_by_setting() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.environment.insert("PATH".into(), dir.path().display().to_string());
        let error = Program::find(&config).await.unwrap_err();
        assert!(error.message.contains("neither apptainer nor singularity"), "{error}");
        let singularity = dir.path().join("singularity");
        put(&singularity, "#!/bin/sh\necho singularity-ce version 4.1.0\n");
        assert_eq!(Program::find(&config).await.unwrap().path, singularity);
        put(
            &dir.path().join("apptainer"),
            "#!/bin/sh\necho apptainer version 1.4.5; echo \"${SECRET-none}\"\n",
        );
        assert_eq!(Program::find(&config).await.unwrap().product, "apptainer");
        config.settings.binary = Some("singularity".into());
        assert_eq!(Program::find(&config).await.unwrap().path, singularity);
        config.settings.binary = Some(dir.path().join("missing"));
        assert!(Program::find(&config).await.unwrap_err().message.contains("missing"));
        let game = dir.path().join("game");
        put(&game, "#!/bin/sh\necho a game\n");
        config.settings.binary = Some(game);
        assert!(Program::find(&config).await.unwrap_err().message.contains("a game"));
    }
}
