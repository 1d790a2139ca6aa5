//! Puts environments away that nobody has used for their lifetime.
//!
//! One timer is set to the earliest expiry and is moved when an earlier one comes up; between expiries nothing
//! wakes. An expiry that has moved on in the meantime is found out when the timer rings.

use crate::ending::{Ending, Why};
use crate::environments::Environments;
use crate::place::Kept;
use crate::slot::{Live, Phase, Slot};
use farshell_api::environment::EnvironmentState;
use farshell_engine::{Error, Kind, Outpost, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an outpost may take to say what runs in it, with the connection that may have to be made for that.
const ANSWER: Duration = Duration::from_secs(30);

/// How often an outpost may be silent in a place that is awake, until that is put away. It costs, and its files are kept.
const SILENT: u32 = 2;

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
    let mut asked = ask(environments, slot).await;
    let doomed = {
        let mut inner = slot.lock();
        inner.reaping = false;
        // Who waited for a line to be mended gets to what ended meanwhile.
        let back = std::mem::replace(&mut inner.away, asked.is_err()) && asked.is_ok() && inner.far;
        inner.silent = if matches!(asked, Ok(Asked::Silent { .. })) { inner.silent + 1 } else { 0 };
        if let Ok(Asked::Silent { place, error }) = asked {
            asked = match inner.silent >= SILENT && inner.keeps() {
                // What was left of it before is the same place.
                true => {
                    Ok(Asked::Idle(Ending { live: None, place: inner.leftover.is_none().then_some(place) }))
                }
                false => Err(error),
            };
        }
        if back || matches!(asked, Ok(Asked::Runs)) {
            inner.used();
        }
        let expired = inner.expiry().is_some_and(|expiry| expiry <= Instant::now());
        match &asked {
            Ok(_) if expired => slot.change_phase(&mut inner, Phase::Ending),
            // It stays known, and is asked again after another lifetime. Its outpost has a lease of its own.
            Err(_) if expired => {
                if let Phase::Ready(live) = &inner.phase {
                    inner.leftover = Some(Arc::clone(&live.place));
                }
                slot.change_phase(&mut inner, Phase::Absent(EnvironmentState::Failed));
            }
            _ => {
                if let Some(expiry) = inner.expiry() {
                    environments.common.timer.no_later_than(expiry);
                }
            }
        }
        expired
    };
    match asked {
        Ok(Asked::Idle(ending)) if doomed => {
            // If it fails, that is recorded, and tried again later.
            let _ = environments.end(slot, ending, Why::Idle).await;
        }
        Err(mut error) if doomed => {
            error.message = format!("nobody can say whether something runs in it: {}", error.message);
            environments.failed(slot, &error).await;
        }
        _ => {}
    }
}

enum Asked {
    /// Nothing runs in it: this is to be ended.
    Idle(Ending),
    /// Commands of which nobody here knows: of a server that is gone, or of a call that lost its connection.
    Runs,
    /// Its place is there and awake, and nobody in it answers. That does not mean that nothing runs.
    Silent { place: Arc<Kept>, error: Error },
}

/// Whether something runs in an environment that nobody here uses. What is put away is not woken for that, and what does not
/// answer is not known to run anything.
pub(crate) async fn runs_unknown(environments: &Arc<Environments>, slot: &Arc<Slot>) -> bool {
    let asleep = {
        let inner = slot.lock();
        inner.busy() || matches!(inner.phase, Phase::Absent(EnvironmentState::Stopped))
    };
    !asleep && matches!(ask(environments, slot).await, Ok(Asked::Runs))
}

/// Asks an environment that nobody uses what runs in it.
///
/// # Errors
/// It can't be asked, which does not mean that nothing runs.
async fn ask(environments: &Arc<Environments>, slot: &Arc<Slot>) -> Result<Asked> {
    let live = slot.live();
    let all = |live: Option<Arc<Live>>| Ok(Asked::Idle(Ending { live, place: None }));
    let (outpost, awake) = match &live {
        Some(live) if live.outpost.is_connected() => (live.outpost.clone(), None),
        // Nobody was ever in it.
        None if slot.lock().row.place.is_none() => return all(None),
        _ => {
            let place = match environments.look(slot).await {
                Ok(Some(place)) if !place.sleeps() => place,
                // What sleeps already is not woken for its end, and what is gone is not brought back.
                Ok(_) => {
                    let place = live.map(|live| Arc::clone(&live.place));
                    return Ok(Asked::Idle(Ending { live: None, place }));
                }
                Err(error) => match live {
                    // Nothing ran when it was left, and nobody has come since.
                    Some(live) if live.outpost.rests() => return all(Some(live)),
                    _ => return Err(error),
                },
            };
            match &live {
                // To ask would wake it.
                Some(known) if known.outpost.rests() => return all(live),
                Some(known) => (known.outpost.clone(), Some(Arc::clone(&known.place))),
                None => {
                    let place = Arc::new(Kept::new(place, slot.lock().gate.clone()));
                    (Outpost::new(Arc::<Kept>::clone(&place)), Some(place))
                }
            }
        }
    };
    let error = match tokio::time::timeout(ANSWER, outpost.info()).await {
        Ok(Ok(info)) if info.running > 0 => return Ok(Asked::Runs),
        Ok(Ok(_)) => return all(live),
        Ok(Err(error)) => error,
        Err(_) => Error::new(
            Kind::TimedOut,
            format!("asking the outpost of {}", slot.key),
            format!("no answer in {} s", ANSWER.as_secs()),
        ),
    };
    match awake {
        Some(place) => Ok(Asked::Silent { place, error }),
        None => Err(error),
    }
}
