//! Ending environments because somebody wants it.

use crate::demand::Waiter;
use crate::ending::{Ending, Why};
use crate::slot::{Live, Phase, Slot};
use crate::{Inner, api_error};
use farshell_api::environment::{KeptFiles, Refusal, RemoveRequest, RemoveResult};
use farshell_api::run::Target;
use farshell_engine::{Error, Kind, Result, Spec, TaskName};
use farshell_protocol::process::State;
use std::sync::Arc;
use std::time::Duration;

/// How long those who use an environment may take to notice that what they ran was killed.
const NOTICED: Duration = Duration::from_secs(10);
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
        let why = if request.stop { Why::Stopped } else { Why::Removed };
        let mut under_way = Vec::new();
        for slot in slots {
            let inner = Arc::clone(self);
            let key = slot.key.clone();
            let (force, files) = (request.force, request.files);
            // Side by side: each may take as long as its place does.
            under_way.push((
                key,
                self.common.tasks.spawn(async move {
                    // What only waits in a queue is given up, and does not keep this waiting.
                    let waiter = Waiter::to_remove(&slot);
                    let _life = slot.life.lock().await;
                    drop(waiter);
                    let had = inner.environments.backend_of(&slot);
                    inner.remove_one(&slot, force, why).await?;
                    match (why, had) {
                        (Why::Removed, Ok((backend, spec))) if files => {
                            backend.remove_files(&spec).await.map(|()| None)
                        }
                        (Why::Removed, Err(error)) if files => Err(error),
                        (Why::Removed, Ok((backend, spec))) => Ok(backend.kept_files(&spec).await),
                        _ => Ok(None),
                    }
                }),
            ));
        }
        for (key, removal) in under_way {
            match removal.await.ok().flatten().unwrap_or_else(|| Err(crate::closed())) {
                Ok(kept) => {
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
        resolved.backend.remove_files(&spec).await
    }

    /// At the end of the server: what is not to outlive it is put away, unless something runs in it.
    pub(crate) async fn leave_nothing_behind(self: &Arc<Self>) {
        for slot in self.environments.slots() {
            if slot.lock().stays || slot.live().is_none() {
                continue;
            }
            let Ok(_life) = tokio::time::timeout(ANSWER, slot.life.lock()).await else { continue };
            let _ = tokio::time::timeout(ANSWER, self.remove_one(&slot, false, Why::Stopped)).await;
        }
    }

    /// The caller holds the environment's lock.
    async fn remove_one(self: &Arc<Self>, slot: &Arc<Slot>, force: bool, why: Why) -> Result<()> {
        let live = slot.live();
        let busy = {
            let mut inner = slot.lock();
            if inner.retired {
                return Ok(());
            }
            let busy = inner.busy();
            if busy && !force {
                return Err(in_use(&slot.key, inner.foreground, inner.background));
            }
            // Calls that come from here on wait, and make it anew.
            slot.change_phase(&mut inner, Phase::Ending);
            busy
        };
        if let (true, Some(live)) = (busy, &live) {
            kill_all(slot, live).await;
        }
        let place = match &live {
            None => match self.environments.place_of(slot).await {
                Ok(place) => place,
                // What can't be found can't be ended; whoever insists has it forgotten.
                Err(_) if force => None,
                Err(error) => {
                    self.environments.failed(slot, &error).await;
                    return Err(error.with_hint("`--force` forgets it; something of it may be left"));
                }
            },
            Some(_) => None,
        };
        self.environments.end(slot, Ending { live, place }, why).await
    }
}

fn in_use(key: &str, foreground: u32, background: u32) -> Error {
    let message = format!("in use: {foreground} foreground, {background} background");
    Error::new(Kind::Busy, format!("removing environment {key}"), message)
        .with_hint("`farshell ps` shows what runs; `--force` ends that, too")
}

/// Kills all that runs, so that each process is recorded as killed and not as lost.
async fn kill_all(slot: &Slot, live: &Live) {
    let grace = slot.lock().grace;
    let Ok(Ok(all)) = tokio::time::timeout(ANSWER, live.outpost.processes()).await else { return };
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
