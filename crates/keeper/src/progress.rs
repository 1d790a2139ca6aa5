//! What takes long is told to whoever waits for it.

use farshell_api::approval::Approval;
use farshell_config::settings::Secret;
use farshell_engine::Result;
use farshell_engine::backend::{BoxFuture, News};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What takes longer than this is told.
const LONG: Duration = Duration::from_secs(1);
/// At most so often.
const NEWS: Duration = Duration::from_millis(100);

/// Whoever waits for a call, told what it waits for.
pub trait Observer: Send + Sync {
    /// Something takes long.
    fn progress(&self, news: &News) {
        let _ = news;
    }

    /// A person is asked. Nothing has run yet.
    fn approval(&self, approval: &Approval) {
        let _ = approval;
    }

    /// Whom to ask for the password that sudo wants, where a person is there to be asked.
    fn passwords(&self) -> Option<Arc<dyn Passwords>> {
        None
    }

    /// Ends when nobody waits any more. What is still to be answered then is withdrawn.
    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A person who can be asked for a password.
pub trait Passwords: Send + Sync + std::fmt::Debug {
    /// Asks, and waits for as long as is right. `again`: what was given before was wrong. `None` if there is no answer.
    fn ask(&self, again: bool) -> BoxFuture<'_, Option<Secret>>;
}

/// Nobody is told.
impl Observer for () {}

/// Told what takes long.
pub(crate) type Progress<'a> = &'a (dyn Fn(&News) + Send + Sync);

/// Waits for something that is done elsewhere, and says what if it takes long.
pub(crate) async fn told<T>(
    mut making: tokio::task::JoinHandle<Option<T>>,
    message: &str,
    news: Option<watch::Receiver<Option<News>>>,
    progress: Progress<'_>,
) -> Result<T> {
    let telling = async {
        tokio::time::sleep(LONG).await;
        let Some(mut news) = news else {
            progress(&News { message: message.to_owned(), part: None });
            return std::future::pending().await;
        };
        let mut first = Some(News { message: message.to_owned(), part: None });
        loop {
            let now = news.borrow_and_update().clone();
            if let Some(now) = now.or(first.take()) {
                first = None;
                progress(&now);
            }
            tokio::time::sleep(NEWS).await;
            if news.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    let made = tokio::select! {
        biased;
        made = &mut making => made,
        () = telling => making.await,
    };
    made.ok().flatten().ok_or_else(crate::closed)
}
