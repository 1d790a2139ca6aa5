//! What waits for a person's answer, in memory: with the server everything that waits is gone, and has not run.
//!
//! Whoever asks holds a [`Question`]. Dropped, it is withdrawn. Of several answers the first counts.

use crate::{now, request};
use farshell_api::approval::{Answer, AnswerRequest, Approval, ApprovalList, ApprovalQuery};
use farshell_engine::client::new_process_id;
use farshell_engine::{Error, Kind, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// Questions at one time: more than a person can look at.
const MOST: usize = 256;
/// Answers that are remembered, for those who come second.
const REMEMBERED: usize = 256;
/// The longest wait for a change.
const LONGEST: Duration = Duration::from_secs(600);

/// All that waits.
#[derive(Debug)]
pub(crate) struct Approvals {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Ids, and what became of them.
    over: VecDeque<(String, String)>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    approval: Approval,
    reply: oneshot::Sender<Reply>,
}

/// What a person said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) reason: Option<String>,
}

/// How it ended without a person's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nobody answered in time.
    TimedOut,
    /// Nobody waits for the answer any more.
    Withdrawn,
    /// The server ends.
    Closed,
}

/// A question that was put.
#[derive(Debug)]
pub(crate) struct Question {
    approvals: Arc<Approvals>,
    at: u64,
    id: String,
    reply: oneshot::Receiver<Reply>,
}

pub(crate) fn new_id() -> String {
    format!("appr_{}", new_process_id().as_str().trim_start_matches("proc_"))
}

impl Approvals {
    pub(crate) fn new() -> Arc<Self> {
        // After a restart no number is one that somebody has seen.
        Arc::new(Self { state: Mutex::default(), revision: watch::Sender::new(now()) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Puts a question.
    ///
    /// # Errors
    /// Too many wait already, or the server ends.
    pub(crate) fn put(self: &Arc<Self>, approval: Approval) -> Result<Question> {
        let mut state = self.lock();
        if state.closed {
            return Err(crate::closed());
        }
        if state.waiting.len() >= MOST {
            let message = format!("{MOST} others wait for an answer already");
            return Err(Error::new(Kind::Exhausted, "asking for approval", message)
                .with_hint("`farshell approvals` shows them"));
        }
        let (sender, reply) = oneshot::channel();
        let (at, id) = (state.next, approval.id.clone());
        state.next += 1;
        state.waiting.insert(at, Waiting { approval, reply: sender });
        drop(state);
        self.changed();
        Ok(Question { approvals: Arc::clone(self), at, id, reply })
    }

    /// No more is asked, and nothing waits any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
        self.changed();
    }

    pub(crate) fn find(&self, id: &str) -> Result<Approval> {
        let state = self.lock();
        match state.waiting.values().find(|waiting| waiting.approval.id == id) {
            Some(waiting) => Ok(waiting.approval.clone()),
            None => Err(state.missing(id)),
        }
    }

    /// Gives the first answer.
    ///
    /// # Errors
    /// There is no such question (any more).
    pub(crate) fn answer(&self, id: &str, request: &AnswerRequest) -> Result<Approval> {
        let mut state = self.lock();
        let at = state.waiting.iter().find(|(_, waiting)| waiting.approval.id == id).map(|(at, _)| *at);
        let Some(waiting) = at.and_then(|at| state.waiting.remove(&at)) else {
            return Err(state.missing(id));
        };
        let reply = Reply { answer: request.answer, reason: request.reason.clone() };
        let taken = waiting.reply.send(reply).is_ok();
        state.remember(id, if taken { word(request.answer) } else { "withdrawn" });
        let missing = (!taken).then(|| state.missing(id));
        drop(state);
        self.changed();
        match missing {
            None => Ok(waiting.approval),
            Some(error) => Err(error),
        }
    }

    /// What waits now, or as soon as that is something else.
    pub(crate) async fn list(&self, query: ApprovalQuery) -> Result<ApprovalList> {
        let wait = request::pause("wait", query.wait, Duration::ZERO, LONGEST)?;
        let deadline = Instant::now() + wait;
        let mut revision = self.revision.subscribe();
        loop {
            let now = *revision.borrow_and_update();
            let approvals: Vec<Approval> =
                self.lock().waiting.values().map(|waiting| waiting.approval.clone()).collect();
            let news = match query.after {
                Some(seen) => seen != now,
                None => !approvals.is_empty(),
            };
            let list = ApprovalList { approvals, revision: now };
            if news || Instant::now() >= deadline {
                return Ok(list);
            }
            if tokio::time::timeout_at(deadline, revision.changed()).await.is_err() {
                return Ok(list);
            }
        }
    }
}

pub(crate) fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Once => "once",
        Answer::Session => "session",
        Answer::Always => "always",
        Answer::Deny => "deny",
    }
}

impl State {
    fn remember(&mut self, id: &str, what: &str) {
        if self.over.len() >= REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back((id.to_owned(), what.to_owned()));
    }

    fn missing(&self, id: &str) -> Error {
        let operation = format!("answering {id}");
        let known = self.over.iter().find(|(known, _)| known == id).map(|(_, what)| what.as_str());
        match known {
            Some("timed out") => {
                Error::new(Kind::NotFound, operation, "the time for an answer is over, and it did not run")
            }
            Some("withdrawn") => {
                Error::new(Kind::NotFound, operation, "whoever asked has gone, and it did not run")
            }
            Some(answer) => {
                Error::new(Kind::AlreadyExists, operation, format!("it was answered before: {answer}"))
            }
            None => Error::new(Kind::NotFound, operation, "nothing of that name waits for an answer")
                .with_hint("`farshell approvals` shows what does"),
        }
    }
}

impl Question {
    /// Waits for the answer, but not longer than allowed, and not for `gone`.
    pub(crate) async fn answered(
        mut self,
        timeout: Duration,
        gone: impl Future<Output = ()>,
    ) -> std::result::Result<Reply, Silence> {
        let silence = tokio::select! {
            biased;
            reply = &mut self.reply => return reply.map_err(|_| Silence::Closed),
            () = tokio::time::sleep(timeout) => Silence::TimedOut,
            () = gone => Silence::Withdrawn,
        };
        self.leave(if silence == Silence::TimedOut { "timed out" } else { "withdrawn" });
        // An answer that was given at this very moment counts.
        self.reply.try_recv().map_err(|_| silence)
    }

    fn leave(&self, how: &str) {
        let mut state = self.approvals.lock();
        if state.waiting.remove(&self.at).is_some() {
            state.remember(&self.id, how);
            drop(state);
            self.approvals.changed();
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.leave("withdrawn");
    }
}
