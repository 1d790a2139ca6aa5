//! Short-lived tokens: fetched by one, used by all, renewed before they expire; and those of sandboxes.

use super::error::Result;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use farshell_engine::random::jitter;
use serde::Deserialize;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// How long a token lives that does not say so.
const USUAL: Duration = Duration::from_secs(20 * 60);
/// The pause after a renewal that failed, and the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// Of how many sandboxes tokens are kept: more than a home has at once.
const SANDBOXES: usize = 256;

/// How long a JWT is valid from now on. Nobody checks its signature here: it is the server that has to believe it.
pub(crate) fn remaining(jwt: &str) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let payload = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(Duration::try_from_secs_f64((claims.exp - now).max(0.0)).unwrap_or(USUAL))
}

#[derive(Clone)]
struct Known {
    token: String,
    until: Instant,
    renew: Instant,
    pause: Duration,
}

/// A token and its renewal.
#[derive(Default)]
pub(crate) struct Token {
    known: Mutex<Option<Known>>,
    /// Held by whoever fetches one.
    fetching: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token, and whether it is time for another.
    fn valid(&self) -> Option<(String, bool)> {
        let now = Instant::now();
        let known = self.lock();
        let known = known.as_ref().filter(|known| known.until > now)?;
        Some((known.token.clone(), known.renew <= now))
    }

    /// A token that is valid, fetched if need be. While one is renewed, others use the old one.
    pub(crate) async fn get<F: Future<Output = Result<String>>>(
        &self,
        fetch: impl Fn() -> F,
    ) -> Result<String> {
        let _only_one = match self.valid() {
            Some((token, false)) => return Ok(token),
            Some((token, true)) => match self.fetching.try_lock() {
                Ok(alone) => alone,
                Err(_) => return Ok(token),
            },
            None => self.fetching.lock().await,
        };
        if let Some((token, false)) = self.valid() {
            return Ok(token);
        }
        match fetch().await {
            Ok(token) => {
                let life = remaining(&token).unwrap_or(USUAL);
                let now = Instant::now();
                // Halfway, and a little earlier or later than others.
                let renew = now + life / 2 - jitter(life / 10);
                *self.lock() = Some(Known { token: token.clone(), until: now + life, renew, pause: PAUSE });
                Ok(token)
            }
            Err(error) => match self.valid() {
                Some((token, _)) => {
                    if let Some(known) = &mut *self.lock() {
                        known.renew = Instant::now() + known.pause;
                        known.pause = (known.pause * 2).min(LONGEST);
                    }
                    Ok(token)
                }
                None => Err(error),
            },
        }
    }

    /// It was refused: the next one is fetched.
    pub(crate) fn refused(&self, token: &str) {
        let mut known = self.lock();
        if known.as_ref().is_some_and(|known| known.token == token) {
            *known = None;
        }
    }
}

/// Tokens that Modal gives out with a sandbox, for calls about it by whoever made it. Whoever finds it later has none, and
/// needs none.
#[derive(Default)]
pub(crate) struct SandboxTokens {
    /// Oldest first.
    known: Mutex<VecDeque<(String, AsciiMetadataValue)>>,
}

impl std::fmt::Debug for SandboxTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SandboxTokens")
    }
}

impl SandboxTokens {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, AsciiMetadataValue)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, id: &str, token: &str) {
        let Ok(mut value) = AsciiMetadataValue::try_from(token) else { return };
        if token.is_empty() {
            return;
        }
        value.set_sensitive(true);
        let mut known = self.lock();
        known.retain(|(other, _)| other != id);
        known.push_back((id.to_owned(), value));
        while known.len() > SANDBOXES {
            known.pop_front();
        }
    }

    /// It may have expired.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().retain(|(other, _)| other != id);
    }

    /// Adds a sandbox's token to a call, if there is one.
    pub(crate) fn put(&self, id: &str, headers: &mut MetadataMap) {
        if let Some((_, value)) = self.lock().iter().find(|(other, _)| other == id) {
            headers.insert("x-modal-sandbox-token", value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::{ClientError, Fault};
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn jwt(seconds: u64, name: &str) -> String {
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds;
        format!("h.{}.{name}", URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}")))
    }

    #[test]
    fn when_a_token_expires() {
        assert!(remaining(&jwt(100, "s")).unwrap() > Duration::from_secs(95));
        assert_eq!(remaining("h.eyJleHAiOjF9.s"), Some(Duration::ZERO));
        for bad in ["", "a", "a.b.c", "a.!!.c", "a.e30.c"] {
            assert_eq!(remaining(bad), None, "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_have_one_fetched() {
        let (token, fetched) = (Token::default(), AtomicU32::new(0));
        let fetch = || async {
            let n = fetched.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(jwt(1000, &n.to_string()))
        };
        let (a, b, c) = tokio::join!(token.get(fetch), token.get(fetch), token.get(fetch));
        assert_eq!((a.as_ref().unwrap(), fetched.load(Ordering::Relaxed)), (b.as_ref().unwrap(), 1));
        tokio::time::advance(Duration::from_secs(600)).await;
        // One renews it, and the other does not wait for that.
        let (d, e) = tokio::join!(token.get(fetch), token.get(fetch));
        assert_eq!((e.unwrap(), fetched.load(Ordering::Relaxed)), (c.unwrap(), 2));
        token.refused(&d.unwrap());
        token.get(fetch).await.unwrap();
        assert_eq!(fetched.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_still_valid_does_when_no_other_can_be_had() {
        let token = Token::default();
        let good = token.get(|| async { Ok(jwt(1000, "s")) }).await.unwrap();
        tokio::time::advance(Duration::from_secs(900)).await;
        let refuse = || async { Err(ClientError::new("x", Fault::TimedOut)) };
        assert_eq!(token.get(refuse).await.unwrap(), good);
        tokio::time::advance(Duration::from_secs(200)).await;
        assert!(token.get(refuse).await.is_err());
    }

    #[test]
    fn tokens_of_sandboxes_are_bounded_and_their_own() {
        let tokens = SandboxTokens::default();
        let of = |id: &str| {
            let mut headers = MetadataMap::new();
            tokens.put(id, &mut headers);
            headers.get("x-modal-sandbox-token").map(|value| value.to_str().unwrap().to_owned())
        };
        tokens.keep("sb-1", "one");
        tokens.keep("sb-2", "");
        tokens.keep("sb-3", "not\na token");
        assert_eq!((of("sb-1"), of("sb-2"), of("sb-3")), (Some("one".to_owned()), None, None));
        tokens.keep("sb-1", "newer");
        assert_eq!(of("sb-1").as_deref(), Some("newer"));
        tokens.keep("sb-4", "four");
        tokens.forget("sb-4");
        assert_eq!((of("sb-1").is_some(), of("sb-4")), (true, None));
        for number in 0..SANDBOXES {
            tokens.keep(&format!("sb-x{number}"), "other");
        }
        assert_eq!((of("sb-1"), of("sb-x0").is_some()), (None, true));
    }
}
