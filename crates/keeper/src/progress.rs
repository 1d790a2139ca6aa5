//! What takes long is told to whoever waits for it.

use farshell_engine::Result;
use farshell_engine::backend::News;
use std::time::Duration;
use tokio::sync::watch;

/// What takes longer than this is told.
const LONG: Duration = Duration::from_secs(1);
/// At most so often.
const NEWS: Duration = Duration::from_millis(100);

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
