//! The job of a task: found, handed in, ended.

use super::control::{Control, PROGRAMS};
use super::job::{Job, Phase, from_log};
use super::options::Options;
use super::place::JobPlace;
use super::script::START;
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
                let (stream, state) = first(&starter, options, &state, &running, START).await?;
                return Ok(JobPlace::new(starter, &state, Some(running), Some(stream)));
            }
            Ok(Outcome::Unwanted) => {
                waiting.give_up().await?;
                return Err(unwanted(job));
            }
            Ok(Outcome::Over(over)) => {
                waiting.over();
                return Err(useless(&starter, &state, job, over).await?);
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
    patience: Duration,
) -> Result<(ByteStream, State)> {
    let (config, layout) = (&*starter.config, &starter.layout);
    let control = Control::new(config);
    let gone = || Error::new(Kind::Unavailable, WHAT, "the environment was removed while it was made");
    let Some(note) = &state.job else { return Err(gone()) };
    let mut error = match open(config, layout, job.id, note, patience).await {
        Ok(stream) => {
            let _lock = SingularityPlace::lock(layout).await?;
            let same = |state: &State| state.job.as_ref().is_some_and(|noted| noted.mark == note.mark);
            let mut state = State::read(&layout.private)?.filter(same).ok_or_else(gone)?;
            state.limits = Limits::of_job(config, layout, options, constrained(control).await);
            if let Some(note) = &mut state.job {
                note.answered = true;
            }
            state.write(layout)?;
            return Ok((stream, state));
        }
        Err(error) => error,
    };
    let now = control.job(job.id, &layout.name).await?;
    if now.as_ref().is_some_and(|job| !job.is_over()) {
        // One that nobody ever heard of would be paid for, and of no use. Of others, something may still run.
        if error.kind == Kind::TimedOut && over_now(config, layout, state, |note| !note.answered).await? {
            error.message += "; it was cancelled";
        }
        return Err(error);
    }
    Err(useless(starter, state, job.id, now.or_else(|| Some(job.clone()))).await?)
}

/// Why a job ended before its outpost answered, which is noted. One that fails at once is never seen running, but has had
/// a node, and has said why.
async fn useless(starter: &Starter, state: &State, id: u32, last: Option<Job>) -> Result<Error> {
    let (config, layout) = (&*starter.config, &starter.layout);
    let begun = last.as_ref().is_some_and(|job| job.node.is_some());
    let epitaph = epitaph(Control::new(config), layout, id, last).await;
    let log = tail(&layout.log());
    over_now(config, layout, state, |_| true).await?;
    if !begun && log.trim().is_empty() {
        let message = format!("it did not get to run: {epitaph}");
        return Ok(Error::new(Kind::Unavailable, "waiting for Slurm", message)
            .with_hint("the next call hands in another job"));
    }
    if log.lines().any(|line| line == "running") {
        let message = format!("{epitaph}: the instance of an earlier job still runs and holds its files");
        return Ok(Error::new(Kind::Busy, WHAT, message).with_hint(
            "it ends when its lease does, or when its node is back; a task of another name works now",
        ));
    }
    let mut error = explain("starting the instance", &log, &epitaph);
    if !error.message.contains(&epitaph) {
        error.message = format!("{epitaph}: {}", error.message);
    }
    Ok(error)
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

/// The job is over, or has to be: that is noted, and an instance that never ran is removed. False if there is another job,
/// or it is not such a one.
async fn over_now(
    config: &Config,
    layout: &Layout,
    seen: &State,
    such: impl Fn(&JobNote) -> bool,
) -> Result<bool> {
    let lock = SingularityPlace::lock(layout).await?;
    let mark = |state: &State| state.job.as_ref().map(|note| note.mark.clone());
    let same = |state: &State| state.id == seen.id && mark(state) == mark(seen);
    let Some(mut state) = State::read(&layout.private)?.filter(same) else {
        gone(layout, lock)?;
        return Ok(false);
    };
    if !state.job.as_ref().is_none_or(such) {
        return Ok(false);
    }
    finish(config, layout, &mut state).await?;
    match state.limits == Limits::default() {
        true => destroy(config, layout, state, lock).await?,
        false => state.write(layout)?,
    }
    Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_config::settings::Slurm;
    use farshell_engine::backend::TaskName;
    use std::path::Path;

    /// A cluster whose only job, 12, is in this state until it is cancelled, and whose node does not answer.
    fn cluster(dir: &Path, name: &str, (state, node): (&str, &str)) {
        let gone = dir.join("gone");
        let gone = gone.display();
        for (program, text) in [
            ("srun", "cat >/dev/null".to_owned()),
            ("scancel", format!("touch '{gone}'")),
            (
                "squeue",
                format!(
                    "state={state}; [ ! -e '{gone}' ] || state=CANCELLED\n\
                     echo \"12|$state|{node}|1:00:00|x|p|{name}|mark=m|None\""
                ),
            ),
        ] {
            let path = dir.join(program);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    /// A task whose job is 12, on such a cluster.
    fn task(dir: &Path, job: (&str, &str)) -> (Starter, Options, State) {
        let mut config = sample();
        config.home = dir.join("h");
        config.settings.scratch_dir = Some(dir.join("s"));
        config.settings.slurm = Some(Slurm::default());
        config.environment.insert("PATH".into(), format!("{}:/usr/bin:/bin", dir.display()));
        let options = Options::of(&config).unwrap().unwrap();
        let (task, lease) = (TaskName::new("t").unwrap(), Duration::from_secs(60));
        let spec = Spec { task, lease, settings: std::collections::BTreeMap::new() };
        let backend = Singularity::new(config);
        let starter = backend.starter(&spec).unwrap();
        let layout = &starter.layout;
        cluster(dir, &layout.name, job);
        std::fs::create_dir_all(&layout.private).unwrap();
        let mut state = backend.new_state(layout, &spec, "s".into()).unwrap();
        let door = "/nowhere".into();
        state.job = Some(JobNote { id: Some(12), mark: "m".into(), door, answered: false });
        state.write(layout).unwrap();
        (starter, options, state)
    }

    /// Waits for a job that does not answer. What is said, whether it was cancelled, and whether anything is noted.
    async fn unanswered(change: impl Fn(&mut State)) -> (Error, bool, bool) {
        let dir = tempfile::tempdir().unwrap();
        let (starter, options, state) = task(dir.path(), ("RUNNING", "n1"));
        let layout = &starter.layout;
        // What others may have noted meanwhile.
        let mut noted = state.clone();
        change(&mut noted);
        noted.write(layout).unwrap();
        let job = Control::new(&starter.config).job(12, &layout.name).await.unwrap().unwrap();
        let patience = Duration::from_millis(200);
        let error = first(&starter, &options, &state, &job, patience).await.unwrap_err();
        (error, dir.path().join("gone").exists(), State::read(&layout.private).unwrap().is_some())
    }

    #[tokio::test]
    async fn a_job_that_was_never_heard_of_is_given_back() {
        let (error, cancelled, noted) = unanswered(|_| ()).await;
        assert!(error.kind == Kind::TimedOut && error.message.ends_with("it was cancelled"), "{error}");
        assert_eq!((cancelled, noted), (true, false));
        // Its files are kept if it ran in an earlier job.
        let ran = |state: &mut State| {
            let mut config = sample();
            config.settings.slurm = Some(Slurm::default());
            let options = Options::of(&config).unwrap().unwrap();
            let layout = Layout::new(&config, &TaskName::new("t").unwrap()).unwrap();
            state.limits = Limits::of_job(&config, &layout, &options, (false, false));
        };
        let (_, cancelled, noted) = unanswered(ran).await;
        assert_eq!((cancelled, noted), (true, true));
    }

    #[tokio::test]
    async fn a_job_in_which_something_may_run_is_left_alone() {
        let answered = |state: &mut State| state.job.as_mut().unwrap().answered = true;
        let another = |state: &mut State| state.job.as_mut().unwrap().mark = "other".into();
        for change in [&answered as &dyn Fn(&mut State), &another] {
            let (error, cancelled, noted) = unanswered(change).await;
            assert!(error.kind == Kind::TimedOut && !error.message.contains("cancelled"), "{error}");
            assert_eq!((cancelled, noted), (false, true));
        }
    }

    /// What is said of a job that was over when somebody looked for the first time.
    async fn over_at_once(job: (&str, &str), log: &str) -> Error {
        let dir = tempfile::tempdir().unwrap();
        let (starter, _, state) = task(dir.path(), job);
        let layout = &starter.layout;
        std::fs::write(layout.log(), log).unwrap();
        let waiting = Waiting::begin(&starter.config, layout, &state.id).unwrap();
        let outcome = waiting.until_it_runs(12, &()).await.unwrap();
        waiting.over();
        let Outcome::Over(over) = outcome else { panic!("{outcome:?}") };
        let error = useless(&starter, &state, 12, over).await.unwrap();
        assert!(State::read(&layout.private).unwrap().is_none());
        error
    }

    #[tokio::test]
    async fn a_job_that_fails_before_it_is_seen_running_is_said_with_why() {
        let error =
            over_at_once(("FAILED", "n1"), "INFO: x\nFATAL: could not open image /etc/passwd\n").await;
        assert_eq!(error.message, "Slurm job 12 on n1 ended with an error: could not open image /etc/passwd");
        let error = over_at_once(("NODE_FAIL", "n1"), "").await;
        assert_eq!(error.message, "Slurm job 12 was ended by Slurm because its node failed: n1");
        let error = over_at_once(("CANCELLED", ""), "").await;
        assert!(error.message.starts_with("it did not get to run: Slurm job 12 was cancelled"), "{error}");
    }
}
