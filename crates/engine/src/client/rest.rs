//! Connections that keep a place awake, and so cost money: they are closed when nobody needs them.

use super::Inner;
use super::connection::Connection;
use crate::backend::BoxFuture;
use farshell_protocol::{Reply, Request};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// Is called before a connection is closed because nobody uses it. False: somebody has come in the meantime.
pub type BeforeRest = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// How long an outpost may take to say what runs in it.
const ANSWER: Duration = Duration::from_secs(10);

/// Closes a connection when no call was made for this long, and none is under way, and nothing runs in the place.
pub(super) async fn watch(inner: Weak<Inner>, connection: Weak<Connection>, after: Duration) {
    // How many calls there had been when it was last looked at, and found without one.
    let mut seen = None;
    loop {
        tokio::time::sleep(after).await;
        let (Some(inner), Some(connection)) = (inner.upgrade(), connection.upgrade()) else { return };
        if connection.has_ended() {
            return;
        }
        let idle = connection.idle();
        if idle.is_none() || idle != seen {
            seen = idle;
            continue;
        }
        if needed(&inner, &connection).await {
            seen = connection.idle();
            continue;
        }
        // Before it is closed, so that nobody sees the one without the other.
        inner.resting(true);
        if connection.close_if_idle() {
            return;
        }
        inner.resting(false);
    }
}

/// Something runs, or somebody has come.
async fn needed(inner: &Inner, connection: &Connection) -> bool {
    let running = async { connection.call(&Request::Info)?.response().await };
    match tokio::time::timeout(ANSWER, running).await {
        Ok(Ok(Ok(Reply::Info(info)))) if info.running == 0 => {}
        // One that does not answer is lost soon, and that is noticed by others.
        _ => return true,
    }
    let hook = inner.before_rest.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match hook {
        Some(hook) => !hook().await,
        None => false,
    }
}
