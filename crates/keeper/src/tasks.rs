//! Work that goes on beside the calls, until the keeper is closed.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// How long work may take to notice the end. It is dropped at its next pause, so this is never reached but on a
/// machine that stands still.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Tasks {
    handle: Handle,
    closing: watch::Sender<bool>,
    /// A clone is held by all that goes on.
    running: Mutex<Option<mpsc::Sender<()>>>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl Tasks {
    /// To be called within a runtime.
    pub(crate) fn new() -> Self {
        let (running, ended) = mpsc::channel(1);
        Self {
            handle: Handle::current(),
            closing: watch::Sender::new(false),
            running: Mutex::new(Some(running)),
            ended: tokio::sync::Mutex::new(ended),
        }
    }

    /// Work on a task of its own. Whoever drops the handle lets it go on; it gives nothing if the keeper was closed
    /// meanwhile.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let mut closing = self.closing.subscribe();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.handle.spawn(async move {
            let done = tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => None,
                done = work => Some(done),
            };
            drop(running);
            done
        })
    }

    /// Ends all work.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut ended = self.ended.lock().await;
        let _ = tokio::time::timeout(PATIENCE, ended.recv()).await;
    }
}
