//! From start to end: what the server's tasks have to know of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Only forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Nobody new is let in. Long polls and streams end now, short calls are finished.
    Stopping,
    /// Whatever is still under way is dropped.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Life {
    phase: watch::Sender<Phase>,
    connections: watch::Sender<u32>,
    remove_environments: AtomicBool,
}

impl Life {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: watch::Sender::new(Phase::Serving),
            connections: watch::Sender::new(0),
            remove_environments: AtomicBool::new(false),
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            *phase = to.max(*phase);
            later
        });
    }

    /// Returns when this phase has begun.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender lives as long as self does.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Somebody asked for the end.
    pub(crate) fn stop(&self, remove_environments: bool) {
        self.remove_environments.fetch_or(remove_environments, Ordering::Relaxed);
        self.advance(Phase::Stopping);
    }

    pub(crate) fn removes_environments(&self) -> bool {
        self.remove_environments.load(Ordering::Relaxed)
    }

    /// Counts a connection for as long as the guard lives.
    pub(crate) fn enter(self: &Arc<Self>) -> Guard {
        self.connections.send_modify(|count| *count += 1);
        Guard(Arc::clone(self))
    }

    pub(crate) fn connections(&self) -> u32 {
        *self.connections.borrow()
    }

    /// Returns when there is no connection, or when there is one.
    pub(crate) async fn connected(&self, any: bool) {
        let _ = self.connections.subscribe().wait_for(|count| (*count > 0) == any).await;
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Guard(Arc<Life>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.connections.send_modify(|count| *count -= 1);
    }
}
