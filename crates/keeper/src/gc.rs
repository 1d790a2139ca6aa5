//! Resources that no record claims, and records without resources.

use crate::slot::Phase;
use crate::{Inner, resolve};
use farshell_api::environment::{EnvironmentState, GcItem, GcRequest, GcResult};
use farshell_api::event::EventKind;
use farshell_engine::backend::Found;
use farshell_engine::{Backend, Result};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long somebody who is busy with an environment is waited for.
const BUSY: Duration = Duration::from_secs(5);

impl Inner {
    pub(crate) async fn gc(self: &Arc<Self>, request: GcRequest) -> Result<GcResult> {
        let home = self.resolver.world().home.clone();
        let mut found = Vec::new();
        for backend in self.resolver.backends().all(&home) {
            match backend.survey().await {
                Ok(all) => {
                    for one in all.into_iter().filter(|one| !self.claims(&*backend, one)) {
                        let mut item = item(&*backend, &one);
                        if request.remove
                            && let Err(error) = self.remove_found(&*backend, &one).await
                        {
                            item.error = Some(match &error.hint {
                                Some(hint) => format!("{error}: {hint}"),
                                None => error.to_string(),
                            });
                        }
                        found.push(item);
                    }
                }
                Err(error) => found.push(GcItem {
                    backend: backend.name().to_owned(),
                    kind: "place".into(),
                    name: "*".into(),
                    why: "it can't be asked for what it holds".into(),
                    error: Some(error.to_string()),
                }),
            }
        }
        found.extend(self.empty_records(request.remove).await);
        Ok(GcResult { found, removed: request.remove })
    }

    /// Removes what killed outposts have left. Those that live end by themselves when their lease is over.
    pub(crate) async fn sweep(self: &Arc<Self>) {
        let home = self.resolver.world().home.clone();
        for backend in self.resolver.backends().swept(&home) {
            let Ok(all) = backend.survey().await else { continue };
            for one in all.into_iter().filter(|one| !one.alive && !self.claims(&*backend, one)) {
                let _ = self.remove_found(&*backend, &one).await;
            }
        }
    }

    fn claims(&self, backend: &dyn Backend, found: &Found) -> bool {
        let Some(task) = &found.task else { return false };
        let slot = self.environments.find(&resolve::key(backend.name(), task));
        slot.is_some_and(|slot| {
            let inner = slot.lock();
            inner.recorded || !matches!(inner.phase, Phase::Absent(_))
        })
    }

    async fn remove_found(&self, backend: &dyn Backend, found: &Found) -> Result<()> {
        let Some(task) = &found.task else { return backend.remove_found(found).await };
        // Nobody makes an environment of it meanwhile, and if somebody has: it is claimed.
        let slot = self.environments.slot(&resolve::key(backend.name(), task), backend.name(), task.as_str());
        let _life = slot.life.lock().await;
        if self.claims(backend, found) || slot.lock().retired {
            return Ok(());
        }
        let removed = backend.remove_found(found).await;
        self.environments.retire(&slot);
        removed
    }

    /// Records of environments that could not be made, and of which nothing is left.
    async fn empty_records(self: &Arc<Self>, remove: bool) -> Vec<GcItem> {
        let mut items = Vec::new();
        for slot in self.environments.slots() {
            let empty = || {
                let inner = slot.lock();
                let failed = matches!(inner.phase, Phase::Absent(EnvironmentState::Failed));
                let empty = failed && inner.recorded && inner.leftover.is_none() && !inner.busy();
                empty.then(|| (inner.row.backend.clone(), inner.row.note.clone().unwrap_or_default()))
            };
            let Some((backend, note)) = empty() else { continue };
            let mut item = GcItem {
                backend,
                kind: "record".into(),
                name: slot.key.clone(),
                why: format!("the environment failed: {note}"),
                error: None,
            };
            let life = match remove {
                true => Some(tokio::time::timeout(BUSY, slot.life.lock()).await),
                false => None,
            };
            if let Some(Err(_)) = &life {
                item.error = Some("somebody is busy with it: ask again".into());
            }
            if let Some(Ok(_life)) = &life {
                // Whoever was busy with it may have found it.
                if empty().is_none() {
                    continue;
                }
                // It may only have been out of reach, and without a record the next one would remove it.
                let may_be_there = {
                    let inner = slot.lock();
                    inner.keeps() || inner.row.place.is_some()
                };
                if may_be_there {
                    match self.environments.place_of(&slot).await {
                        Ok(None) => {}
                        Ok(Some(_)) => continue,
                        Err(error) => {
                            item.error = Some(error.to_string());
                            items.push(item);
                            continue;
                        }
                    }
                }
                let mut event =
                    crate::events::event(EventKind::EnvironmentRemoved, json!({ "reason": "gc" }));
                event.environment = Some(slot.key.clone());
                match self.common.store.remove_environment(&slot.key, Some(event)).await {
                    Ok(_) => self.environments.retire(&slot),
                    Err(error) => item.error = Some(error.to_string()),
                }
            }
            items.push(item);
        }
        items
    }
}

fn item(backend: &dyn Backend, found: &Found) -> GcItem {
    let age = found.age.map_or_else(String::new, |age| format!(", {} old", shown(age)));
    let (kind, why) = match (found.alive, &found.task) {
        (true, _) => ("outpost", format!("no record claims it; its outpost runs{age}")),
        (false, Some(_)) => ("place", format!("no record claims it, and its outpost is dead{age}")),
        (false, None) => ("place", format!("left of a place that nobody can use again{age}")),
    };
    GcItem {
        backend: backend.name().to_owned(),
        kind: kind.into(),
        name: found.name.clone(),
        why,
        error: None,
    }
}

fn shown(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}
