//! A job's time in the queue, and those who wait for it.
//!
//! Whoever waits shares a lock on a file, so that all processes of a home know of each other, and one that is killed waits no
//! more. Who goes away as the last one takes the job back.

use super::bring_up::gone;
use super::control::Control;
use super::job::{Job, Phase};
use super::submit::forget;
use crate::config::Config;
use crate::layout::{Layout, make_private};
use crate::limits::Limits;
use crate::place::{SingularityPlace, destroy};
use crate::state::State;
use farshell_engine::backend::{News, Progress};
use farshell_engine::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses between two looks at the queue: a cluster's controller has many to answer.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
/// How often the jobs before it are counted.
const COUNT: Duration = Duration::from_secs(30);
/// How long Slurm may be silent.
const SILENCE: Duration = Duration::from_secs(300);

/// Somebody who waits. Dropped before [`Waiting::over`], it is as if it had given up.
#[derive(Debug)]
pub(crate) struct Waiting {
    config: Arc<Config>,
    layout: Layout,
    /// The instance.
    id: String,
    shared: Option<File>,
}

/// How waiting came to its end.
#[derive(Debug)]
pub(crate) enum Outcome {
    Runs(Job),
    /// It ended before it ran, or Slurm does not know it.
    Over(Option<Job>),
    /// Nobody wants it any more.
    Unwanted,
}

fn open(path: &Path) -> Result<File> {
    let options = OpenOptions::new().create(true).truncate(false).write(true).read(true).mode(0o600).clone();
    options.open(path).map_err(|e| Error::io(format!("opening {}", path.display()), e))
}

impl Waiting {
    /// The caller holds the lock.
    pub(crate) fn begin(config: &Arc<Config>, layout: &Layout, id: &str) -> Result<Self> {
        make_private(&layout.private)?;
        let path = layout.waiting();
        let file = open(&path)?;
        // Whoever holds it alone holds the lock, too.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)
            .map_err(|e| Error::io(format!("locking {}", path.display()), e.into()))?;
        let (config, layout, id) = (Arc::clone(config), layout.clone(), id.to_owned());
        Ok(Self { config, layout, id, shared: Some(file) })
    }

    /// There is nothing to wait for any more.
    pub(crate) fn over(mut self) {
        self.shared = None;
    }

    /// Goes away, and takes the job back if nobody else waits for it.
    pub(crate) async fn give_up(mut self) -> Result<()> {
        match self.shared.take() {
            Some(shared) => give_up(&self.config, &self.layout, &self.id, shared).await,
            None => Ok(()),
        }
    }

    /// Waits until a job runs.
    pub(crate) async fn until_it_runs(&self, job: u32, progress: &dyn Progress) -> Result<Outcome> {
        let control = Control::new(&self.config);
        let mut gone = progress.gone();
        let mut pause = FIRST;
        let (mut heard, mut counted, mut before) = (Instant::now(), None::<Instant>, None);
        loop {
            let message = match control.job(job, &self.layout.name).await {
                Ok(Some(job)) => match job.phase {
                    Phase::Running => return Ok(Outcome::Runs(job)),
                    Phase::Ending | Phase::Ended(_) => return Ok(Outcome::Over(Some(job))),
                    Phase::Queued => {
                        heard = Instant::now();
                        if counted.is_none_or(|counted| counted.elapsed() > COUNT) {
                            (before, counted) = (control.before(&job).await, Some(Instant::now()));
                        }
                        job.queued(before)
                    }
                },
                Ok(None) => return Ok(Outcome::Over(None)),
                Err(error) if heard.elapsed() > SILENCE => return Err(error),
                Err(error) => {
                    format!("Slurm job {job} is queued, and Slurm does not answer: {}", error.message)
                }
            };
            progress.say(&News { message, part: None });
            tokio::select! {
                () = &mut gone => return Ok(Outcome::Unwanted),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 3 / 2).min(LONGEST);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let (config, layout, id) = (Arc::clone(&self.config), self.layout.clone(), self.id.clone());
        // Whoever was waiting went away without a word, and may have taken its runtime along.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                // What can't be cancelled now ends by itself when its lease is over.
                let _ = runtime.block_on(give_up(&config, &layout, &id, shared));
            }
        });
    }
}

async fn give_up(config: &Config, layout: &Layout, id: &str, shared: File) -> Result<()> {
    let lock = SingularityPlace::lock(layout).await?;
    drop(shared);
    let Some(mut state) = State::read(&layout.private)?.filter(|state| state.id == id) else {
        return gone(layout, lock);
    };
    let Some(note) = state.job.clone() else { return Ok(()) };
    let alone = open(&layout.waiting())?;
    if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    let control = Control::new(config);
    if let Some(job) = note.id {
        // Slurm itself sees to it that one which has begun meanwhile goes on: somebody may have found it.
        control.cancel(&[job], true).await?;
        if control.job(job, &layout.name).await?.is_some_and(|job| !job.is_over()) {
            return Ok(());
        }
    }
    forget(layout, &mut state)?;
    // One that never ran is of no use to anybody.
    if state.limits == Limits::default() {
        destroy(config, layout, state, lock).await?;
    }
    Ok(())
}

/// Nobody wants it any more, so the command that was to be run was not.
pub(crate) fn unwanted(job: u32) -> Error {
    let message = format!(
        "Slurm job {job} was taken out of the queue: nobody waits for it any more, or its environment is being removed"
    );
    Error::new(Kind::NotStarted, "waiting for Slurm", message)
}
