//! What an earlier keeper left is taken up: environments are connected to again, processes followed on, and what
//! died meanwhile is said.
//!
//! Each environment is found again on a task of its own, with its lock held from before the keeper is open: calls
//! that need it wait for that, and others don't.

use crate::askpass;
use crate::background::{begun, pause};
use crate::ending::{Ending, REMOVING, Why};
use crate::environments::{Environments, outpost_replaced};
use crate::promotion::{keep_only, promised};
use crate::slot::{Live, Phase, Slot};
use crate::{Inner, from_store, now};
use farshell_api::environment::EnvironmentState;
use farshell_api::process::ProcessState;
use farshell_engine::{Kind, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{State, Status};
use farshell_store::ProcessRow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// However long an environment has not been used by the clock, which may have jumped: it stays for this long after
/// it was found again, if its lifetime is not shorter.
const STAY: Duration = Duration::from_secs(10);

const LOST: &str = "the outpost that ran it is gone: nobody can say how it ended";

/// What an earlier keeper has left in an environment.
struct Left {
    /// Foreground commands that are to go on in the background.
    promised: HashSet<String>,
    /// Since when this keeper is at it.
    begun: Instant,
    /// Background processes.
    rows: Vec<ProcessRow>,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.rows.is_empty() && self.promised.is_empty()
    }
}

impl Inner {
    /// # Errors
    /// The records can't be read.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<()> {
        let store = &self.common.store;
        let environments = store.environments().await.map_err(from_store)?;
        let mut processes: HashMap<String, Vec<ProcessRow>> = HashMap::new();
        for row in store.unfinished().await.map_err(from_store)? {
            self.remember(&row);
            processes.entry(row.process.environment.clone()).or_default().push(row);
        }
        let begun = Instant::now();
        for row in environments {
            let rows = processes.remove(&row.key).unwrap_or_default();
            let slot = self.environments.restore(row);
            let Ok(life) = Arc::clone(&slot.life).try_lock_owned() else { continue };
            let inner = Arc::clone(self);
            let left = Left { promised: promised(&slot), begun, rows };
            self.common.tasks.spawn(async move { inner.find_again(slot, life, left).await });
        }
        // Those of environments of which nothing is left.
        for mut row in processes.into_values().flatten() {
            self.complete(&mut row, ProcessState::Lost, Some(LOST.into()), None).await;
        }
        Ok(())
    }

    async fn find_again(self: &Arc<Self>, slot: Arc<Slot>, life: OwnedMutexGuard<()>, left: Left) {
        let state = {
            let mut inner = slot.lock();
            // Until they are found, or known to be gone, nothing is ended in which they may run.
            inner.unseen = u32::try_from(left.rows.len()).unwrap_or(u32::MAX);
            inner.row.state
        };
        let mut life = Some(life);
        let mut attempt = 0;
        match state {
            EnvironmentState::Stopped if left.rows.is_empty() => return,
            EnvironmentState::Failed if left.is_nothing() => return,
            EnvironmentState::Ending if left.rows.is_empty() => return self.end_again(&slot).await,
            _ => {}
        }
        loop {
            let found = match slot.live() {
                // Somebody else was faster, in a pause of ours.
                Some(live) => Ok(live),
                None if slot.lock().retired => break,
                None => match self.environments.connect_again(&slot).await {
                    Ok(None) => break,
                    Ok(Some(live)) => Ok(live),
                    Err(error) => Err(error),
                },
            };
            match found {
                Ok(live) => {
                    self.take_up(&slot, &live, left).await;
                    slot.seen();
                    return;
                }
                Err(error) => {
                    if attempt == 0 {
                        self.environments.failed(&slot, &error).await;
                    }
                    if left.is_nothing() {
                        return;
                    }
                    // What runs there may well run on: it is not given up, and calls get their turn meanwhile.
                    drop(life.take());
                    slot.pause(pause(attempt)).await;
                    attempt += 1;
                    life = Some(Arc::clone(&slot.life).lock_owned().await);
                }
            }
        }
        keep_only(&slot, |id| !left.promised.contains(id));
        for mut row in left.rows {
            self.complete(&mut row, ProcessState::Lost, Some(LOST.into()), None).await;
        }
        slot.seen();
    }

    /// Ends an environment whose keeper died while it did that.
    async fn end_again(self: &Arc<Self>, slot: &Arc<Slot>) {
        slot.set_phase(Phase::Ending);
        let ended = async {
            let place = self.environments.place_of(slot).await?;
            let ending = Ending { live: None, place };
            // Its files may be in it and nowhere else: nothing is removed that nobody wanted removed.
            let why = match slot.lock().row.note.as_deref() == Some(REMOVING) {
                true => Why::Removed,
                false => Why::Found,
            };
            self.environments.end(slot, ending, why).await
        };
        if let Err(error) = ended.await {
            self.environments.failed(slot, &error).await;
        }
    }

    /// Takes up what runs in an environment that was found again.
    async fn take_up(self: &Arc<Self>, slot: &Arc<Slot>, live: &Arc<Live>, left: Left) {
        let Left { promised, begun, rows } = left;
        // Those that were recorded before, and those that were started here meanwhile.
        let ours = |id: &str| self.unfinished_of(id).is_some() || rows.iter().any(|row| row.process.id == id);
        // Foreground commands of the earlier keeper: nobody follows them, but the environment must stay for them.
        if let Ok(all) = live.outpost.processes().await {
            let running = |status: &&Status| matches!(status.state, State::Running | State::Queued);
            let ids: HashSet<&str> = all.iter().filter(running).map(|status| status.id.as_str()).collect();
            keep_only(slot, |id| !promised.contains(id) || (ids.contains(id) && !ours(id)));
            for status in all {
                let running = matches!(status.state, State::Running | State::Queued);
                if running && status.id.as_str().starts_with(askpass::PREFIX) {
                    // Of an earlier keeper: nobody answers it any more, and a sudo may be waiting.
                    if Duration::from_micros(status.elapsed_us) > begun.elapsed() {
                        let _ = live.outpost.kill(vec![status.id], askpass::GRACE).await;
                    }
                } else if running && !ours(status.id.as_str()) {
                    let entered = slot.adopt(live, false);
                    let task = slot.lock().row.tasks.first().cloned().unwrap_or_default();
                    self.adopt_foreground(&status, &task, entered);
                }
            }
        }
        for row in rows {
            self.take_up_process(slot, live, row).await;
        }
    }

    async fn take_up_process(self: &Arc<Self>, slot: &Arc<Slot>, live: &Arc<Live>, mut row: ProcessRow) {
        let Ok(id) = ProcessId::new(row.process.id.as_str()) else { return };
        let Some(unfinished) = self.unfinished_of(id.as_str()) else { return };
        let same = row.instance.as_ref().is_some_and(|instance| *instance == live.instance());
        if !same {
            return self.complete(&mut row, ProcessState::Lost, Some(LOST.into()), None).await;
        }
        // The request to start it may still be on its way, from the keeper that died.
        match begun(live, &id, &row).await {
            Ok(status) => {
                self.is_running(&mut row, &status).await;
                self.watch(slot.adopt(live, true), row, unfinished);
            }
            Err(error) => {
                let (state, note) = match error.kind {
                    Kind::NotStarted => (ProcessState::NotStarted, error.message),
                    Kind::NotFound => (ProcessState::Lost, "its outpost no longer knows of it".to_owned()),
                    // Out of reach again, or gone: its watcher has the patience to find out.
                    _ => return self.watch(slot.adopt(live, true), row, unfinished),
                };
                self.complete(&mut row, state, Some(note), None).await;
            }
        }
    }
}

impl Environments {
    /// Connects to the place of an environment as it was recorded. `None` if it is gone or sleeps: it is not made or
    /// woken for that, and the record says so. The caller holds its lock.
    pub(crate) async fn connect_again(&self, slot: &Arc<Slot>) -> Result<Option<Arc<Live>>> {
        let place = match self.look(slot).await? {
            Some(place) if !place.sleeps() => place,
            ended => return self.found_ended(slot, ended).await.map(|()| None),
        };
        let live = Arc::new(self.connect(slot, place).await?);
        let replaced = {
            let mut inner = slot.lock();
            let known = inner.row.place.as_ref();
            let replaced = known.is_some_and(|known| known.id != live.identity.id)
                || inner.row.instance.as_ref().is_some_and(|known| *known != live.instance());
            let (lifetime, last_used) = remaining(inner.row.lifetime_seconds, inner.row.last_used_at);
            inner.set_lifetime(lifetime);
            inner.last_used = last_used;
            inner.row.last_used_at = inner.row.last_used_at.min(now());
            inner.set_place(&live);
            inner.row.note = None;
            inner.leftover = None;
            slot.change_phase(&mut inner, Phase::Ready(Arc::clone(&live)));
            replaced
        };
        let event = replaced.then(|| outpost_replaced(slot, &live));
        let row = slot.lock().row();
        let _ = self.common.store.put_environment(row, event).await;
        Ok(Some(live))
    }
}

/// The lifetime, and the moment from which it counts: the last use by the clock, as far as that can be true.
fn remaining(lifetime_seconds: u64, last_used_at: u64) -> (Duration, Instant) {
    let lifetime = Duration::from_secs(lifetime_seconds);
    let age = Duration::from_millis(now().saturating_sub(last_used_at));
    let left = lifetime.saturating_sub(age).max(STAY.min(lifetime));
    let begun = Instant::now();
    (lifetime, begun.checked_sub(lifetime.saturating_sub(left)).unwrap_or(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumped_ends_nothing_at_once_and_nothing_never() {
        let left = |lifetime: u64, last_used_at: u64| {
            let (lifetime, last_used) = remaining(lifetime, last_used_at);
            (last_used + lifetime).saturating_duration_since(Instant::now()).as_secs_f64().round()
        };
        let now = now();
        assert_eq!(left(300, now - 100_000), 200.0);
        assert_eq!(left(300, now + 86_400_000), 300.0, "in the future");
        assert_eq!(left(300, 0), 10.0, "long ago");
        assert_eq!(left(1, 0), 1.0);
        assert_eq!(left(300, u64::MAX), 300.0);
    }
}
