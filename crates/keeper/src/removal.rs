//! Ending environments because somebody wants it.

use crate::demand::Waiter;
use crate::ending::{Ending, Why};
use crate::slot::{Live, Phase, Slot};
use crate::{Inner, api_error, reaper};
use farshell_api::environment::{Forgotten, KeptFiles, Refusal, RemoveRequest, RemoveResult};
use farshell_api::run::Target;
use farshell_engine::backend::{Backend, Place as _};
use farshell_engine::{Error, Kind, Result, Spec, TaskName};
use farshell_protocol::process::State;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where files are that no place keeps for another one: what would delete them only ends what runs.
const ITSELF: &str = "the place itself, which is put away";
/// How long those who use an environment may take to notice that what they ran was killed.
const NOTICED: Duration = Duration::from_secs(10);
/// How long others may take who make the environment, or look for it.
const TURN: Duration = Duration::from_secs(120);
/// The same for those who put it away: longer than any place may take.
const ENDING: Duration = Duration::from_secs(1800);
/// How long an outpost may take to say what runs.
const LIST: Duration = Duration::from_secs(10);
/// How long an outpost may take for a kill, beside the grace.
const ANSWER: Duration = Duration::from_secs(30);

impl Inner {
    pub(crate) async fn remove(self: &Arc<Self>, request: RemoveRequest) -> Result<RemoveResult> {
        if request.all != request.names.is_empty() {
            return Err(crate::request::invalid("names", "either names or `all` is needed"));
        }
        let mut result = RemoveResult::default();
        let mut slots: Vec<Arc<Slot>> = Vec::new();
        if request.all {
            slots = self.environments.slots().into_iter().filter(|slot| slot.lock().recorded).collect();
        }
        for name in &request.names {
            match self.environments.named(name) {
                Ok(slot) if slots.iter().any(|known| Arc::ptr_eq(known, &slot)) => {}
                Ok(slot) => slots.push(slot),
                Err(error) if request.files && error.kind == Kind::NotFound => {
                    match self.remove_files_of(name).await {
                        Ok(()) => result.removed.push(name.clone()),
                        Err(error) => {
                            result.failed.push(Refusal { key: name.clone(), error: api_error(&error) });
                        }
                    }
                }
                Err(error) => result.failed.push(Refusal { key: name.clone(), error: api_error(&error) }),
            }
        }
        if request.stop && request.files {
            return Err(crate::request::invalid("files", "what is only put away keeps its files"));
        }
        if request.stop && request.forget {
            return Err(crate::request::invalid("forget", "what is forgotten is not put away"));
        }
        let why = if request.stop { Why::Stopped } else { Why::Removed };
        let mut under_way = Vec::new();
        for slot in slots {
            let inner = Arc::clone(self);
            let key = slot.key.clone();
            let (how, files) = (How { force: request.force, forget: request.forget }, request.files);
            // Side by side: each may take as long as its place does.
            under_way.push((
                key,
                self.common.tasks.spawn(async move {
                    // What only waits in a queue is given up, and does not keep this waiting.
                    let waiter = Waiter::to_remove(&slot);
                    let _life = turn(&slot).await?;
                    drop(waiter);
                    let had = inner.environments.backend_of(&slot);
                    let keeps =
                        why == Why::Removed && !files && inner.holds_the_only_files(&slot, &had).await;
                    let left = inner.remove_one(&slot, how, if keeps { Why::Stopped } else { why }).await?;
                    match (why, had) {
                        _ if left.is_some() => Ok((None, left)),
                        _ if keeps => Ok((Some(ITSELF.to_owned()), None)),
                        (Why::Removed, Ok((backend, spec))) if files => {
                            backend.remove_files(&spec).await.map(|()| (None, None))
                        }
                        (Why::Removed, Err(error)) if files => Err(error),
                        (Why::Removed, Ok((backend, spec))) => Ok((backend.kept_files(&spec).await, None)),
                        _ => Ok((None, None)),
                    }
                }),
            ));
        }
        for (key, removal) in under_way {
            match removal.await.ok().flatten().unwrap_or_else(|| Err(crate::closed())) {
                Ok((_, Some(left))) => result.forgotten.push(Forgotten { key, left }),
                Ok((kept, None)) => {
                    result.kept.extend(kept.map(|location| KeptFiles { key: key.clone(), location }));
                    result.removed.push(key);
                }
                Err(error) => result.failed.push(Refusal { key, error: api_error(&error) }),
            }
        }
        Ok(result)
    }

    /// Removes what an environment has left that is gone itself.
    async fn remove_files_of(&self, key: &str) -> Result<()> {
        let nothing = || {
            Error::new(
                Kind::NotFound,
                format!("removing the files of {}", crate::result::head(key, 80)),
                "there is no such environment",
            )
            .with_hint("name it as BACKEND/TASK, as `farshell env list` would show it")
        };
        let (backend, task) = key.split_once('/').ok_or_else(nothing)?;
        let task = TaskName::new(task).map_err(|_| nothing())?;
        let target = Target { backend: Some(backend.to_owned()), ..Target::default() };
        let resolved = self.resolver.resolve(&target)?;
        let spec = Spec { task, lease: resolved.settings.lifetime, settings: resolved.spec.clone() };
        if !resolved.backend.capabilities().persists_files
            && let Some(place) = resolved.backend.find(&spec).await?
        {
            place.destroy().await?;
        }
        resolved.backend.remove_files(&spec).await
    }

    /// Whether there is a place, and whoever removes it deletes files that are nowhere else.
    async fn holds_the_only_files(&self, slot: &Slot, had: &Result<(Arc<dyn Backend>, Spec)>) -> bool {
        let would = match had {
            Ok((backend, _)) => slot.lock().holds_the_only_files(&**backend),
            // Settings that can't be read now say nothing about files.
            Err(_) => slot.lock().keeps(),
        };
        let place = match slot.live() {
            Some(live) => Some(Arc::clone(&live.place)),
            None => match self.environments.place_of(slot).await {
                Ok(place) => place,
                // What can't be asked may be there, if anybody was ever in it.
                Err(_) => return would && slot.lock().was().is_some(),
            },
        };
        // The place knows with what it was made; the settings may be other ones since.
        place.is_some_and(|place| place.holds_the_only_files().unwrap_or(would))
    }

    /// At the end of the server: what is not to outlive it is put away, unless something runs in it.
    pub(crate) async fn leave_nothing_behind(self: &Arc<Self>) {
        for slot in self.environments.slots() {
            if slot.lock().stays || slot.live().is_none() {
                continue;
            }
            let Ok(_life) = tokio::time::timeout(ANSWER, slot.life.lock()).await else { continue };
            let _ = tokio::time::timeout(ANSWER, self.remove_one(&slot, How::default(), Why::Stopped)).await;
        }
    }

    /// Says what is left, if it was forgotten. The caller holds the environment's lock.
    async fn remove_one(self: &Arc<Self>, slot: &Arc<Slot>, how: How, why: Why) -> Result<Option<String>> {
        let live = slot.live();
        // Whoever insists does not have to be told.
        let unknown = !how.force && reaper::runs_unknown(&self.environments, slot).await;
        let busy = {
            let mut inner = slot.lock();
            if inner.retired {
                return Ok(None);
            }
            if inner.busy() && !how.force {
                return Err(in_use(&slot.key, inner.foreground, inner.background + inner.unseen));
            }
            if unknown {
                return Err(runs_unknown(&slot.key));
            }
            let busy = inner.busy();
            // Calls that come from here on wait, and make it anew.
            slot.change_phase(&mut inner, Phase::Ending);
            busy
        };
        if let (true, Some(live)) = (busy, &live) {
            kill_all(slot, live).await;
        }
        let ended = match &live {
            Some(_) => self.environments.end(slot, Ending { live, place: None }, why).await,
            None => match self.environments.place_of(slot).await {
                Ok(place) => self.environments.end(slot, Ending { live: None, place }, why).await,
                // Nobody was ever in it: a host whose name was mistyped, say.
                Err(_) if how.force && slot.lock().was().is_none() => {
                    self.environments.end(slot, Ending::default(), why).await
                }
                Err(error) => {
                    self.environments.failed(slot, &error).await;
                    Err(error)
                }
            },
        };
        match ended {
            Ok(()) => Ok(None),
            Err(error) if how.forget => Ok(Some(self.environments.forget(slot, &error).await)),
            Err(error) if why == Why::Removed => Err(not_removed(slot, error)),
            Err(error) => Err(error),
        }
    }
}

/// What a removal may do.
#[derive(Clone, Copy, Debug, Default)]
struct How {
    /// End also what runs.
    force: bool,
    /// Let go of what can't be ended.
    forget: bool,
}

/// Waits until nobody else is at it. Whoever puts it away may need long for that, and is waited for.
async fn turn(slot: &Slot) -> Result<tokio::sync::MutexGuard<'_, ()>> {
    let begun = Instant::now();
    loop {
        if let Ok(life) = tokio::time::timeout(TURN, slot.life.lock()).await {
            return Ok(life);
        }
        let ending = matches!(slot.lock().phase, Phase::Ending);
        if !ending || begun.elapsed() > ENDING {
            let doing = if ending { "put away" } else { "made or looked for" };
            let message =
                format!("it is being {doing}, and that was not over after {} s", begun.elapsed().as_secs());
            return Err(Error::new(Kind::Busy, format!("removing environment {}", slot.key), message)
                .with_hint("try again"));
        }
    }
}

/// Something runs of which nobody here knows.
fn runs_unknown(key: &str) -> Error {
    let message = "in use: something runs in it that was started by a server that is gone, or whose connection was lost";
    Error::new(Kind::Busy, format!("removing environment {key}"), message)
        .with_hint("`--force` ends that, too")
}

/// Says what was not done, and what there is to do about it.
fn not_removed(slot: &Slot, error: Error) -> Error {
    let hint = error.hint.clone().map_or_else(String::new, |hint| format!("{hint}; "));
    let key = &slot.key;
    error.with_hint(format!(
        "{hint}nothing is known to have ended there, and the environment stays in the list: try again when its place can be reached, or `farshell env rm --forget {key}` forgets it and leaves what is there to its lease"
    ))
}

fn in_use(key: &str, foreground: u32, background: u32) -> Error {
    let message = format!("in use: {foreground} foreground, {background} background");
    Error::new(Kind::Busy, format!("removing environment {key}"), message)
        .with_hint("`farshell ps` shows what runs; `--force` ends that, too")
}

/// Kills all that runs, so that each process is recorded as killed and not as lost.
async fn kill_all(slot: &Slot, live: &Live) {
    let grace = slot.lock().grace;
    let Ok(Ok(all)) = tokio::time::timeout(LIST, live.outpost.processes()).await else { return };
    let ids: Vec<_> = all
        .into_iter()
        .filter(|status| matches!(status.state, State::Running | State::Queued))
        .map(|status| status.id)
        .collect();
    if !ids.is_empty() {
        let _ = tokio::time::timeout(grace + ANSWER, live.outpost.kill(ids, grace)).await;
    }
    let empty = async {
        loop {
            let left = slot.left.notified();
            if !slot.lock().busy() {
                return;
            }
            left.await;
        }
    };
    let _ = tokio::time::timeout(NOTICED, empty).await;
}
