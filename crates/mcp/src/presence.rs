//! Whether the client of an HTTP session is still there.
//!
//! It is while a response to it is under way. One that has lost its connection comes back and asks for the rest, so
//! it has some time for that.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// How long a client may be without a connection before its calls are cancelled.
#[cfg(not(test))]
const ABSENCE: Duration = Duration::from_secs(20);
#[cfg(test)]
const ABSENCE: Duration = Duration::from_millis(50);

/// Responses under way, for each session that has any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence(Arc<Mutex<HashMap<String, watch::Sender<usize>>>>);

/// A response under way.
#[derive(Debug)]
pub(crate) struct Here {
    presence: Presence,
    session: String,
}

impl Presence {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, session: &str) -> Here {
        let mut sessions = self.sessions();
        sessions.retain(|_, count| *count.borrow() > 0 || count.receiver_count() > 0);
        sessions
            .entry(session.to_owned())
            .or_insert_with(|| watch::Sender::new(0))
            .send_modify(|count| *count += 1);
        Here { presence: self.clone(), session: session.to_owned() }
    }

    /// Returns when the client has been away for too long.
    pub(crate) async fn absent(&self, session: &str) {
        let count = self.sessions().get(session).map(watch::Sender::subscribe);
        // A session without a response under way is forgotten.
        let Some(mut count) = count else { return };
        while count.wait_for(|count| *count == 0).await.is_ok() {
            let back = count.wait_for(|count| *count > 0);
            if tokio::time::timeout(ABSENCE, back).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut sessions = self.presence.sessions();
        let Some(count) = sessions.get(&self.session) else { return };
        count.send_modify(|count| *count -= 1);
        // Whoever waits for it to come back has a subscription.
        if *count.borrow() == 0 && count.receiver_count() == 0 {
            sessions.remove(&self.session);
        }
    }
}

/// A response's body: its client is there until it is dropped.
#[derive(Debug)]
pub(crate) struct Present<B> {
    body: B,
    _here: Here,
}

impl<B> Present<B> {
    pub(crate) fn new(body: B, here: Here) -> Self {
        Self { body, _here: here }
    }
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for Present<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_client_may_come_back() {
        let presence = Presence::default();
        let first = presence.enter("s");
        let mut absent = std::pin::pin!(presence.absent("s"));
        assert!(absent.as_mut().now_or_never().is_none());
        drop(first);
        assert!(absent.as_mut().now_or_never().is_none());
        let second = presence.enter("s");
        assert!(tokio::time::timeout(ABSENCE * 3, absent.as_mut()).await.is_err());
        drop(second);
        absent.await;
        presence.absent("unknown").await;
    }

    #[test]
    fn sessions_that_nobody_waits_for_are_forgotten() {
        let presence = Presence::default();
        let (one, two) = (presence.enter("s"), presence.enter("s"));
        drop(one);
        assert_eq!(presence.sessions().len(), 1);
        drop(two);
        assert_eq!(presence.sessions().len(), 0);
    }
}
