//! The job of a task: found, handed in, ended.

use super::control::{Control, PROGRAMS};
use super::job::{Job, Phase, from_log};
use super::options::Options;
use super::place::JobPlace;
use super::stream;
use super::submit::{forget, marked, submit};
use super::waiting::{Outcome, Waiting, unwanted};
use crate::backend::{Singularity, check_owner};
use crate::config::Config;
use crate::error::explain;
use crate::image;
use crate::install::{install, outpost};
use crate::layout::Layout;
use crate::limits::Limits;
use crate::place::{SingularityPlace, destroy, finish};
use crate::program::Program;
use crate::start::{Starter, tail};
use crate::state::{JobNote, State};
use farshell_engine::backend::{ByteStream, Progress, Spec};
use farshell_engine::lock::Lock;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;
use tokio::time::Instant;

const WHAT: &str = "preparing the environment";
/// How long an instance may take on its node until its outpost answers: without FUSE the image is unpacked first.
const START: Duration = Duration::from_secs(600);
/// How long a job may take to end: Slurm gives it half a minute, and then cleans up.
const END: Duration = Duration::from_secs(120);
/// How long the way a job ended is waited for.
const EPITAPH: Duration = Duration::from_secs(10);

/// Finds the task's job or hands one in, and waits until its outpost answers.
pub(crate) async fn bring_up(
    backend: &Singularity,
    options: &Options,
    spec: &Spec,
    progress: &dyn Progress,
) -> Result<JobPlace> {
    let config = &backend.config;
    let control = Control::new(config);
    for program in PROGRAMS {
        control.find(program)?;
    }
    let starter = backend.starter(spec)?;
    Program::find(config).await?;
    // What takes long is done before others are kept waiting.
    image::ensure(config, progress).await?;
    let (layout, hash) = (starter.layout.clone(), spec.hash("singularity"));
    loop {
        let lock = SingularityPlace::lock(&layout).await?;
        let mut state = match State::read(&layout.private)? {
            None => backend.new_state(&layout, spec, hash.clone())?,
            Some(state) => {
                check_owner(&layout, &state)?;
                state.check_here(&layout.private)?;
                let differs = state.spec != hash || state.alive();
                if differs && runs(config, &state).await? {
                    let message = format!("instance {} was made with other settings and runs", layout.name);
                    return Err(Error::new(Kind::SpecChanged, WHAT, message)
                        .with_hint("remove the environment: what is kept of its files stays"));
                }
                if differs {
                    destroy(config, &layout, state, lock).await?;
                    continue;
                }
                state
            }
        };
        let fresh = state.limits == Limits::default();
        let waiting = Waiting::begin(config, &layout, &state.id)?;
        let handed_in = async {
            if let Some(job) = current(control, &layout, &mut state).await? {
                return Ok(job);
            }
            finish(config, &layout, &mut state).await?;
            submit(&starter, options, &mut state, progress).await
        };
        let job = match handed_in.await {
            Ok(job) => job,
            Err(error) => {
                waiting.over();
                // Unless it can't be told whether there is a job.
                if fresh && state.job.is_none() {
                    let _ = destroy(config, &layout, state, lock).await;
                }
                return Err(error);
            }
        };
        drop(lock);
        match waiting.until_it_runs(job, progress).await {
            Ok(Outcome::Runs(running)) => {
                waiting.over();
                let (stream, state) = first(&starter, options, &state, &running).await?;
                return Ok(JobPlace::new(starter, &state, Some(running), Some(stream)));
            }
            Ok(Outcome::Unwanted) => {
                waiting.give_up().await?;
                return Err(unwanted(job));
            }
            Ok(Outcome::Over(over)) => {
                waiting.over();
                let epitaph = epitaph(control, &layout, job, over).await;
                over_now(config, &layout, &state).await?;
                let message = format!("it did not get to run: {epitaph}");
                return Err(Error::new(Kind::Unavailable, "waiting for Slurm", message)
                    .with_hint("the next call hands in another job"));
            }
            Err(error) => {
                // The job stays, and is found by the next call.
                waiting.over();
                return Err(error);
            }
        }
    }
}

/// The first stream to the outpost of a job that has begun.
async fn first(
    starter: &Starter,
    options: &Options,
    state: &State,
    job: &Job,
) -> Result<(ByteStream, State)> {
    let (config, layout) = (&*starter.config, &starter.layout);
    let control = Control::new(config);
    let gone = || Error::new(Kind::Unavailable, WHAT, "the environment was removed while it was made");
    let Some(note) = &state.job else { return Err(gone()) };
    let error = match open(config, layout, job.id, note, START).await {
        Ok(stream) => {
            let _lock = SingularityPlace::lock(layout).await?;
            let same = |state: &State| state.job.as_ref().is_some_and(|noted| noted.mark == note.mark);
            let mut state = State::read(&layout.private)?.filter(same).ok_or_else(gone)?;
            state.limits = Limits::of_job(config, options, constrained(control).await);
            state.write(layout)?;
            return Ok((stream, state));
        }
        Err(error) => error,
    };
    let now = control.job(job.id, &layout.name).await?;
    if now.as_ref().is_some_and(|job| !job.is_over()) {
        return Err(error);
    }
    let log = tail(&layout.log());
    let epitaph = epitaph(control, layout, job.id, now).await;
    over_now(config, layout, state).await?;
    if log.lines().any(|line| line == "running") {
        let message = format!("{epitaph}: the instance of an earlier job still runs and holds its files");
        return Err(Error::new(Kind::Busy, WHAT, message).with_hint(
            "it ends when its lease does, or when its node is back; a task of another name works now",
        ));
    }
    let mut error = explain("starting the instance", &log, &epitaph);
    if !error.message.contains(&epitaph) {
        error.message = format!("{epitaph}: {}", error.message);
    }
    Err(error)
}

/// A stream to the outpost of a job.
pub(crate) async fn open(
    config: &Config,
    layout: &Layout,
    job: u32,
    note: &JobNote,
    patience: Duration,
) -> Result<ByteStream> {
    let program = install(&config.home, outpost()?)?.join(crate::install::PROGRAM);
    stream::open(Control::new(config), job, note, &program, &layout.private, patience).await
}

/// Nothing is left of it, not even what was locked to see that.
pub(crate) fn gone(layout: &Layout, lock: Lock) -> Result<()> {
    if State::read(&layout.private)?.is_none() {
        lock.remove();
    }
    Ok(())
}

/// The job is over: that is noted, and an instance that never ran is removed.
async fn over_now(config: &Config, layout: &Layout, seen: &State) -> Result<()> {
    let lock = SingularityPlace::lock(layout).await?;
    let mark = |state: &State| state.job.as_ref().map(|note| note.mark.clone());
    let same = |state: &State| state.id == seen.id && mark(state) == mark(seen);
    let Some(mut state) = State::read(&layout.private)?.filter(same) else { return gone(layout, lock) };
    finish(config, layout, &mut state).await?;
    match state.limits == Limits::default() {
        true => destroy(config, layout, state, lock).await,
        false => state.write(layout),
    }
}

/// Cores and memory are kept by Slurm.
async fn constrained(control: Control<'_>) -> (bool, bool) {
    let Ok(said) = control.ask("scontrol", &["show", "config"]).await else { return (false, false) };
    let yes = |name: &str| {
        said.stdout.lines().any(|line| {
            line.split_once('=').is_some_and(|(key, value)| key.trim() == name && value.trim() == "yes")
        })
    };
    let cgroup = said.stdout.lines().any(|line| line.starts_with("TaskPlugin ") && line.contains("cgroup"));
    (cgroup && yes("ConstrainCores"), cgroup && yes("ConstrainRAMSpace"))
}

/// The job that is noted, if it waits or runs. Others of the same name were handed in by somebody who was cut off: they are
/// cancelled.
async fn current(control: Control<'_>, layout: &Layout, state: &mut State) -> Result<Option<u32>> {
    let jobs = control.named(&layout.name).await?;
    let noted = state.job.clone();
    let is_ours = |job: &&Job| {
        noted
            .as_ref()
            .is_some_and(|note| note.id == Some(job.id) || (note.id.is_none() && marked(job, &note.mark)))
    };
    let ours = jobs.iter().find(|job| is_ours(job) && !job.is_over()).map(|job| job.id);
    let strays: Vec<u32> =
        jobs.iter().filter(|job| !job.is_over() && Some(job.id) != ours).map(|job| job.id).collect();
    control.cancel(&strays, false).await?;
    if let (Some(id), Some(note)) = (ours, &mut state.job)
        && note.id.is_none()
    {
        note.id = Some(id);
        state.write(layout)?;
    }
    Ok(ours)
}

/// The instance runs, here or as a job, or is about to.
async fn runs(config: &Config, state: &State) -> Result<bool> {
    Ok(state.alive() || alive(config, state).await?)
}

/// It has a job that waits or runs.
pub(crate) async fn alive(config: &Config, state: &State) -> Result<bool> {
    Ok(noted_job(config, state).await?.is_some_and(|job| !job.is_over()))
}

async fn noted_job(config: &Config, state: &State) -> Result<Option<Job>> {
    let Some(note) = &state.job else { return Ok(None) };
    let name = Layout::name_of(&state.owner, &state.task);
    let control = Control::new(config);
    match note.id {
        Some(id) => control.job(id, &name).await,
        None => Ok(control.named(&name).await?.into_iter().find(|job| marked(job, &note.mark))),
    }
}

/// Which of these instances have a job that waits or runs. One of which that can't be told counts as such.
pub(crate) async fn living(config: &Config, states: &[State]) -> Vec<bool> {
    if states.iter().all(|state| state.job.is_none()) {
        return vec![false; states.len()];
    }
    // One question for all of them.
    let jobs = Control::new(config).mine().await;
    let lives = |state: &State| match (&state.job, &jobs) {
        (None, _) => false,
        (Some(_), Err(_)) => true,
        (Some(note), Ok(jobs)) => {
            let name = Layout::name_of(&state.owner, &state.task);
            let is_it = |job: &&Job| job.name == name && (note.id == Some(job.id) || marked(job, &note.mark));
            jobs.iter().find(is_it).is_some_and(|job| !job.is_over())
        }
    };
    states.iter().map(lives).collect()
}

/// The place of a task whose note is there.
pub(crate) async fn find(starter: Starter, state: &State) -> Result<JobPlace> {
    let job = noted_job(&starter.config, state).await?;
    Ok(JobPlace::new(starter, state, job, None))
}

/// Ends the job of an instance, and waits until nothing of it runs. The caller holds the lock.
pub(crate) async fn end(config: &Config, layout: &Layout, state: &mut State) -> Result<()> {
    if state.job.is_none() {
        return Ok(());
    }
    let control = Control::new(config);
    let deadline = Instant::now() + END;
    let mut pause = Duration::from_millis(20);
    let mut told = false;
    loop {
        let jobs = control.named(&layout.name).await?;
        let left: Vec<&Job> = jobs.iter().filter(|job| !matches!(job.phase, Phase::Ended(_))).collect();
        if left.is_empty() {
            return forget(layout, state);
        }
        let ids: Vec<u32> = left.iter().filter(|job| !job.is_over()).map(|job| job.id).collect();
        if !told {
            control.cancel(&ids, false).await?;
            told = true;
        }
        if Instant::now() >= deadline {
            let node = left.iter().find_map(|job| job.node.clone()).unwrap_or_default();
            let message =
                format!("Slurm job {} on {node} does not end, although it was cancelled", left[0].id);
            return Err(Error::new(
                Kind::TimedOut,
                format!("ending the instance of task {}", state.task),
                message,
            )
            .with_hint("its node may not answer: `scontrol show node` says more"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_secs(2));
    }
}

/// How a job ended, as far as Slurm or its log says.
pub(crate) async fn epitaph(control: Control<'_>, layout: &Layout, id: u32, seen: Option<Job>) -> String {
    let deadline = Instant::now() + EPITAPH;
    let mut job = seen;
    // Slurm says how when it has cleaned up.
    while job.as_ref().is_some_and(|job| job.phase == Phase::Ending) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        job = control.job(id, &layout.name).await.ok().flatten();
    }
    match job.filter(|job| matches!(job.phase, Phase::Ended(_))) {
        Some(job) => job.epitaph(control.canceller(&job).await),
        None => from_log(id, &tail(&layout.log())),
    }
}
