//! A place that can be given up.
//!
//! An outpost's client connects again when its connection is lost, and a place starts its outpost when somebody
//! connects. So whoever still waits for an answer when an environment is removed would bring it back to life.

use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place};
use farshell_engine::{Error, Kind, Result};
use std::sync::Arc;
use tokio::sync::RwLock;

/// The way to an environment's place, shared by all handles on it: an environment that could not be reached for a
/// while is connected to anew, and others still have the handle from before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    /// Held for reading while somebody connects, so that nobody still does when the place is ended.
    closed: Arc<RwLock<bool>>,
}

impl Gate {
    pub(crate) async fn close(&self) {
        *self.closed.write().await = true;
    }
}

#[derive(Debug)]
pub(crate) struct Kept {
    place: Box<dyn Place>,
    gate: Gate,
}

impl Kept {
    pub(crate) fn new(place: Box<dyn Place>, gate: Gate) -> Self {
        Self { place, gate }
    }

    pub(crate) async fn is_given_up(&self) -> bool {
        *self.gate.closed.read().await
    }
}

impl Place for Kept {
    fn identity(&self) -> Identity {
        self.place.identity()
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let closed = self.gate.closed.read().await;
            if *closed {
                return Err(Error::new(
                    Kind::Unavailable,
                    "connecting to the outpost",
                    "its environment was put away",
                ));
            }
            self.place.connect().await
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.gate.close().await;
            self.place.destroy().await
        })
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.gate.close().await;
            self.place.suspend().await
        })
    }

    fn limits(&self) -> Vec<Limit> {
        self.place.limits()
    }

    fn sleeps(&self) -> bool {
        self.place.sleeps()
    }

    fn rests_after(&self) -> Option<std::time::Duration> {
        self.place.rests_after()
    }

    fn status(&self) -> Option<String> {
        self.place.status()
    }

    fn epitaph(&self) -> Option<String> {
        self.place.epitaph()
    }
}
