//! Calls whose question went to the client as the end of a request. They wait for the request that brings the answer.
//!
//! The client holds a handle that can't be guessed; all else stays here.

use crate::running::{Asked, Running};
use farshell_api::approval::Approval;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Calls that wait at one time.
const MOST: usize = 256;
/// A client that is this late after the question's own time is not waited for.
const LATE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Default)]
pub(crate) struct Suspended(Arc<Mutex<HashMap<String, Waiting>>>);

/// A call, and what it waits for.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) running: Running,
    pub(crate) approval: Approval,
}

impl Suspended {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call, and gives its handle. Gives it back if there are too many, or no handle can be made.
    pub(crate) fn keep(&self, waiting: Waiting) -> Result<String, Box<Waiting>> {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_err() {
            return Err(Box::new(waiting));
        }
        let handle: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let left = left(&waiting.approval) + LATE;
        let mut all = self.all();
        if all.len() >= MOST {
            return Err(Box::new(waiting));
        }
        all.insert(handle.clone(), waiting);
        drop(all);
        let (suspended, forgotten) = (self.clone(), handle.clone());
        tokio::spawn(async move {
            tokio::time::sleep(left).await;
            // Dropped, a call is cancelled. Not under the lock.
            let late = suspended.all().remove(&forgotten);
            drop(late);
        });
        Ok(handle)
    }

    /// The call that waits under this handle, if it is the same call.
    pub(crate) fn resume(&self, handle: &str, asked: &Asked) -> Option<Waiting> {
        let mut all = self.all();
        match all.get(handle) {
            Some(waiting) if waiting.running.asked == *asked => all.remove(handle),
            _ => None,
        }
    }
}

/// How long its answer is waited for from now on.
fn left(approval: &Approval) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(approval.expires_at).saturating_sub(now)
}
