//! A place that can be given up.
//!
//! An outpost's client connects again when its connection is lost, and a place starts its outpost when somebody
//! connects. So whoever still waits for an answer when an environment is removed would bring it back to life.

use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place};
use farshell_engine::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{RwLock, watch};

/// How long those who are connecting at this moment are waited for. A host that does not answer keeps them.
const CONNECTING: Duration = Duration::from_secs(10);

/// The way to an environment's place, shared by all handles on it: an environment that could not be reached for a
/// while is connected to anew, and others still have the handle from before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Way>);

#[derive(Debug, Default)]
struct Way {
    state: watch::Sender<State>,
    /// Held for reading while somebody connects, so that nobody still does when the place is ended.
    connecting: RwLock<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// The place is being ended, which may fail.
    Closed,
    GivenUp,
}

impl Gate {
    /// From here on nobody connects.
    pub(crate) async fn close(&self) {
        self.change(State::Open, State::Closed);
        let _ = tokio::time::timeout(CONNECTING, self.0.connecting.write()).await;
    }

    /// The place is still there, as far as anybody knows.
    pub(crate) fn open(&self) {
        self.change(State::Closed, State::Open);
    }

    /// Nobody comes back to it.
    pub(crate) fn give_up(&self) {
        self.0.state.send_replace(State::GivenUp);
    }

    fn change(&self, from: State, to: State) {
        self.0.state.send_if_modified(|state| {
            let changes = *state == from;
            if changes {
                *state = to;
            }
            changes
        });
    }

    fn state(&self) -> State {
        *self.0.state.borrow()
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

    /// Whether it is given up. While it is being ended, that is waited for.
    pub(crate) async fn is_given_up(&self) -> bool {
        let state = self.gate.0.state.subscribe().wait_for(|state| *state != State::Closed).await.map(|s| *s);
        matches!(state, Ok(State::GivenUp))
    }

    /// Waits for so long, or until it is given up.
    pub(crate) async fn pause(&self, time: Duration) {
        let mut state = self.gate.0.state.subscribe();
        let _ = tokio::time::timeout(time, state.wait_for(|state| *state == State::GivenUp)).await;
    }
}

impl Place for Kept {
    fn identity(&self) -> Identity {
        self.place.identity()
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let _connecting = self.gate.0.connecting.read().await;
            if self.gate.state() != State::Open {
                return Err(Error::new(
                    Kind::Unavailable,
                    "connecting to the outpost",
                    "its environment was put away",
                ));
            }
            // "Not found" is what an outpost says of a process, and nobody else.
            self.place.connect().await.map_err(|mut error| {
                if error.kind == Kind::NotFound {
                    error.kind = Kind::System;
                }
                error
            })
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        self.place.destroy()
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        self.place.suspend()
    }

    fn suspend_limit(&self) -> Duration {
        self.place.suspend_limit()
    }

    fn holds_the_only_files(&self) -> Option<bool> {
        self.place.holds_the_only_files()
    }

    fn keepsake(&self) -> Option<String> {
        self.place.keepsake()
    }

    fn limits(&self) -> Vec<Limit> {
        self.place.limits()
    }

    fn sleeps(&self) -> bool {
        self.place.sleeps()
    }

    fn rests_after(&self) -> Option<Duration> {
        self.place.rests_after()
    }

    fn ends_unasked(&self) -> bool {
        self.place.ends_unasked()
    }

    fn goes_on(&self) -> bool {
        self.place.goes_on()
    }

    fn status(&self) -> Option<String> {
        self.place.status()
    }

    fn word(&self) -> Option<String> {
        self.place.word()
    }

    fn epitaph(&self) -> Option<String> {
        self.place.epitaph()
    }
}
