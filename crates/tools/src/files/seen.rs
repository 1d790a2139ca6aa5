//! Which version of a file a task has seen last, so that it is noticed if somebody else has changed it since.

use farshell_protocol::file::Version;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files that are remembered. Beyond that all are forgotten: then nothing is noticed, and nothing goes wrong.
const MOST: usize = 20_000;

/// Environment, task and real path.
pub(crate) type Key = (String, String, Vec<u8>);

#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<Key, Version>>);

impl Seen {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Version> {
        self.lock().get(key).copied()
    }

    pub(crate) fn set(&self, key: Key, version: Version) {
        let mut seen = self.lock();
        if seen.len() >= MOST && !seen.contains_key(&key) {
            seen.clear();
        }
        seen.insert(key, version);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}
