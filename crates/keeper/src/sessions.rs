//! What a session begins with, and what its outpost calls it.

use crate::resolve::{Resolved, World};
use crate::variables::{self, Homes};
use farshell_api::run::Caller;
use farshell_config::{BackendKind, settings};
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::SessionName;
use farshell_protocol::session::Mode;
use serde_bytes::ByteBuf;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a session may take to begin without a word about it. Also a busy machine is faster.
const SLOW: Duration = Duration::from_secs(10);
/// After this long an outpost begins a shell anew without its start files.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// The task of callers who name none.
pub(crate) const DEFAULT_TASK: &str = "default";

/// The name under which an outpost has a task's session.
///
/// Tasks that share a place keep their sessions apart by name. A session's own name may hold a dot, so names that
/// could be read in two ways carry a hash of what they mean; two dots in a row mark those.
///
/// # Errors
/// The session's name is no name.
pub(crate) fn outpost_name(shared: bool, task: &str, session: &str) -> Result<SessionName> {
    let named = |name: &str| {
        SessionName::new(name).map_err(|e| Error::new(Kind::Invalid, "reading session", e.to_string()))
    };
    let name = named(session)?;
    if !shared {
        return Ok(name);
    }
    let plain = !session.contains('.') && !task.contains('.');
    if plain && task == DEFAULT_TASK {
        return Ok(name);
    }
    let joined = format!("{task}.{session}");
    if plain && let Ok(name) = SessionName::new(joined.as_str()) {
        return Ok(name);
    }
    let hash: String =
        Sha256::digest(format!("{task}\0{session}")).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let readable: String = joined.chars().map(|c| if c == '.' { '_' } else { c }).take(40).collect();
    named(&format!("{readable}..{hash}"))
}

/// What a caller's new session begins with.
///
/// # Errors
/// There is no directory to start in, or the profile's home can't be made.
pub(crate) fn defaults(
    world: &World,
    resolved: &Resolved,
    caller: Option<&Caller>,
) -> Result<SessionDefaults> {
    let settings = &resolved.settings;
    let mode = if settings.persistent_shell { Mode::Live } else { Mode::OneShot };
    let local = match &settings.backend {
        settings::Backend::Local(local) => local,
        settings::Backend::Docker(docker) => {
            let cwd = settings.cwd.in_container(docker);
            return Ok(SessionDefaults { cwd: Some(cwd.into_bytes()), ..SessionDefaults::plain(mode) });
        }
        settings::Backend::Singularity(singularity) => {
            let cwd = settings.cwd.in_instance(&singularity.bind);
            return Ok(SessionDefaults { cwd: Some(cwd.into_bytes()), ..SessionDefaults::plain(mode) });
        }
        settings::Backend::Ssh(_) => {
            // As a login there would begin, in the host's own words: `~` is expanded by the outpost.
            let init_files = ["/etc/profile", "~/.bash_profile", "~/.profile"].map(ByteBuf::from).to_vec();
            let cwd = settings.cwd.resolve(BackendKind::Ssh, Path::new("/")).into_bytes();
            return Ok(SessionDefaults { cwd: Some(cwd), init_files, ..SessionDefaults::plain(mode) });
        }
        _ => {
            let cwd = match &settings.cwd {
                settings::StartDirectory::BackendDefault => None,
                settings::StartDirectory::Path(path) => Some(path.clone().into_bytes()),
            };
            return Ok(SessionDefaults { cwd, ..SessionDefaults::plain(mode) });
        }
    };
    let own = world.variables(caller);
    let real_home = own.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.clone());
    let homes = Homes::choose(local.home_mode, real_home.as_deref(), resolved.config.home().root());
    if let Some(profile) = homes.profile() {
        make_private(profile)?;
    }
    let is_own = |name: &str| own.iter().any(|(known, _)| known == name);
    // Those of `.env` are not among the caller's own.
    let more: Vec<(String, String)> = resolved
        .config
        .forwarded(&settings.env_passthrough)
        .into_iter()
        .filter(|(name, _)| !is_own(name))
        .collect();
    let mut env = variables::for_session(own.into_iter(), &settings.env_passthrough, &homes);
    env.extend(more.into_iter().map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value))));
    let cwd = match &settings.cwd {
        settings::StartDirectory::BackendDefault => here(world, caller)?.into_os_string().into_vec(),
        path @ settings::StartDirectory::Path(_) => {
            path.resolve(BackendKind::Local, Path::new("/")).into_bytes()
        }
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

/// The caller's directory, or the server's own.
fn here(world: &World, caller: Option<&Caller>) -> Result<PathBuf> {
    match caller.and_then(|caller| caller.cwd.as_ref()) {
        Some(cwd) => Ok(PathBuf::from(OsStr::from_bytes(&cwd.0))),
        None => world.cwd.clone().ok_or_else(|| {
            Error::new(Kind::NotFound, "finding a directory to start in", "the server's own is gone")
                .with_hint("name one with the setting cwd, or let the caller say where it stands")
        }),
    }
}

fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        Error::io(format!("making the profile's home {}", dir.display()), e)
            .with_hint("`farshell config set home_mode real` uses your own home directory instead")
    })
}

/// A caller's variables, as the system has them.
pub(crate) fn system_variables(caller: &Caller) -> Option<Vec<(OsString, OsString)>> {
    let env = caller.env.as_ref()?;
    Some(env.iter().map(|(name, value)| (name.into(), OsString::from_vec(value.0.clone()))).collect())
}

/// What is to be said of a session whose shell kept its first command waiting.
pub(crate) fn slow_start(waited: Duration) -> Option<String> {
    let left_out = if waited >= GIVEN_UP {
        ", and all of them were left out in the end: what they set is missing"
    } else {
        ""
    };
    (waited >= SLOW).then(|| {
        format!(
            "the session took {} s to begin: one of its shell's start files (~/.bashrc, ~/.profile) waits for something{left_out}",
            waited.as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn sessions_of_tasks_that_share_a_place_have_names_of_their_own() {
        let shared = |task, session| outpost_name(true, task, session).unwrap().as_str().to_owned();
        assert_eq!(shared("default", "main"), "main");
        assert_eq!(shared("build", "main"), "build.main");
        assert_eq!(outpost_name(false, "build", "a.b").unwrap().as_str(), "a.b");
        assert!(outpost_name(true, "default", "no name").is_err());
        let long = "x".repeat(64);
        let (a, b) = (long.clone(), format!("{}y", &long[1..]));
        let mut seen = HashMap::new();
        for task in ["default", "a", "a.b", "b", "a_b", "default.a", &a, &b] {
            for session in ["main", "a", "b", "c", "b.c", "a.b.c", "a..b", "a_b", &a, &b] {
                let name = shared(task, session);
                assert_eq!(seen.insert(name.clone(), (task, session)), None, "{name}");
            }
        }
    }

    #[test]
    fn only_a_start_that_takes_long_is_told() {
        assert_eq!(slow_start(Duration::from_secs(9)), None);
        let told = |seconds| slow_start(Duration::from_secs(seconds)).unwrap();
        assert!(told(12).contains("took 12 s") && !told(12).contains("left out"));
        assert!(told(20).contains("left out"));
    }
}
