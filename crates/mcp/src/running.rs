//! A tool at work, in a task of its own: whoever waits for it may change, or go away.

use crate::Shared;
use farshell_api::approval::Approval;
use farshell_engine::backend::News;
use farshell_keeper::Origin;
use farshell_tools::{Answer, Call, Observer};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What is called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

/// A call that somebody has to wait for. Dropped, it is cancelled.
pub(crate) struct Running {
    pub(crate) asked: Asked,
    pub(crate) origin: Origin,
    pub(crate) begun: Instant,
    pub(crate) told: Arc<Told>,
    task: JoinHandle<Answer>,
    cancel: Option<CancellationToken>,
    busy: Busy,
}

/// What keeps the server from ending. The task has it too: until a cancelled command is dead, there is something to do.
type Busy = Arc<Mutex<Option<Box<dyn Send + Sync>>>>;

/// What the tool has to say while it works. What nobody has heard yet is replaced by what is newer.
#[derive(Debug, Default)]
pub(crate) struct Told {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    progress: Option<String>,
    bytes: u64,
    approvals: VecDeque<Approval>,
}

/// What there is to hear.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Progress(String),
    Approval(Box<Approval>),
}

impl Told {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_one();
    }

    /// What comes next. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&self) -> Heard {
        loop {
            let heard = {
                let mut state = self.state();
                let approval =
                    state.approvals.pop_front().map(|approval| Heard::Approval(Box::new(approval)));
                approval.or_else(|| state.progress.take().map(Heard::Progress))
            };
            match heard {
                Some(heard) => return heard,
                None => self.changed.notified().await,
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }
}

impl Observer for Told {
    fn progress(&self, news: &News) {
        let message = match news.part {
            Some((done, total)) if total > 0 => {
                format!("{} ({}%)", news.message, done.saturating_mul(100) / total)
            }
            _ => news.message.clone(),
        };
        self.say(|state| state.progress = Some(message));
    }

    fn output(&self, bytes_so_far: u64, last_line: &str) {
        let message = format!("{bytes_so_far} bytes so far: {last_line}");
        self.say(|state| {
            state.bytes = bytes_so_far;
            state.progress = Some(message);
        });
    }

    fn approval(&self, approval: &Approval) {
        self.say(|state| state.approvals.push_back(approval.clone()));
    }
}

impl Running {
    /// Calls the tool. `cancel` ends it from elsewhere.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        asked: Asked,
        origin: Origin,
        (target, session): (farshell_api::run::Target, String),
        cancel: CancellationToken,
    ) -> Self {
        let told = Arc::new(Told::default());
        let busy: Busy = Arc::new(Mutex::new(Some(shared.house.busy())));
        let kept = Arc::clone(&busy);
        let (tools, work) = (shared.tools.clone(), asked.clone());
        let (observer, by, token) = (Arc::clone(&told), origin.clone(), cancel.clone());
        let task = tokio::spawn(async move {
            let _kept = kept;
            let call = Call { target, session, origin: by, cancel: token, observer: &*observer };
            tools.call(&work.tool, work.arguments, call).await
        });
        Self { asked, origin, begun: Instant::now(), told, task, cancel: Some(cancel), busy }
    }

    /// Its result; absent if the tool has failed in a way that it should not.
    pub(crate) async fn done(&mut self) -> Option<Answer> {
        let answer = (&mut self.task).await.ok();
        self.cancel = None;
        answer
    }

    /// It goes on with nobody waiting, not even the server.
    pub(crate) fn let_go(mut self) {
        self.cancel = None;
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_is_heard_and_approvals_are_never_lost() {
        let told = Told::default();
        told.output(1, "one");
        told.output(20, "two");
        told.progress(&News { message: "pulling".into(), part: Some((1, 4)) });
        assert_eq!(told.next().await, Heard::Progress("pulling (25%)".into()));
        assert_eq!(told.bytes(), 20);
        told.output(30, "three");
        assert_eq!(told.next().await, Heard::Progress("30 bytes so far: three".into()));
    }
}
