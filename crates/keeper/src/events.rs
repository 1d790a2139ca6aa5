//! The durable log of what happened.

use crate::{Inner, from_store, now, request};
use farshell_api::event::{AckRequest, EventKind, EventList, EventQuery};
use farshell_engine::Result;
use farshell_store::NewEvent;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Events of one answer, if nothing is said, and at most.
const SOME: u32 = 1000;
const MOST: u32 = 10_000;
/// The longest wait for one.
const LONGEST: Duration = Duration::from_secs(600);

pub(crate) fn event(kind: EventKind, data: Value) -> NewEvent {
    let mut event = NewEvent::new(kind, now());
    event.data = data;
    event
}

impl Inner {
    pub(crate) async fn events(&self, query: EventQuery) -> Result<EventList> {
        let store = &self.common.store;
        let limit = query.limit.unwrap_or(SOME).clamp(1, MOST);
        let wait = request::pause("wait", query.wait, Duration::ZERO, LONGEST)?;
        let deadline = Instant::now() + wait;
        let after = match (query.after, &query.consumer) {
            (Some(after), _) => after,
            (None, Some(consumer)) => store.acked(consumer).await.map_err(from_store)?,
            (None, None) => 0,
        };
        let mut newest = store.watch();
        loop {
            newest.borrow_and_update();
            let list = store.events(after, limit, query.task.as_deref()).await.map_err(from_store)?;
            if !list.events.is_empty() || Instant::now() >= deadline {
                return Ok(list);
            }
            match tokio::time::timeout_at(deadline, newest.changed()).await {
                Ok(Ok(())) => {}
                // The time is up, or the store was closed: there is nothing more to come.
                Ok(Err(_)) | Err(_) => return Ok(list),
            }
        }
    }

    pub(crate) async fn ack(&self, request: AckRequest) -> Result<()> {
        self.common.store.ack(&request.consumer, request.seq).await.map(drop).map_err(from_store)
    }
}
