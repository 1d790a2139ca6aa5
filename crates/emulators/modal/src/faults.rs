//! What can be made to go wrong: `POST /emulator/faults` with a list of these replaces what is armed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One kind of trouble.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Fault {
    /// Of a call: `unavailable-before` and `unavailable-after` it took effect, `reset-before` and `reset-after` (the whole
    /// connection is dropped), `throttle` (RESOURCE_EXHAUSTED with a policy to try again after `ms`), `cut` (a stream of
    /// answers ends with UNAVAILABLE after `bytes`), `cut-connection` (the connection is dropped after `bytes`), `slow`
    /// (`ms` before it is served).
    ///
    /// Of a call with a short-lived token: `refused-token` (as if that had expired on the server's clock).
    ///
    /// Of access to a router: `expired-jwt` (what is handed out is over already).
    ///
    /// Of an answer: `warning` (`text` is sent along, for people).
    ///
    /// Of a snapshot that is taken: `slow-snapshot` (`ms` more).
    ///
    /// Of a sandbox that is made: `slow-start` (`ms` more), `start-error`; of one that ends: `exit-snapshot-error`,
    /// `slow-exit-snapshot` (`ms` more).
    pub kind: String,
    /// Part of the name of the calls that are meant.
    #[serde(default)]
    pub rpc: String,
    /// How often it happens.
    #[serde(default = "once")]
    pub count: u32,
    /// How many such calls go well before.
    #[serde(default)]
    pub skip: u32,
    #[serde(default)]
    pub ms: u64,
    /// Of `cut` and `cut-connection`: how much of the answers comes through.
    #[serde(default)]
    pub bytes: u64,
    /// Of `warning`.
    #[serde(default)]
    pub text: String,
}

fn once() -> u32 {
    1
}

/// What is armed.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    armed: Vec<Fault>,
    /// How often each kind has happened.
    happened: BTreeMap<String, u64>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arm(&self, faults: Vec<Fault>) {
        self.lock().armed = faults;
    }

    /// What is still to happen.
    pub(crate) fn left(&self) -> Vec<Fault> {
        self.lock().armed.iter().filter(|fault| fault.count > 0).cloned().collect()
    }

    /// How often each kind has happened, so that who arms them knows that they do.
    pub(crate) fn happened(&self) -> BTreeMap<String, u64> {
        self.lock().happened.clone()
    }

    /// The first armed fault of these kinds that means such a call; it happens now.
    pub(crate) fn take(&self, kinds: &[&str], rpc: &str) -> Option<Fault> {
        let mut book = self.lock();
        let Book { armed, happened } = &mut *book;
        let fault = armed.iter_mut().find(|fault| {
            fault.count > 0 && kinds.contains(&fault.kind.as_str()) && rpc.contains(&fault.rpc)
        })?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.count -= 1;
        *happened.entry(fault.kind.clone()).or_default() += 1;
        Some(fault.clone())
    }

    /// How long such a fault makes something take.
    pub(crate) fn delay(&self, kind: &str, rpc: &str) -> Duration {
        self.take(&[kind], rpc).map_or(Duration::ZERO, |fault| Duration::from_millis(fault.ms))
    }
}
