//! The work behind a stream, in tasks of its own: a client that goes away, or a fault, ends the stream and nothing
//! else.

use super::passwords::Mailbox;
use super::queue::{Queue, ToClient};
use crate::app::App;
use crate::refusal::{Refusal, api_error};
use farshell_api::ApiError;
use farshell_api::approval::Approval;
use farshell_api::stream::{Open, ServerMessage};
use farshell_engine::Result;
use farshell_engine::backend::{BoxFuture, News};
use farshell_keeper::{Observer, Origin, Passwords, Stream, StreamEnd};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

/// The place is found or made, and the process looked for. If nobody waits any more, the place is there all the same.
pub(super) struct Opening {
    task: JoinHandle<Option<Result<Stream>>>,
    /// Dropped with this: what waits for a person's answer is withdrawn then.
    _here: watch::Sender<()>,
}

/// Tells the client what the opening waits for.
struct ToOpener {
    queue: Arc<Queue>,
    here: watch::Receiver<()>,
    /// Absent if the client has nobody to ask.
    passwords: Option<Arc<Mailbox>>,
}

impl Observer for ToOpener {
    fn progress(&self, news: &News) {
        if self.queue.takes_answers() {
            self.queue.say(&ServerMessage::Progress {
                message: news.message.clone(),
                done: news.part.map(|(done, _)| done),
                total: news.part.map(|(_, total)| total),
            });
        }
    }

    fn approval(&self, approval: &Approval) {
        self.queue.say(&ServerMessage::Approval { approval: Box::new(approval.clone()) });
    }

    fn passwords(&self) -> Option<Arc<dyn Passwords>> {
        self.passwords.clone().map(|mailbox| mailbox as Arc<dyn Passwords>)
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut here = self.here.clone();
        Box::pin(async move { while here.changed().await.is_ok() {} })
    }
}

impl Opening {
    pub(super) fn begin(
        app: &Arc<App>,
        origin: Origin,
        open: Open,
        queue: Arc<Queue>,
        mailbox: &Arc<Mailbox>,
    ) -> Self {
        let keeper = app.keeper.on_behalf(origin);
        let asks = open.start.as_ref().is_some_and(|start| start.passwords);
        let (sender, here) = watch::channel(());
        let observer = ToOpener { queue, here, passwords: asks.then(|| Arc::clone(mailbox)) };
        let task = app.apart(async move { keeper.stream(open, &observer).await });
        Self { task, _here: sender }
    }

    pub(super) async fn opened(&mut self) -> std::result::Result<Stream, ApiError> {
        flat((&mut self.task).await)
    }
}

/// Output goes to the client until the process ends.
pub(super) struct Following {
    task: JoinHandle<Option<Result<StreamEnd>>>,
    /// The process was started by this stream. Somebody has to follow it to its end, so that its environment is
    /// known to be in use and its timeout has its effect, even if the client has gone.
    starts: bool,
}

impl Following {
    pub(super) fn begin(app: &Arc<App>, stream: Stream, starts: bool, queue: Arc<Queue>) -> Self {
        let task = app.apart(async move { stream.follow(&mut ToClient(queue)).await });
        Self { task, starts }
    }

    pub(super) async fn ended(&mut self) -> std::result::Result<StreamEnd, ApiError> {
        flat((&mut self.task).await)
    }

    /// Nothing more is to go to the client.
    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if !self.starts {
            self.task.abort();
        }
    }
}

/// Also of a task that failed, or that the end of the server took.
fn flat<T>(joined: std::result::Result<Option<Result<T>>, JoinError>) -> std::result::Result<T, ApiError> {
    match joined {
        Ok(Some(Ok(value))) => Ok(value),
        Ok(Some(Err(error))) => Err(api_error(error)),
        Ok(None) => Err(*Refusal::interrupted().error),
        Err(_) => Err(*Refusal::panicked().error),
    }
}
