//! Puts environments away that nobody has used for their lifetime.
//!
//! One timer is set to the earliest expiry and is moved when an earlier one comes up; between expiries nothing
//! wakes. An expiry that has moved on in the meantime is found out when the timer rings.

use crate::ending::{Ending, Why};
use crate::environments::Environments;
use crate::slot::{Phase, Slot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an outpost may take to say what runs in it.
const ANSWER: Duration = Duration::from_secs(5);

/// When the reaper looks next.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    /// Absent while it looks, and if there is nothing to wait for.
    set_to: Mutex<Option<Instant>>,
    moved: Notify,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.set_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something expires then.
    pub(crate) fn no_later_than(&self, expiry: Instant) {
        if self.lock().is_none_or(|set_to| expiry < set_to) {
            self.moved.notify_one();
        }
    }
}

/// Works until it is dropped.
pub(crate) async fn run(environments: Arc<Environments>) {
    let timer = &environments.common.timer;
    loop {
        // From here on whoever leaves an environment has this loop look again.
        *timer.lock() = None;
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for slot in environments.slots() {
            match slot.expiry() {
                Some(expiry) if expiry <= now => {
                    slot.lock().reaping = true;
                    let environments_ = Arc::clone(&environments);
                    environments.common.tasks.spawn(async move { reap(&environments_, &slot).await });
                }
                Some(expiry) => next = Some(next.map_or(expiry, |next| next.min(expiry))),
                None => {}
            }
        }
        *timer.lock() = next;
        match next {
            Some(next) => tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = timer.moved.notified() => {}
            },
            None => timer.moved.notified().await,
        }
    }
}

async fn reap(environments: &Arc<Environments>, slot: &Arc<Slot>) {
    let _life = slot.life.lock().await;
    let mut ending = Ending { live: slot.live(), place: None };
    // What sleeps already is not woken for its end.
    let unconnected = ending.live.as_ref().is_some_and(|live| !live.outpost.is_connected());
    if unconnected && environments.sleeps(slot).await {
        ending.place = ending.live.take().map(|live| Arc::clone(&live.place));
    }
    // Commands that nobody here knows of: of a server that is gone, say.
    let strangers = match &ending.live {
        // Nothing ran when it was left, and nobody has come since: to ask would wake it.
        Some(live) if live.outpost.rests() => false,
        Some(live) => match tokio::time::timeout(ANSWER, live.outpost.info()).await {
            Ok(Ok(info)) => info.running > 0,
            _ => false,
        },
        None => false,
    };
    let doomed = {
        let mut inner = slot.lock();
        inner.reaping = false;
        if strangers {
            inner.used();
        }
        let expired = inner.expiry().is_some_and(|expiry| expiry <= Instant::now());
        if expired {
            slot.change_phase(&mut inner, Phase::Ending);
        } else if let Some(expiry) = inner.expiry() {
            environments.common.timer.no_later_than(expiry);
        }
        expired
    };
    if doomed {
        // If it fails, that is recorded, and tried again later.
        let _ = environments.end(slot, ending, Why::Idle).await;
    }
}
