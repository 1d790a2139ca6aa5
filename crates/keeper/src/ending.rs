//! The end of an environment: what is persistent is put away, everything else is removed.

use crate::environments::Environments;
use crate::events::event;
use crate::place::Kept;
use crate::resting;
use crate::slot::{Live, Phase, Slot};
use farshell_api::environment::EnvironmentState;
use farshell_api::event::EventKind;
use farshell_engine::{Error, Kind, Place, Result};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long an outpost whose place is ended may take to answer that it is still there.
const STILL: Duration = Duration::from_secs(1);

/// How long a place may take to end. One that is kept says itself how long it may take: it may have a lot to put down.
const DESTROY: Duration = Duration::from_secs(120);

/// Noted while an environment is removed: whoever takes over goes on with that. One that was only to be put away is put
/// away.
pub(crate) const REMOVING: &str = "it is being removed";

/// Why an environment is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nobody has used it for its lifetime.
    Idle,
    /// Somebody wants it removed.
    Removed,
    /// Somebody wants it put away.
    Stopped,
    /// Another one takes its place at once.
    Replaced,
    /// It ended while no keeper was there.
    Found,
}

/// What there is to be ended.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) live: Option<Arc<Live>>,
    /// If nobody is connected to it.
    pub(crate) place: Option<Arc<Kept>>,
}

impl Environments {
    /// Ends an environment whose phase is [`Phase::Ending`]. The caller holds its lock.
    ///
    /// # Errors
    /// It may still be there; the reaper tries again.
    pub(crate) async fn end(&self, slot: &Arc<Slot>, ending: Ending, why: Why) -> Result<()> {
        let asked = matches!(why, Why::Idle | Why::Stopped);
        if let Some(live) = &ending.live
            && asked
            && slot.lock().keeps()
            // Noted when it was left alone.
            && !live.outpost.rests()
        {
            resting::collect(slot, live).await;
        }
        let (row, leftover, gate) = {
            let mut inner = slot.lock();
            inner.row.note = matches!(why, Why::Removed).then(|| REMOVING.to_owned());
            (inner.row(), inner.leftover.take(), std::mem::take(&mut inner.gate))
        };
        // Nobody connects any more, so nobody brings back what is ended.
        gate.close().await;
        let keeps = slot.lock().keeps();
        // What dies in the middle of it is ended by the next keeper.
        let _ = self.common.store.put_environment(row, None).await;
        let place = ending.place.or_else(|| ending.live.as_ref().map(|live| Arc::clone(&live.place)));
        let asleep = keeps && matches!(why, Why::Idle | Why::Stopped | Why::Found);
        let mut keepsake = None;
        for place in place.into_iter().chain(leftover) {
            let (ending, most) = match asleep {
                true => (place.suspend(), place.suspend_limit()),
                false => (place.destroy(), DESTROY),
            };
            let ended = tokio::time::timeout(most, ending).await.unwrap_or_else(|_| {
                let message = format!("its place has not ended after {} s", most.as_secs());
                Err(Error::new(Kind::TimedOut, format!("ending environment {}", slot.key), message))
            });
            if let Err(error) = ended {
                // What runs in it may well run on, and is followed further.
                gate.open();
                {
                    let mut inner = slot.lock();
                    inner.leftover = Some(place);
                    inner.gate = gate;
                }
                self.failed(slot, &error).await;
                return Err(error);
            }
            keepsake = keepsake.or_else(|| place.keepsake());
        }
        gate.give_up();
        // Somebody may have taken the way to it away, and to its place it looks as if it were gone.
        if let Some(live) = ending.live
            && matches!(tokio::time::timeout(STILL, live.outpost.ping()).await, Ok(Ok(())))
        {
            let _ = tokio::time::timeout(STILL, live.outpost.shutdown()).await;
        }
        if why == Why::Replaced {
            let mut inner = slot.lock();
            inner.resting.forget();
            inner.row.place = None;
            return Ok(());
        }
        let stays = keeps && why != Why::Removed;
        let kind = match why {
            Why::Stopped => EventKind::EnvironmentStopped,
            Why::Idle | Why::Found if stays => EventKind::EnvironmentStopped,
            Why::Idle | Why::Found | Why::Removed | Why::Replaced => EventKind::EnvironmentRemoved,
        };
        let reason = match why {
            Why::Idle => "idle",
            Why::Found => "gone",
            Why::Stopped | Why::Removed | Why::Replaced => "asked",
        };
        let mut event = event(kind, json!({ "reason": reason }));
        event.environment = Some(slot.key.clone());
        if stays {
            let row = {
                let mut inner = slot.lock();
                inner.shells.lost(match why {
                    Why::Idle => "its environment was put away because nobody used it",
                    Why::Found => "its place was stopped while no server ran",
                    _ => "its environment was put away",
                });
                inner.row.note = keepsake;
                slot.change_phase(&mut inner, Phase::Absent(EnvironmentState::Stopped));
                inner.row()
            };
            let _ = self.common.store.put_environment(row, Some(event)).await;
        } else {
            // A record that can't be removed now is found without a place by the next keeper.
            let _ = self.common.store.remove_environment(&slot.key, Some(event)).await;
            slot.set_phase(Phase::Absent(EnvironmentState::Stopped));
            self.retire(slot);
        }
        Ok(())
    }

    /// Forgets an environment that could not be ended. The caller holds its lock. Says what is left.
    pub(crate) async fn forget(&self, slot: &Arc<Slot>, error: &Error) -> String {
        let (gate, left) = {
            let mut inner = slot.lock();
            inner.leftover = None;
            slot.change_phase(&mut inner, Phase::Ending);
            let place = inner.row.place.as_ref().map_or("its place", |place| place.name.as_str());
            let lease = inner.longest_lease().as_secs();
            let left = format!(
                "{error}. What runs on {place} goes on there, and nobody follows it any more; its outpost ends by itself when nobody is connected and nothing has run in it for {lease} s"
            );
            (std::mem::take(&mut inner.gate), left)
        };
        gate.close().await;
        gate.give_up();
        let mut event = event(
            EventKind::EnvironmentRemoved,
            json!({ "reason": "forgotten", "error": error.to_string() }),
        );
        event.environment = Some(slot.key.clone());
        let _ = self.common.store.remove_environment(&slot.key, Some(event)).await;
        slot.set_phase(Phase::Absent(EnvironmentState::Stopped));
        self.retire(slot);
        left
    }

    /// The place of an environment was looked for and is not there, or sleeps. The caller holds its lock.
    pub(crate) async fn found_ended(&self, slot: &Arc<Slot>, place: Option<Box<dyn Place>>) -> Result<()> {
        slot.set_phase(Phase::Ending);
        let place = place.map(|place| Arc::new(Kept::new(place, slot.lock().gate.clone())));
        self.end(slot, Ending { live: None, place }, Why::Found).await
    }
}
