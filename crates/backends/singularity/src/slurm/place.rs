//! [`Place`] in a job.
//!
//! Nothing is handed in when somebody connects: the time in the queue is for whoever makes an environment, and is told
//! there. A job that is over is a place that is gone.

use super::bring_up::{epitaph, open};
use super::control::Control;
use super::job::{Job, Phase};
use crate::place::{destroy_noted, suspend_noted};
use crate::start::Starter;
use crate::state::State;
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place};
use farshell_engine::{Error, Kind, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const WHAT: &str = "connecting to the instance";
/// How long an outpost that ran may take to answer by way of its node.
const ANSWER: Duration = Duration::from_secs(60);

/// One instance in a job.
pub(crate) struct JobPlace {
    starter: Starter,
    id: String,
    limits: Vec<Limit>,
    /// What was last seen of its job.
    job: Mutex<Option<Job>>,
    /// The stream by which it was seen that it runs, for whoever connects first.
    first: Mutex<Option<ByteStream>>,
    asleep: bool,
    epitaph: Mutex<Option<String>>,
}

impl std::fmt::Debug for JobPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobPlace").field("id", &self.id).field("job", &self.job).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JobPlace {
    pub(crate) fn new(starter: Starter, state: &State, job: Option<Job>, first: Option<ByteStream>) -> Self {
        Self {
            starter,
            id: state.id.clone(),
            limits: state.limits.told(),
            asleep: job.as_ref().is_none_or(Job::is_over),
            job: Mutex::new(job),
            first: Mutex::new(first),
            epitaph: Mutex::new(None),
        }
    }

    async fn open(&self) -> Result<ByteStream> {
        if let Some(stream) = lock(&self.first).take() {
            return Ok(stream);
        }
        let (config, layout) = (&*self.starter.config, &self.starter.layout);
        let control = Control::new(config);
        let known = lock(&self.job).as_ref().map(|job| job.id);
        let state = State::read(&layout.private)?.filter(|state| state.id == self.id);
        let note = state.and_then(|state| state.job);
        let Some((id, note)) = note.and_then(|note| Some((note.id?, note))) else {
            let how = match known {
                Some(id) => epitaph(control, layout, id, control.job(id, &layout.name).await?).await,
                None => "its Slurm job is over".to_owned(),
            };
            return Err(self.gone(how));
        };
        if let Some(known) = known.filter(|known| *known != id) {
            // Another server has handed in another one.
            let how = epitaph(control, layout, known, control.job(known, &layout.name).await?).await;
            *lock(&self.epitaph) = Some(how);
        }
        let job = control.job(id, &layout.name).await?;
        match &job {
            Some(job) if job.phase == Phase::Running => {}
            Some(job) if job.phase == Phase::Queued => {
                return Err(Error::new(Kind::Busy, WHAT, job.queued(None))
                    .with_hint("a call that makes the environment waits for it"));
            }
            over => {
                return Err(self.gone(epitaph(control, layout, id, over.clone()).await));
            }
        }
        lock(&self.job).clone_from(&job);
        match open(config, layout, id, &note, ANSWER).await {
            Ok(stream) => Ok(stream),
            Err(error) => match control.job(id, &layout.name).await? {
                Some(job) if !job.is_over() => Err(error),
                over => Err(self.gone(epitaph(control, layout, id, over).await)),
            },
        }
    }

    fn gone(&self, epitaph: String) -> Error {
        *lock(&self.epitaph) = Some(epitaph.clone());
        Error::new(Kind::Unavailable, WHAT, epitaph)
            .with_hint("the next call hands in another job; what is kept of the environment's files stays")
    }
}

impl Place for JobPlace {
    fn identity(&self) -> Identity {
        Identity { name: self.id.get(..12).unwrap_or(&self.id).to_owned(), id: self.id.clone() }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        drop(lock(&self.first).take());
        Box::pin(destroy_noted(&self.starter, &self.id))
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        drop(lock(&self.first).take());
        Box::pin(suspend_noted(&self.starter, &self.id))
    }

    fn limits(&self) -> Vec<Limit> {
        self.limits.clone()
    }

    fn sleeps(&self) -> bool {
        self.asleep
    }

    fn status(&self) -> Option<String> {
        let job = lock(&self.job);
        let job = job.as_ref()?;
        Some(match job.phase {
            Phase::Queued => job.queued(None),
            Phase::Running => job.running(),
            Phase::Ending | Phase::Ended(_) => job.epitaph(None),
        })
    }

    fn epitaph(&self) -> Option<String> {
        lock(&self.epitaph).clone()
    }
}
