//! Who wants an environment that is not there yet.

use crate::slot::Slot;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Demand(watch::Sender<Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// How many wait until it can be used.
    waiting: u32,
    /// How many wait to remove it.
    ending: u32,
}

impl Demand {
    /// Somebody waits to use it.
    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().waiting > 0
    }

    /// Ends when there is none: nobody waits to use it, or somebody waits to remove it.
    pub(crate) async fn none(&self) {
        // The sender is here: it does not end before this.
        let _ = self.0.subscribe().wait_for(|count| count.waiting == 0 || count.ending > 0).await;
    }
}

/// Somebody is counted, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    slot: Arc<Slot>,
    count: fn(&mut Count) -> &mut u32,
}

impl Waiter {
    pub(crate) fn to_use(slot: &Arc<Slot>) -> Self {
        Self::new(slot, |count| &mut count.waiting)
    }

    pub(crate) fn to_remove(slot: &Arc<Slot>) -> Self {
        Self::new(slot, |count| &mut count.ending)
    }

    fn new(slot: &Arc<Slot>, count: fn(&mut Count) -> &mut u32) -> Self {
        slot.demand.0.send_modify(|all| *count(all) += 1);
        Self { slot: Arc::clone(slot), count }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.slot.demand.0.send_modify(|all| *(self.count)(all) -= 1);
    }
}
