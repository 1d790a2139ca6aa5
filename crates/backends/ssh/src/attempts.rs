//! What several want and one does for all: a login, an upload.
//!
//! Whoever comes while somebody is at it waits for that, and has the same outcome. To try again for each who waited would
//! take for ever where an attempt takes until a timeout.

use crate::config::Config;
use farshell_engine::{Error, Kind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Held while somebody is at it.
    turn: tokio::sync::Mutex<()>,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    count: u64,
    /// How the last one failed.
    failure: Option<Failure>,
}

/// An error for several, and the settings and variables with which it was met.
#[derive(Debug)]
struct Failure {
    kind: Kind,
    operation: String,
    message: String,
    hint: Option<String>,
    config: Arc<Config>,
}

impl Failure {
    fn of(error: &Error, config: &Arc<Config>) -> Self {
        Self {
            kind: error.kind,
            operation: error.operation.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
            config: Arc::clone(config),
        }
    }

    fn error(&self) -> Error {
        let mut error = Error::new(self.kind, self.operation.clone(), self.message.clone());
        error.hint.clone_from(&self.hint);
        error
    }
}

impl Attempts {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for whoever is at it.
    pub(crate) async fn begin(&self) -> Attempt<'_> {
        let before = self.made().count;
        let turn = self.turn.lock().await;
        Attempt { attempts: self, before, _turn: turn }
    }
}

/// Somebody's turn. Others wait until it is dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    attempts: &'a Attempts,
    /// Those that were over when it was asked for.
    before: u64,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Attempt<'_> {
    /// Does it, unless it has failed for somebody since this turn was asked for. With other variables it is another thing.
    pub(crate) async fn make(
        self,
        config: &Arc<Config>,
        doing: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let shared = {
            let made = self.attempts.made();
            let same = |failure: &&Failure| failure.config.environment == config.environment;
            made.failure.as_ref().filter(|_| made.count > self.before).filter(same).map(Failure::error)
        };
        if let Some(error) = shared {
            return Err(error);
        }
        let done = doing.await;
        let mut made = self.attempts.made();
        made.count += 1;
        made.failure = done.as_ref().err().map(|error| Failure::of(error, config));
        done
    }
}
