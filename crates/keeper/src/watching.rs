//! Following a process whose output is watched.

use crate::background::pause;
use crate::slot::Live;
use crate::watch::Search;
use crate::{Inner, now};
use farshell_engine::Result;
use farshell_engine::backend::BoxFuture;
use farshell_engine::capture::Sink;
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Chunk, Status};
use farshell_store::{NewEvent, ProcessRow};
use std::sync::Arc;
use tokio::sync::Notify;

/// Output without a match after which the place of the search is recorded all the same.
const PROGRESS: u64 = 1 << 20;

impl Inner {
    /// Follows a process's output and searches it. Nothing if the watch was switched off on the way: `row` knows.
    pub(crate) async fn follow_watched(
        self: &Arc<Self>,
        live: &Live,
        id: &ProcessId,
        search: Search,
        row: &mut ProcessRow,
    ) -> Result<Option<Status>> {
        let disabled = Arc::new(Notify::new());
        let mut sink = Watching {
            inner: Arc::clone(self),
            id: id.as_str().to_owned(),
            saved: search.searched(),
            search,
            pending: Vec::new(),
            disabled: Arc::clone(&disabled),
        };
        let attach = Attach { from: row.watch_offset, lossless: false, until_closed: false };
        let ended = tokio::select! {
            ended = live.outpost.attach(id.clone(), attach, &mut sink) => ended.map(Some),
            () = disabled.notified() => Ok(None),
        };
        if matches!(ended, Ok(Some(_))) {
            sink.pending.extend(sink.search.finish(now(), &self.breaker));
        }
        sink.save().await;
        row.watch_offset = sink.saved;
        row.watch_state = sink.search.state.to_json();
        ended
    }
}

/// Searches output as it arrives, and records what it finds before it takes more.
struct Watching {
    inner: Arc<Inner>,
    id: String,
    search: Search,
    /// Found and not yet recorded.
    pending: Vec<NewEvent>,
    /// How far the search is recorded.
    saved: u64,
    disabled: Arc<Notify>,
}

impl Watching {
    async fn save(&mut self) {
        let offset = self.search.searched();
        if self.pending.is_empty() && offset == self.saved {
            return;
        }
        let mut attempt = 0;
        loop {
            let events = self.pending.clone();
            let state = self.search.state.to_json();
            match self.inner.common.store.set_watch(&self.id, offset, state, events).await {
                Ok(_) => break,
                Err(error) if self.inner.hopeless(&error) => break,
                Err(_) => {
                    tokio::time::sleep(pause(attempt)).await;
                    attempt += 1;
                }
            }
        }
        self.pending.clear();
        self.saved = offset;
        if self.search.state.disabled {
            self.disabled.notify_one();
        }
    }
}

impl Sink for Watching {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.pending.extend(self.search.push(chunk.bytes, now(), &self.inner.breaker));
    }

    fn room(&mut self) -> Option<BoxFuture<'_, ()>> {
        let far = self.search.searched().saturating_sub(self.saved) > PROGRESS;
        (far || !self.pending.is_empty()).then(|| Box::pin(self.save()) as BoxFuture<'_, ()>)
    }

    fn gap(&mut self, _from: u64, to: u64) {
        self.search.gap(to);
    }
}
