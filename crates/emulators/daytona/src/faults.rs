//! What can be made to go wrong: `POST /emulator/faults` with a list of these replaces what is armed.

use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One kind of trouble.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Fault {
    /// `502`, `503`, `429`, `500`, `reset-before`, `reset-after`, `ws-refuse`, `ws-close`, `redirect`: what becomes of a
    /// request. `slow`, `list-lag`: how long things take, for as long as they are armed. `start-error`,
    /// `build-failed`: what becomes of the next sandbox that starts, or is built.
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

/// What is armed.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arm(&self, faults: Vec<Fault>) {
        *self.lock() = faults;
    }

    /// The next fault of this kind, which happens now.
    pub(crate) fn take(&self, kind: &str, path: &str) -> Option<Fault> {
        self.take_any(&[kind], "", path)
    }

    /// The first armed fault of these kinds that means such a request.
    pub(crate) fn take_any(&self, kinds: &[&str], method: &str, path: &str) -> Option<Fault> {
        let mut all = self.lock();
        let fault = all.iter_mut().find(|fault| {
            fault.count > 0
                && kinds.contains(&fault.kind.as_str())
                && path.contains(&fault.path)
                && (fault.method.is_empty() || method.is_empty() || fault.method == method)
        })?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.count -= 1;
        Some(fault.clone())
    }

    fn lasting(&self, kind: &str) -> Duration {
        self.lock()
            .iter()
            .filter(|fault| fault.kind == kind)
            .map(|fault| Duration::from_millis(fault.ms))
            .sum()
    }

    pub(crate) fn slow(&self) -> Duration {
        self.lasting("slow")
    }

    pub(crate) fn list_lag(&self) -> Duration {
        self.lasting("list-lag")
    }
}
