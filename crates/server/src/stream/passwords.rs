//! A password that sudo wants, asked of the client that started the command.

use super::queue::Queue;
use farshell_api::stream::{Password, ServerMessage};
use farshell_engine::backend::BoxFuture;
use farshell_keeper::{Passwords, Secret};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// For a person to type it.
const TYPED: Duration = Duration::from_secs(60);

/// Where questions and answers meet, of one stream.
#[derive(Debug)]
pub(super) struct Mailbox {
    queue: Arc<Queue>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    asked: u64,
    waiting: Option<oneshot::Sender<Option<Password>>>,
    /// Nobody answers any more.
    closed: bool,
}

impl Mailbox {
    pub(super) fn new(queue: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { queue, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client has answered. An answer to an earlier question is none.
    pub(super) fn answer(&self, id: u64, password: Option<Password>) {
        let mut state = self.state();
        if id == state.asked
            && let Some(waiting) = state.waiting.take()
        {
            let _ = waiting.send(password);
        }
    }

    /// The client is gone, and with it whoever could answer.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.waiting = None;
    }
}

impl Passwords for Mailbox {
    fn ask(&self, again: bool) -> BoxFuture<'_, Option<Secret>> {
        let (sender, answered) = oneshot::channel();
        let id = {
            let mut state = self.state();
            if state.closed {
                return Box::pin(std::future::ready(None));
            }
            state.asked += 1;
            state.waiting = Some(sender);
            state.asked
        };
        self.queue.say(&ServerMessage::Password { id, again });
        Box::pin(async move {
            let answered = tokio::time::timeout(TYPED, answered).await;
            answered.ok()?.ok()?.map(|Password(text)| Secret::new(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_answer_to_the_question_is_one() {
        let mailbox = Mailbox::new(Arc::default());
        let password = |text: &str| Some(Password(text.into()));
        mailbox.answer(1, password("before it was asked"));
        let first = mailbox.ask(false);
        assert_eq!(first.await, None, "nobody has typed for a minute");
        let second = mailbox.ask(true);
        mailbox.answer(1, password("late"));
        mailbox.answer(2, password("right"));
        mailbox.answer(2, password("twice"));
        assert_eq!(second.await, Some(Secret::new("right")));
        let third = mailbox.ask(false);
        mailbox.close();
        assert_eq!(third.await, None);
        assert_eq!(mailbox.ask(false).await, None);
        assert_eq!(format!("{:?}", password("secret")), "Some(********)");
    }
}
