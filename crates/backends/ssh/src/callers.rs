//! Whose variables a login runs with.
//!
//! A connection outlives the call that made it, and so does what asks for the next one: a place that was lost, a process
//! that is followed. Meanwhile its user may have logged out and in again, with another agent. So a login runs with the
//! variables of whoever called last; and if that one has no agent that answers, of the last one before who has.

use crate::config::Config;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::net::UnixStream;

/// Callers that are remembered for one connection, each with another agent.
const MOST: usize = 8;

/// Those who called, by the key of what they share; the last one first.
type Callers = HashMap<String, Vec<Arc<Config>>>;

fn callers() -> MutexGuard<'static, Callers> {
    static CALLERS: LazyLock<Mutex<Callers>> = LazyLock::new(Mutex::default);
    CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn agent(config: &Config) -> Option<&str> {
    config.variable("SSH_AUTH_SOCK")
}

/// Takes note of a call with these variables.
pub(crate) fn called(key: &str, config: &Arc<Config>) {
    let mut callers = callers();
    let known = callers.entry(key.to_owned()).or_default();
    if !known.first().is_some_and(|last| Arc::ptr_eq(last, config)) {
        known.retain(|other| agent(other) != agent(config));
        known.insert(0, Arc::clone(config));
        known.truncate(MOST);
    }
}

/// The settings, with the variables of whom a login is for.
pub(crate) async fn for_login(key: &str, config: &Arc<Config>) -> Arc<Config> {
    let known = callers().get(key).cloned().unwrap_or_default();
    for caller in &known {
        if let Some(socket) = agent(caller)
            && UnixStream::connect(socket).await.is_ok()
        {
            return Arc::clone(caller);
        }
    }
    Arc::clone(known.first().unwrap_or(config))
}
