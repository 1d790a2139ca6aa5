//! What can be made to go wrong: `POST /emulator/faults` with a list of these replaces what is armed, and `GET` tells what is
//! left of it.

use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One kind of trouble.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Fault {
    /// `403`, `404`, `429`, `500`, `501`, `502`, `503`, `520`, `reset-before`, `reset-after`, `ws-refuse`, `ws-close`, `ws-quiet` (it does not count as
    /// activity), `redirect`: what becomes of a request. `slow`, `list-lag`: how long things take, for as long as they
    /// are armed. `start-error`, `build-failed`: what becomes of the next sandbox that starts, or is built.
    pub kind: String,
    /// Part of the path and query of the requests that are meant.
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub method: String,
    /// How often it happens.
    #[serde(default = "once")]
    pub count: u32,
    /// How many such requests go well before.
    #[serde(default)]
    pub skip: u32,
    /// Milliseconds: of `slow` and `list-lag`, and until `ws-close`.
    #[serde(default)]
    pub ms: u64,
    /// Of `start-error`.
    #[serde(default)]
    pub recoverable: bool,
    /// Of `redirect`: where to.
    #[serde(default)]
    pub to: String,
}

fn once() -> u32 {
    1
}

/// What may befall any request in a storm.
const STORM: &[&str] =
    &["500", "502", "503", "429", "reset-before", "reset-after", "ws-refuse", "ws-close", "slow", "list-lag"];
/// How long a connection lasts at most before a storm closes it, and how long a storm holds anything up.
const GUST_MS: u64 = 3000;

/// What is armed.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Mutex<Vec<Fault>>,
    /// One of so many requests goes wrong by itself; none if 0.
    storm: u32,
}

impl Faults {
    pub(crate) fn new(armed: Vec<Fault>, storm: u32) -> Self {
        Self { armed: Mutex::new(armed), storm }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gust(&self, kinds: &[&str]) -> Option<Fault> {
        let kinds: Vec<&&str> = kinds.iter().filter(|kind| STORM.contains(kind)).collect();
        let roll = getrandom::u64().ok()?;
        if self.storm == 0 || kinds.is_empty() || roll % u64::from(self.storm) != 0 {
            return None;
        }
        let pick = usize::try_from(roll >> 32).ok()? % kinds.len();
        Some(Fault {
            kind: (*kinds[pick]).to_owned(),
            path: String::new(),
            method: String::new(),
            count: 0,
            skip: 0,
            ms: (roll >> 16) % GUST_MS,
            recoverable: false,
            to: String::new(),
        })
    }

    pub(crate) fn arm(&self, faults: Vec<Fault>) {
        *self.lock() = faults;
    }

    /// What is still to come.
    pub(crate) fn armed(&self) -> Vec<Fault> {
        self.lock().clone()
    }

    /// The next fault of this kind, which happens now.
    pub(crate) fn take(&self, kind: &str, path: &str) -> Option<Fault> {
        self.take_any(&[kind], "", path)
    }

    /// The first armed fault of these kinds that means such a request.
    pub(crate) fn take_any(&self, kinds: &[&str], method: &str, path: &str) -> Option<Fault> {
        let mut all = self.lock();
        let meant = all.iter_mut().find(|fault| {
            fault.count > 0
                && kinds.contains(&fault.kind.as_str())
                && path.contains(&fault.path)
                && (fault.method.is_empty() || method.is_empty() || fault.method == method)
        });
        let Some(fault) = meant else { return self.gust(kinds) };
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.count -= 1;
        Some(fault.clone())
    }

    fn lasting(&self, kind: &str) -> Duration {
        let armed: u64 = self.lock().iter().filter(|fault| fault.kind == kind).map(|fault| fault.ms).sum();
        Duration::from_millis(armed + self.gust(&[kind]).map_or(0, |gust| gust.ms))
    }

    pub(crate) fn slow(&self) -> Duration {
        self.lasting("slow")
    }

    pub(crate) fn list_lag(&self) -> Duration {
        self.lasting("list-lag")
    }
}
