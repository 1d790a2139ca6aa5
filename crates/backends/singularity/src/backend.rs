//! [`Backend`] by Apptainer.

use crate::config::Config;
use crate::layout::{self, Layout, remove};
use crate::limits::Limits;
use crate::place::{SingularityPlace, destroy, finish, no_ending};
use crate::processes::Family;
use crate::program::Program;
use crate::slurm::{self, Options};
use crate::start::Starter;
use crate::state::State;
use crate::{check, image, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Place, Progress, Spec, Support,
};
use farshell_engine::machine::Machine;
use farshell_engine::{Error, Kind, Result};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const WHAT: &str = "preparing the environment";

/// Instances of this machine's Apptainer or Singularity.
#[derive(Clone, Debug)]
pub struct Singularity {
    pub(crate) config: Arc<Config>,
}

impl Singularity {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config) }
    }

    pub(crate) fn starter(&self, spec: &Spec) -> Result<Starter> {
        let layout = Layout::new(&self.config, &spec.task)?;
        Ok(Starter { config: Arc::clone(&self.config), layout, lease: spec.lease })
    }

    pub(crate) fn check_settings(&self) -> Result<()> {
        crate::extra::check(&self.config.settings.extra_args)
    }

    /// Finds the instance or makes it, and makes it run.
    async fn bring_up(&self, spec: &Spec, progress: &dyn Progress) -> Result<SingularityPlace> {
        let config = &self.config;
        let starter = self.starter(spec)?;
        Program::find(config).await?;
        // What takes long is done before others are kept waiting.
        image::ensure(config, progress).await?;
        let layout = starter.layout.clone();
        let hash = spec.hash("singularity");
        let ending = no_ending();
        loop {
            let lock = SingularityPlace::lock(&layout).await?;
            let mut state = match State::read(&layout.private)? {
                None => self.new_state(&layout, spec, hash.clone())?,
                Some(state) => {
                    check_owner(&layout, &state)?;
                    state.check_here(&layout.private)?;
                    let runs = state.alive() || slurm::alive(config, &state).await?;
                    if (state.spec != hash || state.job.is_some()) && runs {
                        let message =
                            format!("instance {} was made with other settings and runs", layout.name);
                        return Err(Error::new(Kind::SpecChanged, WHAT, message)
                            .with_hint("remove the environment: what is kept of its files stays"));
                    }
                    if state.spec != hash {
                        destroy(config, &layout, state, lock).await?;
                        continue;
                    }
                    state
                }
            };
            if state.alive() {
                return Ok(SingularityPlace::new(starter, spec, &state, ending));
            }
            let fresh = state.family == Family::default() && state.limits == Limits::default();
            finish(config, &layout, &mut state).await?;
            if let Err(error) = starter.start(&mut state, &ending, progress).await {
                // One that never ran is of no use to anybody.
                if fresh {
                    let _ = destroy(config, &layout, state, lock).await;
                }
                return Err(error);
            }
            return Ok(SingularityPlace::new(starter, spec, &state, ending));
        }
    }

    pub(crate) fn new_state(&self, layout: &Layout, spec: &Spec, hash: String) -> Result<State> {
        let persistent = self.config.settings.container.persistent;
        if !persistent {
            // Of one whose note is gone.
            remove(&layout.files)?;
        }
        Ok(State {
            id: layout::random()?,
            task: spec.task.as_str().to_owned(),
            owner: layout.owner.clone(),
            spec: hash,
            made: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            files: layout.files.clone(),
            persistent,
            machine: Machine::this(),
            family: Family::default(),
            limits: Limits::default(),
            job: None,
        })
    }
}

/// A home that was copied has notes about the instances of another.
pub(crate) fn check_owner(layout: &Layout, state: &State) -> Result<()> {
    if state.owner == layout.owner {
        return Ok(());
    }
    let message = format!("{} is about an instance of {}", layout.private.display(), state.owner);
    Err(Error::new(Kind::AlreadyExists, WHAT, message)
        .with_hint("if this home is a copy of that one, remove the directory"))
}

impl Backend for Singularity {
    fn name(&self) -> &'static str {
        "singularity"
    }

    fn capabilities(&self) -> Capabilities {
        // Where the machine has control groups; each place says how they hold.
        Capabilities {
            limits_cpu: Support::Approximated,
            limits_memory: Support::Approximated,
            limits_disk: Support::Approximated,
            limits_processes: Support::Approximated,
            isolates: true,
            persists_files: true,
            suspends: true,
        }
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move {
            self.check_settings()?;
            Ok(match Options::of(&self.config)? {
                Some(options) => {
                    Box::new(slurm::bring_up(self, &options, spec, progress).await?) as Box<dyn Place>
                }
                None => Box::new(self.bring_up(spec, progress).await?),
            })
        })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            let starter = self.starter(spec)?;
            // A home that was copied has notes about the instances of another.
            let own = |state: &State| state.owner == starter.layout.owner;
            let Some(state) = State::read(&starter.layout.private)?.filter(own) else { return Ok(None) };
            state.check_here(&starter.layout.private)?;
            // One that was a job is never started on this machine instead.
            if state.job.is_some() || self.config.settings.slurm.is_some() {
                return Ok(Some(Box::new(slurm::find(starter, &state).await?) as Box<dyn Place>));
            }
            Ok(Some(Box::new(SingularityPlace::new(starter, spec, &state, no_ending())) as Box<dyn Place>))
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(check::findings(&self.config))
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(survey::all(&self.config))
    }

    fn kept_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let layout = Layout::new(&self.config, &spec.task).ok()?;
            let kept = [layout.workspace(), layout.home(), layout.disk()];
            let kept = kept.map(|path| layout.kept.join(path.file_name().unwrap_or_default()));
            kept.iter().any(|path| path.exists()).then(|| layout.kept.display().to_string())
        })
    }

    fn remove_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let layout = Layout::new(&self.config, &spec.task)?;
            let lock = SingularityPlace::lock(&layout).await?;
            if let Some(state) = State::read(&layout.private)? {
                let message = format!("instance {} is still there", state.id);
                return Err(Error::new(Kind::Busy, format!("removing {}", layout.kept.display()), message));
            }
            for files in layout.all_files() {
                remove(&files)?;
            }
            lock.remove();
            // Left to other tasks and images, where there are any.
            let _ = std::fs::remove_dir(layout::scratch(&self.config).join("tasks"));
            Ok(())
        })
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(survey::remove(&self.config, found))
    }
}
