//! The backends. A new one is an arm in [`Registry::open`].

use farshell_config::{BackendKind, Config, Context, HermesHome, Settings, settings};
use farshell_daytona::Daytona;
use farshell_docker::Docker;
use farshell_engine::{Backend, Error, Kind};
use farshell_keeper::{Asker, Backends};
use farshell_modal::Modal;
use farshell_singularity::Singularity;
use farshell_ssh::Ssh;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

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
            settings::Backend::Singularity(singularity) => {
                Ok(Arc::new(Singularity::new(farshell_singularity::Config {
                    home: asker.home.join("farshell"),
                    settings: (**singularity).clone(),
                    environment: asker.environment.clone(),
                    credential_root: asker.home.to_owned(),
                    credential_files: settings.credential_files.clone(),
                })))
            }
            settings::Backend::Modal(modal) => {
                let mut config = farshell_modal::Config::new(
                    asker.home.to_owned(),
                    modal.clone(),
                    asker.environment.clone(),
                    secrets(asker, &["MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_ENVIRONMENT"])?,
                );
                config.credential_files.clone_from(&settings.credential_files);
                Ok(Arc::new(Modal::new(config)))
            }
            settings::Backend::Daytona(daytona) => {
                let names = ["DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"];
                let daytona = Daytona::new(farshell_daytona::Config {
                    home: asker.home.join("farshell"),
                    settings: daytona.clone(),
                    environment: asker.environment.clone(),
                    files: secrets(asker, &names)?,
                });
                let files = settings.credential_files.clone();
                Ok(Arc::new(daytona.with_credentials(asker.home.to_owned(), files)))
            }
        }
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(local(home))];
        all.extend(SERVER.iter().filter_map(|kind| used_by_server(home, *kind)).map(|(backend, _)| backend));
        all.extend(ssh_of_server(home));
        all.extend(modal_of_server(home));
        all.extend(daytona_of_server(home));
        all
    }

    // Not the host: nobody logs in, and perhaps asks for a touch of a key, unless somebody has asked for something.
    fn swept(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(local(home))];
        let others = SERVER.iter().filter_map(|kind| used_by_server(home, *kind));
        all.extend(others.filter(|(_, sweeps)| *sweeps).map(|(backend, _)| backend));
        all
    }
}

/// Backends that a server asks for what nobody remembers.
const SERVER: [BackendKind; 2] = [BackendKind::Docker, BackendKind::Singularity];

/// The local backend, which needs no settings of its own.
pub(crate) fn local(home: &Path) -> farshell_local::Local {
    // Apart from what Hermes keeps in the same directory.
    farshell_local::Local::new(farshell_local::Config { home: home.join("farshell") })
}

/// A backend as the server itself knows it, and whether what nobody claims is to be removed from it. One that this home
/// has never used is not asked anything.
fn used_by_server(home: &Path, kind: BackendKind) -> Option<(Arc<dyn Backend>, bool)> {
    if !home.join("farshell/run").join(kind.as_str()).is_dir() {
        return None;
    }
    let (backend, settings) = of_server(home, kind)?;
    let sweeps = match &settings.backend {
        settings::Backend::Docker(docker) => docker.orphan_reaper,
        _ => true,
    };
    Some((backend, sweeps))
}

/// The host that the server itself knows of. One that this home has never used is not asked anything.
fn ssh_of_server(home: &Path) -> Option<Arc<dyn Backend>> {
    if !home.join("farshell/owner").is_file() {
        return None;
    }
    Some(of_server(home, BackendKind::Ssh)?.0)
}

/// The Modal account that the server itself knows of. As with Daytona's, nothing is removed from it unasked.
fn modal_of_server(home: &Path) -> Option<Arc<dyn Backend>> {
    if !Modal::was_used(&home.join("farshell")) {
        return None;
    }
    Some(of_server(home, BackendKind::Modal)?.0)
}

/// The Daytona account that the server itself knows of. One that this home has never used is not asked anything.
/// Nothing is removed from it unasked: a sandbox holds files.
fn daytona_of_server(home: &Path) -> Option<Arc<dyn Backend>> {
    if !Daytona::was_used(&home.join("farshell")) {
        return None;
    }
    Some(of_server(home, BackendKind::Daytona)?.0)
}

/// A backend with the settings that the server itself has.
fn of_server(home: &Path, kind: BackendKind) -> Option<(Arc<dyn Backend>, Settings)> {
    let context = Context::from_process().ok()?.with_override("backend", kind.as_str());
    let environment = context.environment.clone();
    let settings = Config::load(context).ok()?.resolve().ok()?.settings;
    let asker = Asker { home, environment: &environment, start_dir: None };
    Some((Registry.open(&settings, &asker).ok()?, settings))
}

/// Variables from `.env` that only a backend is to know.
fn secrets(asker: &Asker<'_>, names: &[&str]) -> Result<BTreeMap<String, String>, Error> {
    let home = HermesHome::new(asker.home.to_owned(), None);
    let context = Context { home, environment: BTreeMap::new(), overrides: Vec::new() };
    let config = Config::load(context).map_err(|error| {
        Error::new(Kind::Invalid, "reading the settings", error.to_string()).with_hint(error.hint())
    })?;
    let found = names.iter().filter_map(|name| Some(((*name).to_owned(), config.variable(name)?)));
    Ok(found.collect())
}
