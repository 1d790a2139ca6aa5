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
use crate::client::{Code, ExitSnapshot, Made, Router, key};
use crate::error::explain;
use crate::state::State;
use crate::tags;
use farshell_engine::backend::{News, Progress, Spec, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

const WHAT: &str = "preparing the environment";
/// How long Modal may take to save the files of a sandbox that ended.
const SAVING: Duration = Duration::from_secs(600);
/// How often a name may be taken by somebody whom we then don't find.
const ROUNDS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// A sandbox that runs.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) router: Option<Router>,
    pub(crate) since: u64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn say(progress: &dyn Progress, message: impl Into<String>) {
    progress.say(&News { message: message.into(), part: None });
}

impl Account {
    /// The task's sandbox, running.
    pub(crate) async fn ensure(&self, spec: &Spec, progress: &dyn Progress) -> Result<Ready> {
        let task = &spec.task;
        let _alone = self.records.lock(task).await?;
        for _ in 0..ROUNDS {
            let mut state = self.records.get(task)?.unwrap_or_default();
            if state.removing {
                self.remove_all(task, None).await?;
                state = State::default();
            }
            if let Some(id) = self.running(task).await? {
                let known = state.sandbox.as_deref() == Some(id.as_str());
                if known && state.saved.is_some() {
                    // Whoever put it away died before it was ended. Everything of it is in the snapshot.
                    self.end(&id).await?;
                    continue;
                }
                self.check(spec, &id).await?;
                if !known {
                    state = State {
                        sandbox: Some(id.clone()),
                        since: now(),
                        base: state.saved.or(state.base),
                        spec: spec.hash("modal"),
                        ..State::default()
                    };
                    self.records.put(task, &state)?;
                }
                return Ok(Ready { id, router: None, since: state.since });
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
        same(tags.get(tags::SPEC).map_or("", String::as_str), spec, id)
    }

    /// Nothing: somebody else has one of this name.
    async fn make(&self, spec: &Spec, mut state: State, progress: &dyn Progress) -> Result<Option<Ready>> {
        let task = &spec.task;
        let config = &self.config;
        let mut snapshot = None;
        if config.persistent() {
            if !state.spec.is_empty() && (state.sandbox.is_some() || state.base.is_some()) {
                same(&state.spec, spec, "that was put away")?;
            }
            self.recover(task, &mut state, progress).await?;
            snapshot = self.snapshots.get(task)?;
            if let Some(id) = &snapshot {
                // Known, so that it can be removed also if it can't be used.
                state.base = Some(id.clone());
                state.spec = spec.hash("modal");
                self.records.put(task, &state)?;
                self.still_there(task, id).await?;
            }
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
        state = State { base: snapshot, spec: spec.hash("modal"), since: now(), ..State::default() };
        self.records.put(task, &state)?;
        let definition = tags::definition(config, self.name(task), image);
        match self.client.create(&key(), &app, definition, &tags::all(spec, &self.owner)).await {
            Ok(made) => {
                let Made { id, .. } = &made;
                state.sandbox = Some(id.clone());
                self.records.put(task, &state)?;
                let router = Some(Router::of(&self.client, &made)).filter(|_| !made.task.is_empty());
                Ok(Some(Ready { id: made.id, router, since: state.since }))
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

    /// A snapshot that should be there is there.
    async fn still_there(&self, task: &TaskName, id: &str) -> Result<()> {
        if self.client.has_image(id).await.map_err(|e| explain("looking for the snapshot", e))? {
            return Ok(());
        }
        let message = format!(
            "the snapshot {id} of task {task}, with all its files, is gone: it has expired or was deleted"
        );
        Err(Error::new(Kind::Unavailable, WHAT, message).with_hint(format!(
            "`farshell env rm modal/{task}` forgets it, and the next command begins from the image {}",
            self.config.settings.image
        )))
    }

    /// Records what Modal saved of a sandbox that ended otherwise than by our hand.
    async fn recover(&self, task: &TaskName, state: &mut State, progress: &dyn Progress) -> Result<()> {
        let Some(id) = state.sandbox.clone().filter(|_| state.saved.is_none()) else { return Ok(()) };
        let what = "saving the files of the sandbox";
        let deadline = Instant::now() + SAVING;
        let why = match self.look(&id).await? {
            Found::Runs => return Ok(()),
            Found::Ended(ended) => ended.why(),
            Found::Unknown => "is gone".to_owned(),
        };
        let lost = loop {
            match self.client.exit_snapshot(&id, Duration::from_secs(10)).await {
                Ok(ExitSnapshot::Image(image)) => {
                    // Looked at first: the one before is deleted for it.
                    if !self.client.has_image(&image).await.map_err(|e| explain(what, e))? {
                        break format!("its snapshot {image} has expired or was deleted");
                    }
                    self.record(task, state, &image).await?;
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
        let next = match self.snapshots.get(task)? {
            Some(image) => format!("its last snapshot {image}"),
            None => format!("the image {}", self.config.settings.image),
        };
        let message = format!("sandbox {id} {why}, and Modal could not save its files: {lost}");
        Err(Error::new(Kind::Unavailable, what, message).with_hint(format!(
            "what changed in it since it was made is lost; the next command begins from {next}"
        )))
    }

    /// Writes down that this snapshot has everything of the sandbox, and deletes the one before.
    pub(crate) async fn record(&self, task: &TaskName, state: &mut State, image: &str) -> Result<()> {
        let before = self.snapshots.set(task, Some(image)).await?;
        let old = state.base.replace(image.to_owned());
        state.saved = Some(image.to_owned());
        self.records.put(task, state)?;
        // What Hermes has written meanwhile is Hermes'.
        if let Some(old) = old.filter(|old| before.as_ref() == Some(old) && old != image) {
            self.forget_image(&old).await;
        }
        Ok(())
    }

    /// Nobody needs it any more. If it can't be deleted, it costs a little storage.
    pub(crate) async fn forget_image(&self, id: &str) {
        if id != self.config.settings.image {
            let _ = self.client.delete_image(id).await;
        }
    }
}

fn same(made_from: &str, spec: &Spec, which: &str) -> Result<()> {
    if made_from == spec.hash("modal") {
        return Ok(());
    }
    let message =
        format!("the sandbox {which} was made with other settings (image, limits, region or network)");
    Err(Error::new(Kind::SpecChanged, WHAT, message)
        .with_hint("its files are in it and nowhere else: copy what you need, then `farshell env rm` removes it; or set the old values again"))
}
