//! From who calls to what counts: the settings, the backend, and what its place is made from.
//!
//! Settings are read anew for each call, from the caller's variables and this home's files, so a change of either
//! takes effect with the next call. What they came to is remembered for as long as nothing of that has changed.

use crate::rules::Rules;
use crate::{Asker, Backends, sessions, spec, variables};
use farshell_api::Text;
use farshell_api::run::{Caller, Target};
use farshell_config::choice::Isolation;
use farshell_config::{Config, Context, HermesHome, Settings, settings};
use farshell_engine::{Backend, Error, Kind, Result, TaskName};
use serde_bytes::ByteBuf;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Callers that are remembered. More of them are served all the same.
const MOST_REMEMBERED: usize = 64;

/// Where the server itself stands, for callers who don't say where they do.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) home: PathBuf,
    environment: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
}

impl World {
    pub(crate) fn of_this_process(home: PathBuf) -> Self {
        Self { home, environment: std::env::vars_os().collect(), cwd: std::env::current_dir().ok() }
    }

    /// The caller's variables, or the server's own.
    pub(crate) fn variables(&self, caller: Option<&Caller>) -> Vec<(OsString, OsString)> {
        caller.and_then(sessions::system_variables).unwrap_or_else(|| self.environment.clone())
    }
}

/// What counts for a caller.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) config: Config,
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) spec: BTreeMap<String, String>,
    pub(crate) spec_hash: String,
    /// Travel with each command, see [`farshell_protocol::process::Start::variables`].
    pub(crate) variables: Vec<(ByteBuf, ByteBuf)>,
    /// What may run.
    pub(crate) rules: Rules,
    /// The caller's directory, if the place shares it.
    here: Option<PathBuf>,
}

/// The environment that a target means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) key: String,
    /// The task that asks.
    pub(crate) task: TaskName,
    /// The task whose place it is.
    pub(crate) place_task: TaskName,
    /// Whether other tasks use it, too.
    pub(crate) shared: bool,
}

impl Resolved {
    /// # Errors
    /// The task's name is no name.
    pub(crate) fn wanted(&self, task: &str) -> Result<Wanted> {
        let task = TaskName::new(task)
            .map_err(|e| Error::new(Kind::Invalid, "reading target.task", e.to_string()))?;
        let shared = self.settings.isolation == Isolation::Shared;
        let place_task = match shared {
            true => TaskName::new(sessions::DEFAULT_TASK)
                .map_err(|e| Error::new(Kind::Invalid, "naming the shared place", e.to_string()))?,
            false => task.clone(),
        };
        Ok(Wanted { key: key(self.backend.name(), &place_task), task, place_task, shared })
    }
}

/// The key of the environment of a place.
pub(crate) fn key(backend: &str, place_task: &TaskName) -> String {
    format!("{backend}/{place_task}")
}

/// Reads settings, and remembers what they came to.
#[derive(Debug)]
pub(crate) struct Resolver {
    backends: Arc<dyn Backends>,
    world: World,
    hasher: RandomState,
    known: Mutex<HashMap<u64, (Stamps, Arc<Resolved>)>>,
}

/// What the files were when they were read.
type Stamps = [Option<Stamp>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp {
        file: (meta.dev(), meta.ino()),
        size: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    })
}

impl Resolver {
    pub(crate) fn new(backends: Arc<dyn Backends>, world: World) -> Self {
        Self { backends, world, hasher: RandomState::new(), known: Mutex::default() }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn backends(&self) -> &Arc<dyn Backends> {
        &self.backends
    }

    /// # Errors
    /// The settings can't be read or used, or the backend is not part of this build.
    pub(crate) fn resolve(&self, target: &Target) -> Result<Arc<Resolved>> {
        check_caller(target)?;
        let env = target.caller.as_ref().and_then(|caller| caller.env.as_ref());
        let who = self.hasher.hash_one((env, &target.backend));
        let home = &self.world.home;
        let stamps = [stamp(&home.join("config.yaml")), stamp(&home.join(".env"))];
        let here = self.here(target);
        let same = |(then, resolved): &&(Stamps, Arc<Resolved>)| {
            *then == stamps && (resolved.here.is_none() || resolved.here == here)
        };
        if let Some((_, resolved)) = self.lock().get(&who).filter(same) {
            return Ok(Arc::clone(resolved));
        }
        let resolved = Arc::new(self.read(target, None)?);
        let mut known = self.lock();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(who, (stamps, Arc::clone(&resolved)));
        Ok(resolved)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (Stamps, Arc<Resolved>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the caller stands.
    pub(crate) fn here(&self, target: &Target) -> Option<PathBuf> {
        let cwd = target.caller.as_ref().and_then(|caller| caller.cwd.as_ref());
        cwd.map(|cwd| PathBuf::from(OsStr::from_bytes(&cwd.0))).or_else(|| self.world.cwd.clone())
    }

    /// `recorded`: where the place is that an environment was made from, which counts more than today's settings.
    fn read(&self, target: &Target, recorded: Option<&BTreeMap<String, String>>) -> Result<Resolved> {
        let context = self.context(target)?;
        let environment = context.environment.clone();
        let config = Config::load(context).map_err(|error| {
            Error::new(Kind::Invalid, "reading the settings", error.to_string()).with_hint(error.hint())
        })?;
        let mut settings = match config.resolve() {
            Ok(resolved) => resolved.settings,
            Err(problems) => {
                return Err(Error::new(Kind::Invalid, "checking the settings", problems.to_string()).with_hint(
                    "`farshell config explain KEY` shows where a value comes from, `farshell config set` and `unset` change it",
                ));
            }
        };
        if let Some(recorded) = recorded {
            spec::locate(&mut settings.backend, recorded);
        }
        let mounts =
            matches!(&settings.backend, settings::Backend::Docker(docker) if docker.mount_cwd_to_workspace);
        let named = settings.cwd.on_host().filter(|_| mounts);
        let here = self.here(target).filter(|_| mounts && named.is_none());
        let asker = Asker {
            home: &self.world.home,
            environment: &environment,
            start_dir: named.as_deref().or(here.as_deref()),
        };
        let backend = self.backends.open(&settings, &asker)?;
        let spec = spec::settings(&settings, &asker);
        let spec_hash = farshell_engine::backend::settings_hash(backend.name(), &spec);
        let variables = variables::for_each_call(&settings, &config);
        let rules = Rules::of(&settings, &config, &environment, &self.world.home);
        Ok(Resolved { config, settings, backend, spec, spec_hash, variables, rules, here })
    }

    /// The backend that has an environment, to be found again without a caller: by what this server knows, and where
    /// the engine, the account or the host was when the environment was made. Today's settings may name another.
    ///
    /// # Errors
    /// As [`Resolver::resolve`].
    pub(crate) fn backend_of(&self, name: &str, spec: &BTreeMap<String, String>) -> Result<Arc<dyn Backend>> {
        let elsewhere = [spec::ENGINE, spec::DAYTONA, spec::MODAL].concat();
        let own = self.world.environment.iter().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| !elsewhere.contains(name))?;
            Some((name.to_owned(), Text(value.as_bytes().to_vec())))
        });
        let engine = elsewhere
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), Text::from(spec.get(*name)?.as_str()))));
        let caller = Caller { cwd: None, env: Some(own.chain(engine).collect()) };
        let target = Target { backend: Some(name.to_owned()), caller: Some(caller), ..Target::default() };
        Ok(self.read(&target, Some(spec))?.backend)
    }

    fn context(&self, target: &Target) -> Result<Context> {
        let mut environment = BTreeMap::new();
        for (name, value) in self.world.variables(target.caller.as_ref()) {
            // A variable whose name isn't text is none of ours.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.insert(name, value)),
                Err(_) if is_ours(&name) => {
                    let message = format!("the value of {name} is not UTF-8 text");
                    return Err(Error::new(Kind::Invalid, "reading the settings", message)
                        .with_hint("set the variable again"));
                }
                Err(_) => {}
            }
        }
        let user_home = environment.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let context = Context {
            home: HermesHome::new(self.world.home.clone(), user_home),
            environment,
            overrides: Vec::new(),
        };
        Ok(match &target.backend {
            Some(name) => context.with_override("backend", name.as_str()),
            None => context,
        })
    }
}

fn is_ours(variable: &str) -> bool {
    variable == "HOME"
        || variable.starts_with("TERMINAL_")
        || farshell_config::table::find_variable(variable).is_some()
}

fn check_caller(target: &Target) -> Result<()> {
    let invalid = |field: &str, message: &str| {
        Err(Error::new(Kind::Invalid, format!("reading target.caller.{field}"), message))
    };
    let Some(caller) = &target.caller else { return Ok(()) };
    if let Some(cwd) = &caller.cwd
        && (!cwd.0.starts_with(b"/") || cwd.0.contains(&0))
    {
        return invalid("cwd", "an absolute path is needed");
    }
    if let Some(env) = &caller.env
        && env
            .iter()
            .any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.0.contains(&0))
    {
        return invalid("env", "a name is empty or has a =, or something has a NUL byte in it");
    }
    Ok(())
}
