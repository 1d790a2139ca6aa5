//! Calls that are answered once: when they are made again, and when not.

use super::error::{ClientError, Fault, Result, fault, passes};
use farshell_engine::random::{hex, jitter};
use farshell_modal_proto::client::{RpcRetryPolicy, RpcStatus};
use prost::Message;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The shortest pause that a server can ask for.
const LEAST: Duration = Duration::from_millis(100);
/// How long a server that throttles is obeyed if nobody said how long: every wait has an end.
const PATIENCE: Duration = Duration::from_secs(600);
const POLICY: &str = "modal.client.RPCRetryPolicy";

/// How patient a call is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long one attempt may take.
    pub(crate) limit: Duration,
    /// How often it is made again.
    pub(crate) retries: u32,
    /// The first pause; each is twice as long as the one before.
    pub(crate) pause: Duration,
    pub(crate) longest: Duration,
    /// How long the server may make us wait in all.
    pub(crate) throttle: Option<Duration>,
}

/// Which attempt it is, for the server to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) throttled: u32,
    pub(crate) since: Duration,
    pub(crate) throttled_since: Duration,
    /// How long it may take.
    pub(crate) limit: Duration,
}

impl Attempt {
    /// Lets the server know how long it has: one that is not told takes what it finds usual, which for a snapshot of many
    /// gigabytes is too little. Not for answers that come in pieces, which take as long as they take.
    pub(crate) fn limit<Q>(self, request: &mut Request<Q>) {
        request.set_timeout(self.limit);
    }
}

/// A name for one call, the same for all its attempts.
pub(crate) fn key() -> String {
    let digits = hex(16);
    // The form that Modal's own clients use.
    format!(
        "{}-{}-4{}-a{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[13..16],
        &digits[17..20],
        &digits[20..32]
    )
}

/// Makes a call until it is answered, or nothing more can be expected.
pub(crate) async fn repeat<T, F: Future<Output = Result<Made<T>>>>(
    what: &str,
    patience: Patience,
    mut make: impl FnMut(Attempt) -> F,
) -> Result<T> {
    let begun = Instant::now();
    let mut throttled_since: Option<Instant> = None;
    let (mut number, mut throttled) = (0, 0);
    let mut pause = patience.pause;
    loop {
        let attempt = Attempt {
            number,
            throttled,
            since: if number > 0 { begun.elapsed() } else { Duration::ZERO },
            throttled_since: throttled_since.map_or(Duration::ZERO, |since| since.elapsed()),
            limit: patience.limit,
        };
        let fault = match tokio::time::timeout(patience.limit, make(attempt)).await {
            Ok(Ok(Made::Answer(answer))) => return Ok(answer.into_inner()),
            Ok(Ok(Made::Status(status))) => {
                if let Some(wait) = asked_to_wait(&status) {
                    let since = *throttled_since.get_or_insert_with(Instant::now);
                    if since.elapsed() + wait <= patience.throttle.unwrap_or(PATIENCE).min(PATIENCE) {
                        throttled += 1;
                        tokio::time::sleep(wait).await;
                        continue;
                    }
                }
                fault(&status)
            }
            Ok(Err(error)) => error.fault,
            Err(_) => Fault::TimedOut,
        };
        if number >= patience.retries || !passes(&fault) {
            return Err(ClientError::new(what, fault));
        }
        number += 1;
        tokio::time::sleep(jitter(pause)).await;
        pause = (pause * 2).min(patience.longest);
    }
}

/// What an attempt came to.
pub(crate) enum Made<T> {
    Answer(Response<T>),
    Status(Status),
}

impl<T> Made<T> {
    pub(crate) fn of(answer: std::result::Result<Response<T>, Status>) -> Self {
        match answer {
            Ok(answer) => Self::Answer(answer),
            Err(status) => Self::Status(status),
        }
    }
}

/// What the server says about when to come again.
fn asked_to_wait(status: &Status) -> Option<Duration> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let policy = details.iter().find(|any| any.type_url.rsplit('/').next() == Some(POLICY))?;
    let seconds = RpcRetryPolicy::decode(policy.value.as_slice()).ok()?.retry_after_secs;
    let wait = Duration::try_from_secs_f32(seconds.max(0.0)).unwrap_or(PATIENCE);
    Some(wait.max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tonic::Code;

    const SOME: Patience = Patience {
        limit: Duration::from_secs(5),
        retries: 3,
        pause: Duration::from_millis(1),
        longest: Duration::from_millis(4),
        throttle: None,
    };

    fn throttled(seconds: f32) -> Status {
        let policy = RpcRetryPolicy { retry_after_secs: seconds };
        let any =
            prost_types::Any { type_url: format!("type.modal.com/{POLICY}"), value: policy.encode_to_vec() };
        let details = RpcStatus { code: 8, message: String::new(), details: vec![any] };
        Status::with_details(Code::ResourceExhausted, "slow down", details.encode_to_vec().into())
    }

    async fn tries(patience: Patience, status: impl Fn(u32) -> Option<Status>) -> (u32, Result<u32>) {
        let made = AtomicU32::new(0);
        let answer = repeat("trying", patience, |_| {
            let n = made.fetch_add(1, Ordering::Relaxed);
            let status = status(n);
            async move { Ok(status.map_or_else(|| Made::Answer(Response::new(n)), Made::Status)) }
        })
        .await;
        (made.into_inner(), answer)
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_tried_again_and_what_does_not_is_said_at_once() {
        for (code, expected) in [
            (Code::Unavailable, 4),
            (Code::Internal, 4),
            (Code::Unknown, 4),
            (Code::Unauthenticated, 1),
            (Code::PermissionDenied, 1),
            (Code::NotFound, 1),
            (Code::ResourceExhausted, 1),
        ] {
            let (made, answer) = tries(SOME, |_| Some(Status::new(code, "no"))).await;
            assert_eq!((made, answer.unwrap_err().code()), (expected, Some(code)));
        }
        let (made, answer) = tries(SOME, |n| (n < 2).then(|| Status::unavailable("x"))).await;
        assert_eq!((made, answer.unwrap()), (3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_throttles_is_obeyed_within_bounds() {
        let begun = Instant::now();
        let (made, answer) = tries(SOME, |n| (n < 20).then(|| throttled(2.0))).await;
        assert_eq!((made, answer.unwrap()), (21, 20));
        assert!(begun.elapsed() >= Duration::from_secs(40));
        let patience = Patience { throttle: Some(Duration::from_secs(5)), ..SOME };
        let (made, answer) = tries(patience, |_| Some(throttled(2.0))).await;
        assert_eq!((made, answer.unwrap_err().code()), (3, Some(Code::ResourceExhausted)));
        let never = Patience { throttle: Some(Duration::ZERO), ..SOME };
        assert_eq!(tries(never, |_| Some(throttled(0.0))).await.0, 1);
        assert!(tries(SOME, |_| Some(throttled(f32::NAN))).await.0 > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_stops_throttling_is_left_whatever_was_set() {
        for throttle in [None, Some(Duration::from_secs(1 << 40))] {
            let begun = Instant::now();
            let (_, answer) = tries(Patience { throttle, ..SOME }, |_| Some(throttled(7.0))).await;
            assert_eq!(answer.unwrap_err().code(), Some(Code::ResourceExhausted));
            assert!(begun.elapsed() <= PATIENCE, "{:?}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_ends() {
        let answer: Result<u32> = repeat("trying", SOME, |_| std::future::pending()).await;
        assert_eq!(answer.unwrap_err().fault, Fault::TimedOut);
    }

    #[test]
    fn keys_look_like_uuids() {
        let key = key();
        let lengths: Vec<usize> = key.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{key}");
    }
}
