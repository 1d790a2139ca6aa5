//! Whether anything is alive: environments and calls each hold a token, and the last one to go starts the clock.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone, Debug)]
pub(crate) struct Alive {
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    tokens: usize,
    /// When the last one went.
    since: Instant,
}

/// Something is alive for as long as this is.
#[derive(Debug)]
pub(crate) struct Token {
    state: Arc<watch::Sender<State>>,
}

impl Alive {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(State { tokens: 0, since: Instant::now() })) }
    }

    pub(crate) fn token(&self) -> Token {
        self.state.send_if_modified(|state| {
            state.tokens += 1;
            // Whoever waits for silence looks again by itself.
            false
        });
        Token { state: Arc::clone(&self.state) }
    }

    /// Returns when there has been no token for so long.
    pub(crate) async fn idle_for(&self, time: Duration) {
        let mut changes = self.state.subscribe();
        loop {
            let Ok(state) = changes.wait_for(|state| state.tokens == 0).await.map(|state| *state) else {
                return;
            };
            tokio::time::sleep_until(state.since + time).await;
            let now = *changes.borrow_and_update();
            if now.tokens == 0 && now.since == state.since {
                return;
            }
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            state.tokens -= 1;
            state.since = Instant::now();
            state.tokens == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_last_token() {
        let (alive, time) = (Alive::new(), Duration::from_secs(10));
        let begun = Instant::now();
        let first = alive.token();
        let waiting = tokio::spawn({
            let alive = alive.clone();
            async move { alive.idle_for(time).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(first);
        tokio::time::sleep(Duration::from_secs(8)).await;
        // A short call in the silence begins it anew.
        drop(alive.token());
        waiting.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 78);
        alive.idle_for(time).await;
        assert_eq!(begun.elapsed().as_secs(), 78, "it is over already");
    }
}
