//! The backends of this build. A new one is a line in [`AVAILABLE`] and an arm in [`Registry::open`].

use farshell_config::{BackendKind, Config, Context, Settings, settings};
use farshell_docker::Docker;
use farshell_engine::{Backend, Error, Kind};
use farshell_keeper::{Asker, Backends};
use farshell_ssh::Ssh;
use std::path::Path;
use std::sync::Arc;

/// The backends that this build can serve.
pub(crate) const AVAILABLE: &[BackendKind] = &[BackendKind::Local, BackendKind::Docker, BackendKind::Ssh];

/// What the server opens backends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registry;

impl Backends for Registry {
    fn open(&self, settings: &Settings, asker: &Asker<'_>) -> Result<Arc<dyn Backend>, Error> {
        match &settings.backend {
            settings::Backend::Local(_) => Ok(Arc::new(local(asker.home))),
            settings::Backend::Docker(docker) => Ok(Arc::new(Docker::new(farshell_docker::Config {
                home: asker.home.join("farshell"),
                settings: (**docker).clone(),
                environment: asker.environment.clone(),
                start_dir: asker.start_dir.map(Path::to_owned),
                credential_root: asker.home.to_owned(),
                credential_files: settings.credential_files.clone(),
            }))),
            settings::Backend::Ssh(ssh) => Ok(Arc::new(Ssh::new(farshell_ssh::Config {
                home: asker.home.join("farshell"),
                settings: (**ssh).clone(),
                environment: asker.environment.clone(),
                ssh_config: None,
                credential_root: asker.home.to_owned(),
                credential_files: settings.credential_files.clone(),
            }))),
            other => Err(not_in_this_build(other.kind())),
        }
    }

    fn refuse(&self, kind: BackendKind) -> Option<Error> {
        (!AVAILABLE.contains(&kind)).then(|| not_in_this_build(kind))
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(local(home))];
        all.extend(docker_of_server(home).map(|(backend, _)| backend));
        all.extend(ssh_of_server(home));
        all
    }

    // Not the host: nobody logs in, and perhaps asks for a touch of a key, unless somebody has asked for something.
    fn swept(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(local(home))];
        all.extend(docker_of_server(home).filter(|(_, sweeps)| *sweeps).map(|(backend, _)| backend));
        all
    }
}

/// The local backend, which needs no settings of its own.
pub(crate) fn local(home: &Path) -> farshell_local::Local {
    // Apart from what Hermes keeps in the same directory.
    farshell_local::Local::new(farshell_local::Config { home: home.join("farshell") })
}

/// The Docker engine that the server itself knows of, and whether what nobody claims is to be removed from it. An
/// engine that this home has never used is not asked anything.
fn docker_of_server(home: &Path) -> Option<(Arc<dyn Backend>, bool)> {
    if !home.join("farshell/run/docker").is_dir() {
        return None;
    }
    let context = Context::from_process().ok()?.with_override("backend", "docker");
    let environment = context.environment.clone();
    let settings = Config::load(context).ok()?.resolve().ok()?.settings;
    let settings::Backend::Docker(docker) = &settings.backend else { return None };
    let asker = Asker { home, environment: &environment, start_dir: None };
    Some((Registry.open(&settings, &asker).ok()?, docker.orphan_reaper))
}

/// The host that the server itself knows of. One that this home has never used is not asked anything.
fn ssh_of_server(home: &Path) -> Option<Arc<dyn Backend>> {
    if !home.join("farshell/owner").is_file() {
        return None;
    }
    let context = Context::from_process().ok()?.with_override("backend", "ssh");
    let environment = context.environment.clone();
    let settings = Config::load(context).ok()?.resolve().ok()?.settings;
    let asker = Asker { home, environment: &environment, start_dir: None };
    Registry.open(&settings, &asker).ok()
}

/// Why a backend that has a name can't be had.
pub(crate) fn not_in_this_build(kind: BackendKind) -> Error {
    let available: Vec<&str> = AVAILABLE.iter().map(|kind| kind.as_str()).collect();
    Error::new(
        Kind::Unavailable,
        "choosing the backend",
        format!("backend {kind} is not part of this build yet; available: {}", available.join(", ")),
    )
    .with_hint("nothing was run, here or elsewhere; choose an available backend with --backend or `farshell config set backend NAME`")
}
