//! The task's sandbox, found or made.
//!
//! # Never two
//! Whoever looks for one, makes one or ends one holds the task's lock. A sandbox has a name that is unique among those that
//! run, and is made under one key however often that has to be asked for.
//!
//! # Nothing is lost in silence
//! A sandbox goes on from where the last one was: from the snapshot that was taken when it was put away, or the one that
//! Modal took when it ended otherwise. If there should be one and there is none, that is an error.

use crate::account::{Account, Found};
use crate::client::{Begun, Code, ExitSnapshot, Made, Router, key};
use crate::error::explain;
use crate::state::{State, Taken};
use crate::tags::{self, Keeps};
use farshell_engine::backend::{News, Progress, Spec, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

const WHAT: &str = "preparing the environment";
/// How long Modal may take to save the files of a sandbox that ended.
const SAVING: Duration = Duration::from_secs(600);
/// How often a name may be taken by somebody whom we then don't find.
const ROUNDS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// How long Modal may take to find a machine with a GPU, as in its own client.
const BEGIN: Duration = Duration::from_secs(21 * 60);

/// A sandbox that runs.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) router: Option<Router>,
    pub(crate) state: State,
    pub(crate) origin: Origin,
}

/// Where a sandbox that runs comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It ran before, and may be in use.
    Found,
    /// Nobody has used it yet.
    Made,
}

/// What came of waiting for a sandbox to begin.
#[derive(Debug)]
enum Waited {
    Begun,
    /// It has ended instead.
    Ended(Error),
    /// It has not begun, and nobody waits any longer.
    GivenUp(Error),
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(crate) fn say(progress: &dyn Progress, message: impl Into<String>) {
    progress.say(&News { message: message.into(), part: None });
}

impl Account {
    /// The task's sandbox, running. The caller holds its lock.
    pub(crate) async fn ensure(&self, spec: &Spec, progress: &dyn Progress) -> Result<Ready> {
        let task = &spec.task;
        for _ in 0..ROUNDS {
            let mut state = self.state(task).await?.unwrap_or_default();
            if state.removing {
                self.remove_all(task, None).await?;
                state = State::default();
            }
            if state.workspace.is_empty() {
                state.workspace = self.workspace().await?;
            }
            if let Some(id) = self.running(task).await? {
                let known = state.sandbox.as_deref() == Some(id.as_str());
                if known && state.saved.is_some() {
                    // Whoever put it away could not end it, or died before. What it did since is in the snapshot that
                    // Modal takes at its end.
                    self.end(&id).await?;
                    continue;
                }
                self.check(spec, &id).await?;
                if !known {
                    let Some(adopted) = self.adopt(task, &id).await? else { continue };
                    state = adopted;
                }
                // It may have been used, whatever is said of it now: it is neither ended nor forgotten.
                return match self.begun(&id, progress).await? {
                    Waited::Begun => Ok(Ready { id, router: None, state, origin: Origin::Found }),
                    Waited::Ended(error) | Waited::GivenUp(error) => Err(error),
                };
            }
            if let Some(ready) = self.make(spec, state, progress).await? {
                return Ok(ready);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let message = format!("the name {} is taken by a sandbox that can't be found", self.name(task));
        Err(Error::new(Kind::Unavailable, WHAT, message)
            .with_hint("modal.com shows all sandboxes of the app hermes-agent"))
    }

    /// It was made from what is wanted.
    async fn check(&self, spec: &Spec, id: &str) -> Result<()> {
        let tags = self.client.tags(id).await.map_err(|e| explain("looking at the sandbox", e))?;
        if tags.get(tags::OWNER) != Some(&self.owner) {
            let message = format!("sandbox {id} has our name, and is not of this home");
            return Err(Error::new(Kind::AlreadyExists, WHAT, message)
                .with_hint("use another task (`--task`), or end it at modal.com if nobody needs it"));
        }
        same(tags.get(tags::SPEC).map_or("", String::as_str), spec, id)?;
        self.kept_as_wanted(Keeps::of(&tags), id)
    }

    /// What it was made with counts: files that were to be kept are not lost by another word of today.
    fn kept_as_wanted(&self, keeps: Keeps, which: &str) -> Result<()> {
        if keeps == self.config.keeps() {
            return Ok(());
        }
        let (then, now) = match keeps {
            Keeps::Files => ("true", "false"),
            Keeps::Nothing => ("false", "true"),
        };
        let message =
            format!("the sandbox {which} was made with container_persistent: {then}, and it is {now} now");
        Err(Error::new(Kind::SpecChanged, WHAT, message).with_hint(
            "copy what you need, then `farshell env rm --files` removes it with its files; or set the old value again",
        ))
    }

    /// Its sandbox has ended without having begun: there is nothing to be recovered of it.
    pub(crate) fn never_used(&self, task: &TaskName, state: State) -> Result<()> {
        self.records.put(task, &State { sandbox: None, ..state })
    }

    /// Waits until a sandbox runs. One with a GPU may have to wait for that.
    async fn begun(&self, id: &str, progress: &dyn Progress) -> Result<Waited> {
        let what = "waiting for the sandbox to begin";
        let Some(gpu) = &self.config.settings.gpu else { return Ok(Waited::Begun) };
        let ask = async || {
            Ok(match self.client.task(id).await.map_err(|e| explain(what, e))? {
                Begun::Task(_) => Some(Waited::Begun),
                Begun::Never(ended) => {
                    let message = format!("sandbox {id} {}", ended.why());
                    Some(Waited::Ended(Error::new(Kind::Unavailable, what, message)))
                }
                Begun::NotYet => {
                    say(progress, "waiting for a machine with such a GPU");
                    None
                }
            })
        };
        // Only who has been told that it has not begun gives up: an answer that is slow says nothing.
        if let Some(waited) = ask().await? {
            return Ok(waited);
        }
        let waiting = async {
            loop {
                tokio::time::sleep(PAUSE).await;
                if let Some(waited) = ask().await? {
                    return Ok(waited);
                }
            }
        };
        let (kind, why) = tokio::select! {
            waited = waiting => return waited,
            () = tokio::time::sleep(BEGIN) => (Kind::TimedOut, "Modal found no machine for it in time"),
            () = progress.gone() => (Kind::Unavailable, "nobody waits for it any more"),
        };
        let error = Error::new(kind, what, format!("{why}: {gpu}"));
        Ok(Waited::GivenUp(error.with_hint("another modal_gpu may be had sooner")))
    }

    /// Nothing: somebody else has one of this name.
    async fn make(&self, spec: &Spec, mut state: State, progress: &dyn Progress) -> Result<Option<Ready>> {
        let task = &spec.task;
        let config = &self.config;
        let mut snapshot = None;
        if state.keeps == Keeps::Files && (state.sandbox.is_some() || state.base.is_some()) {
            self.kept_as_wanted(Keeps::Files, "that was put away")?;
            if !state.spec.is_empty() {
                same(&state.spec, spec, "that was put away")?;
            }
        }
        if config.keeps() == Keeps::Files {
            match state.keeps {
                Keeps::Files => self.recover(task, &mut state, progress).await?,
                // There is nothing to be recovered.
                Keeps::Nothing => state.sandbox = None,
            }
            snapshot = self.last_snapshot(task, &mut state, spec).await?;
        }
        if let Some(note) = config.disk_note() {
            say(progress, note);
        }
        let app = self.client.app(tags::APP).await.map_err(|e| explain(WHAT, e))?;
        let image = match &snapshot {
            Some(id) => {
                say(progress, format!("restoring the sandbox from its snapshot {id}"));
                id.clone()
            }
            None => self.image(&app, progress).await?,
        };
        state = State {
            image: Some(image.clone()).filter(|_| snapshot.is_none()),
            base: snapshot,
            spec: spec.hash("modal"),
            since: now(),
            keeps: config.keeps(),
            ours: state.ours,
            proven: state.proven,
            workspace: state.workspace,
            ..State::default()
        };
        self.records.put(task, &state)?;
        let definition = tags::definition(config, self.name(task), image);
        let labels = tags::all(spec, &self.owner, config.keeps());
        match self.client.create(&key(), &app, definition, &labels).await {
            Ok(made) => {
                let Made { id, .. } = &made;
                state.sandbox = Some(id.clone());
                self.records.put(task, &state)?;
                let error = match self.begun(id, progress).await? {
                    Waited::Begun => None,
                    Waited::Ended(error) => Some(error),
                    Waited::GivenUp(error) => {
                        // Nothing has run in it, and nobody wants to pay for it later.
                        self.end(id).await?;
                        Some(error)
                    }
                };
                if let Some(error) = error {
                    self.never_used(task, state)?;
                    return Err(error);
                }
                let router = Some(Router::of(&self.client, &made)).filter(|_| !made.task.is_empty());
                Ok(Some(Ready { id: made.id, router, state, origin: Origin::Made }))
            }
            Err(error) if error.code() == Some(Code::AlreadyExists) => Ok(None),
            Err(error) => Err(explain("making a sandbox", error)),
        }
    }

    /// The image from which a first sandbox is made.
    async fn image(&self, app: &str, progress: &dyn Progress) -> Result<String> {
        let name = &self.config.settings.image;
        if name.starts_with("im-") {
            let there = self.client.has_image(name).await.map_err(|e| explain(WHAT, e))?;
            return match there {
                true => Ok(name.clone()),
                false => {
                    let message = format!(
                        "there is no image {name}: it was deleted, has expired, or is somebody else's"
                    );
                    Err(Error::new(Kind::Unavailable, WHAT, message).with_hint("set modal_image to another"))
                }
            };
        }
        say(progress, format!("making a sandbox from {name}"));
        let told = |text: &str| {
            if let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) {
                let line: String = line.chars().filter(|c| !c.is_control()).take(120).collect();
                say(progress, format!("building the image of {name}: {line}"));
            }
        };
        self.client.image(app, name, told).await.map_err(|e| explain(WHAT, e))
    }

    /// The snapshot from which the task goes on: what the record of snapshots says, and where that says nothing, or names
    /// one that is gone or an older one of ours, the one that we know of. Hermes writes that record too, as it was when it
    /// last read it.
    async fn last_snapshot(&self, task: &TaskName, state: &mut State, spec: &Spec) -> Result<Option<String>> {
        let listed = self.snapshots.get(task).await?;
        let known = state.last().cloned().filter(|known| listed.as_ref() != Some(known));
        let what = "looking for the snapshot";
        if let Some(known) = known {
            let stale = match &listed {
                None => true,
                Some(id) if state.ours.contains(id) => true,
                Some(id) => !self.client.has_image(id).await.map_err(|e| explain(what, e))?,
            };
            if stale && self.client.has_image(&known).await.map_err(|e| explain(what, e))? {
                self.snapshots.set(task, Some(&known)).await?;
                return Ok(Some(known));
            }
            if listed.is_none() {
                self.still_there(task, state, &known).await?;
            }
        }
        if let Some(id) = &listed {
            // Known, so that it can be removed also if it can't be used.
            state.base = Some(id.clone());
            state.spec = spec.hash("modal");
            self.records.put(task, state)?;
            self.still_there(task, state, id).await?;
        }
        Ok(listed)
    }

    /// A snapshot that should be there is there.
    async fn still_there(&self, task: &TaskName, state: &State, id: &str) -> Result<()> {
        if self.client.has_image(id).await.map_err(|e| explain("looking for the snapshot", e))? {
            return Ok(());
        }
        let message = format!(
            "the snapshot {id} of task {task}, with all its files, is gone: it has expired or was deleted"
        );
        let hint = format!(
            "`farshell env rm --files modal/{task}` forgets it, and the next command begins from the image {}",
            self.config.settings.image
        );
        Err(Error::new(Kind::Unavailable, WHAT, message).with_hint(match self.way_back(task, state) {
            Some(back) => format!("{back}; {hint}"),
            None => hint,
        }))
    }

    /// How to go on from the snapshot before the last one, if there is one. Nobody does that unasked: it is older. The record
    /// stays: by it the last one is deleted when it is not needed any more.
    pub(crate) fn way_back(&self, task: &TaskName, state: &State) -> Option<String> {
        let before = state.before()?;
        let mut advice = format!(
            "the snapshot before it, {before}, is kept: to go on from that, set \"saved\" and \"base\" to \"{before}\" in {}",
            self.records.path(task).display()
        );
        // What somebody else has written goes before what we know.
        if state.last().is_none() {
            let _ =
                write!(advice, ", and \"direct:{task}\" to the same in {}", self.snapshots.path().display());
        }
        Some(advice)
    }

    /// Records what Modal saved of a sandbox that ended otherwise than by our hand, or whose end nobody has noted. One that
    /// was saved before may have run on: what Modal saved at its end is never older.
    async fn recover(&self, task: &TaskName, state: &mut State, progress: &dyn Progress) -> Result<()> {
        let Some(id) = state.sandbox.clone() else { return Ok(()) };
        let what = "saving the files of the sandbox";
        let deadline = Instant::now() + SAVING;
        let why = match self.look(&id).await? {
            Found::Runs => return Ok(()),
            // Nothing ran in it: what it was made from is all that there is.
            Found::Ended(ended) if !ended.began() => {
                let kept = state.last().cloned();
                self.forget_spare(task, state, &id, kept.as_deref()).await;
                state.sandbox = None;
                return self.records.put(task, state);
            }
            Found::Ended(ended) => ended.why(),
            Found::Unknown if state.saved.is_none() && self.workspace().await?.is_empty() => {
                let message =
                    format!("Modal knows nothing of sandbox {id}, and does not say whose token it is");
                return Err(Error::new(Kind::Unavailable, what, message).with_hint(format!(
                    "it may be another one than the sandbox was made with; `farshell env rm --files modal/{task}` forgets it with its files"
                )));
            }
            Found::Unknown => "is gone".to_owned(),
        };
        let lost = loop {
            match self.client.exit_snapshot(&id, Duration::from_secs(10)).await {
                Ok(ExitSnapshot::Image(image)) if state.saved.as_ref() == Some(&image) => return Ok(()),
                Ok(ExitSnapshot::Image(image)) => {
                    // Looked at first: the one before is deleted for it.
                    if !self.client.has_image(&image).await.map_err(|e| explain(what, e))? {
                        break format!("its snapshot {image} has expired or was deleted");
                    }
                    self.record(task, state, &image, Taken::AtItsEnd).await?;
                    return Ok(());
                }
                Ok(ExitSnapshot::Pending) if Instant::now() < deadline => {
                    say(progress, "Modal saves the files of the last sandbox");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(ExitSnapshot::Pending) => {
                    let message = format!("Modal is still saving the files of sandbox {id}, which {why}");
                    return Err(Error::new(Kind::TimedOut, what, message).with_hint("try again in a minute"));
                }
                Ok(ExitSnapshot::None(reason)) => break reason,
                Err(error) if matches!(error.code(), Some(Code::NotFound | Code::InvalidArgument)) => {
                    break error.message();
                }
                Err(error) => return Err(explain(what, error)),
            }
        };
        // Said once; then it goes on from what there is.
        state.sandbox = None;
        self.records.put(task, state)?;
        if state.saved.is_some() {
            return Ok(());
        }
        let next = match self.snapshots.get(task).await?.or(state.last().cloned()) {
            Some(image) => format!("its last snapshot {image}"),
            None => format!("the image {}", self.config.settings.image),
        };
        let message = format!("sandbox {id} {why}, and Modal could not save its files: {lost}");
        Err(Error::new(Kind::Unavailable, what, message).with_hint(format!(
            "what changed in it since it was made is lost; the next command begins from {next}"
        )))
    }
}

fn same(made_from: &str, spec: &Spec, which: &str) -> Result<()> {
    if made_from == spec.hash("modal") {
        return Ok(());
    }
    let message =
        format!("the sandbox {which} was made with other settings (image, limits, region or network)");
    Err(Error::new(Kind::SpecChanged, WHAT, message)
        .with_hint("its files are in it and nowhere else: copy what you need, then `farshell env rm --files` removes it; or set the old values again"))
}
