//! Foreground commands: nothing is recorded of them. The outpost knows them by their ids, and the keeper remembers
//! for a while where it sent which.

use crate::askpass::Askpass;
use crate::audit::{self, Audited};
use crate::background::{blank, session_of};
use crate::gate::Cleared;
use crate::progress::{Observer, Progress};
use crate::promotion::{Promotion, time_is_up};
use crate::recent::Foreground;
use crate::request::{Plan, Way};
use crate::resolve::Resolved;
use crate::slot::{Live, Use};
use crate::{Inner, now, result, sessions};
use farshell_api::Text;
use farshell_api::process::Process;
use farshell_api::run::{RunRequest, RunResult};
use farshell_engine::capture::{Capture, Discard, Sink};
use farshell_engine::{Error, Kind, Place as _, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Chunk, Start, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The most of each stream that an answer may hold.
const MOST_OUTPUT: usize = 16 << 20;
/// Bytes of input in one request: far below what a message may hold.
const PIECE: usize = 256 << 10;
/// Pause before input is offered again to a command that is not there yet, and to one that takes none.
const NOT_YET: Duration = Duration::from_millis(2);
const BUSY: Duration = Duration::from_millis(20);

/// A foreground command that is about to begin.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Plan,
    pub(crate) foreground: Arc<Foreground>,
    pub(crate) entered: Use,
    start: Start,
    promotion: Option<Promotion>,
    resolved: Arc<Resolved>,
    audited: Audited,
    askpass: Option<Askpass>,
    _pending: Pending,
}

/// A foreground command whose whole output is wanted.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    input: Option<Text>,
    max_output: usize,
}

impl Run {
    /// # Errors
    /// A field can't be used.
    pub(crate) fn new(mut request: RunRequest) -> Result<Self> {
        if request.max_output > MOST_OUTPUT {
            let message = format!("{} bytes; at most {MOST_OUTPUT} are given at once", request.max_output);
            return Err(
                crate::request::invalid("max_output", message).with_hint("the rest can be read from the log")
            );
        }
        request.start.stdin |= request.input.is_some();
        let plan = Plan::new(request.start, Way::Run)?;
        Ok(Self { plan, input: request.input, max_output: request.max_output })
    }
}

/// A command that was not begun when this is dropped will not be.
#[derive(Debug)]
struct Pending(Arc<Foreground>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.is_given_up();
    }
}

/// How it went.
#[derive(Debug)]
pub(crate) enum Finished {
    Ended(Process),
    /// It goes on as a background process.
    Promoted(Process),
}

impl Inner {
    /// Everything that comes before a foreground command.
    pub(crate) async fn job(
        self: &Arc<Self>,
        plan: Plan,
        cleared: Cleared,
        observer: &dyn Observer,
    ) -> Result<Job> {
        let Cleared { resolved, wanted, mut start, sudo, audited } = cleared;
        let promotion = plan.promotion(&resolved.settings)?;
        let progress: Progress<'_> = &|news| observer.progress(news);
        let entered = tokio::select! {
            biased;
            entered = self.environments.enter(&wanted, &resolved, false, progress) => entered?,
            // What is made is made all the same, unless it only waits in a queue.
            () = observer.gone() => {
                let what = format!("waiting for environment {}", wanted.key);
                return Err(Error::new(Kind::NotStarted, what, "whoever waited for it has gone"));
            }
        };
        let promotion = match promotion {
            Some(after) => Some(Promotion::promise(&plan, after, &entered.slot).await?),
            None => None,
        };
        let foreground = self.remember_foreground(blank(&plan, &entered), &entered);
        foreground.set_size(plan.request.pty);
        let pending = Pending(Arc::clone(&foreground));
        let askpass = match sudo {
            true => {
                let (caller, person) = (plan.request.target.caller.as_ref(), observer.passwords());
                self.askpass(&mut start, &entered.live, &resolved, caller, person).await
            }
            false => None,
        };
        Ok(Job { plan, foreground, entered, start, promotion, resolved, audited, askpass, _pending: pending })
    }

    fn remember_foreground(&self, process: Process, entered: &Use) -> Arc<Foreground> {
        let foreground = Arc::new(Foreground::new(process, entered.live.instance()));
        self.recent().insert(Arc::clone(&foreground));
        foreground
    }

    /// A foreground command with its whole output.
    pub(crate) async fn run(self: &Arc<Self>, run: Run, cleared: Cleared) -> Result<RunResult> {
        let session = run.plan.request.session.clone();
        let job = self.job(run.plan, cleared, &()).await?;
        let (live, id) = (Arc::clone(&job.entered.live), job.plan.id.clone());
        let (mut capture, input) = (Capture::new(run.max_output), run.input);
        let finished = {
            let mut run = std::pin::pin!(self.foreground(job, &mut capture));
            match input {
                None => run.await,
                Some(input) => {
                    let feed = std::pin::pin!(feed(&live, &id, &input));
                    tokio::select! {
                        biased;
                        finished = &mut run => finished,
                        () = feed => run.await,
                    }
                }
            }?
        };
        Ok(match finished {
            Finished::Ended(process) => result::run_result(&process, &session, &capture, false),
            Finished::Promoted(process) => result::run_result(&process, &session, &capture, true),
        })
    }

    /// Runs a command and follows it to its end, or to where it is made a background process. If this is dropped
    /// on the way, the command goes on.
    pub(crate) async fn foreground(self: &Arc<Self>, job: Job, sink: &mut dyn Sink) -> Result<Finished> {
        let Job {
            plan,
            foreground,
            entered,
            start,
            promotion,
            resolved,
            audited,
            askpass: _askpass,
            _pending,
        } = job;
        let (live, slot) = (Arc::clone(&entered.live), Arc::clone(&entered.slot));
        foreground.is_followed();
        let after = promotion.as_ref().map(|promotion| promotion.after);
        let mut attended = Attended {
            inner: Arc::clone(self),
            foreground: Arc::clone(&foreground),
            id: plan.id.clone(),
            held: Some((entered, promotion, audited)),
        };
        let started = Notify::new();
        let mut sink = Noting { sink, started: &started };
        let caller = plan.request.target.caller.as_ref();
        let defaults = || sessions::defaults(self.resolver.world(), &resolved, caller);
        let mut opened = None;
        let run = async {
            match live.outpost.run(start.clone(), &mut sink).await {
                // Nothing ran: the session is not there (any more).
                Err(error) if error.kind == Kind::NotFound => {
                    if let Some(session) = session_of(&start)
                        && let Some(why) = slot.open_session(&live.outpost, defaults()?, session).await?
                    {
                        foreground.began_anew(why);
                    }
                    opened = Some(Instant::now());
                    live.outpost.run(start, &mut sink).await
                }
                other => other,
            }
        };
        let ended = match after {
            None => Some(run.await),
            Some(after) => tokio::select! {
                biased;
                ended = run => Some(ended),
                () = time_is_up(&live, &plan.id, after, after, &started) => None,
            },
        };
        let held = attended.held.take();
        match (ended, held) {
            (Some(Ok(status)), held) => {
                let mut process = self.over(&foreground, &status, held.map(|(.., audited)| audited));
                let ran = Duration::from_micros(status.elapsed_us);
                let waited = opened.map_or(Duration::ZERO, |opened| opened.elapsed().saturating_sub(ran));
                for word in live.place.word().into_iter().chain(sessions::slow_start(waited)) {
                    result::note(&mut process, &word);
                }
                Ok(Finished::Ended(process))
            }
            (Some(Err(error)), held) => {
                let error = with_epitaph(error, &live);
                foreground.failed(&error);
                if let Some((.., audited)) = held {
                    audited.ended(audit::failure(&error), Some(live.identity.clone()));
                }
                Err(error)
            }
            (None, Some((entered, Some(mut promotion), audited))) => {
                promotion.goes_on();
                // It is a process that is recorded from here on, and so is its end.
                audited.hand_over();
                // On a task of its own: it is not left half done by a caller who goes away.
                let inner = Arc::clone(self);
                let promoting = self
                    .common
                    .tasks
                    .spawn(async move { inner.promote(&plan.id, promotion, &foreground, entered).await });
                let promoted = promoting.await.ok().flatten().unwrap_or_else(|| Err(crate::closed()));
                promoted.map(Finished::Promoted)
            }
            (None, _) => Err(crate::closed()),
        }
    }

    /// It has ended: that is told, recorded, and where its session is now.
    fn over(&self, foreground: &Foreground, status: &Status, audited: Option<Audited>) -> Process {
        let process = foreground.update(status);
        foreground.is_over();
        if let Some(audited) = audited {
            audited.ended(audit::outcome(&process), Some(process.place.clone()));
        }
        // One that ran beside its session says nothing about where that is.
        if let (Some(session), Some(cwd), true) = (&process.session, &process.cwd, status.session.is_some()) {
            self.gate.session_is_at(&process.environment, &process.task, session, &cwd.0);
        }
        process
    }

    /// Takes up a foreground command of which only its outpost knows. Somebody may have done so a moment ago, or have started
    /// it here: then it is that one's. Of two, only one would hear what becomes of it. None: it is a background process here.
    pub(crate) fn adopt_foreground(
        self: &Arc<Self>,
        status: &Status,
        task: &str,
        entered: Use,
    ) -> Option<Arc<Foreground>> {
        let mut process = blank_from(status, &entered);
        task.clone_into(&mut process.task);
        let promotion = Promotion::recorded(&entered.slot, &status.id);
        if let Some(promotion) = &promotion {
            promotion.describe(&mut process);
        }
        result::update(&mut process, status, now());
        let foreground = Arc::new(Foreground::new(process.clone(), entered.live.instance()));
        foreground.is_followed();
        let known = self.recent().insert_new(Arc::clone(&foreground));
        if known.is_some() {
            return known;
        }
        // Looked at after that: whoever makes one of a foreground command remembers it first.
        if self.unfinished_of(status.id.as_str()).is_some() {
            self.recent().remove(status.id.as_str());
            return None;
        }
        let audited = self.audited_before(&process);
        drop(Attended {
            inner: Arc::clone(self),
            foreground: Arc::clone(&foreground),
            id: status.id.clone(),
            held: Some((entered, promotion, audited)),
        });
        Some(foreground)
    }
}

fn blank_from(status: &Status, entered: &Use) -> Process {
    let mut request = farshell_api::run::StartRequest::new(Text::from(status.title.as_str()));
    if let Some(session) = &status.session {
        session.as_str().clone_into(&mut request.session);
    }
    let plan = Plan { id: status.id.clone(), request, background: false, beside: status.session.is_none() };
    Process { session: status.session.as_ref().map(ToString::to_string), ..blank(&plan, entered) }
}

/// A command that was only followed, and can't be any more: it runs on, or has ended, and nobody can say. Only the outpost itself
/// knows that there was none.
pub(crate) fn begun_and_lost(error: Error) -> Error {
    match error.kind {
        Kind::NotFound | Kind::NotStarted | Kind::UnknownOutcome => error,
        _ => {
            let message = format!("the outcome is unknown: {}", error.message);
            let hint = "check in the place whether the command took effect before you run it again";
            Error::new(Kind::UnknownOutcome, error.operation, message).with_hint(hint)
        }
    }
}

/// What became of a command that nobody can ask about any more, in the words of its place.
pub(crate) fn with_epitaph(mut error: Error, live: &Live) -> Error {
    if error.kind == Kind::UnknownOutcome
        && let Some(epitaph) = live.place.epitaph()
    {
        error.message = format!("{epitaph}; {}", error.message);
    }
    error
}

/// A foreground command and its use of the environment. Dropped before the end, it is followed by somebody else.
struct Attended {
    inner: Arc<Inner>,
    foreground: Arc<Foreground>,
    id: ProcessId,
    held: Option<(Use, Option<Promotion>, Audited)>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        let Some((entered, mut promotion, audited)) = self.held.take() else { return };
        if let Some(promotion) = &mut promotion {
            promotion.goes_on();
        }
        let (inner, foreground, id) =
            (Arc::clone(&self.inner), Arc::clone(&self.foreground), self.id.clone());
        self.inner.common.tasks.spawn(async move {
            let started = Notify::new();
            let mut discard = Discard;
            let mut sink = Noting { sink: &mut discard, started: &started };
            let end = entered.live.outpost.attach(id.clone(), Attach::end_only(), &mut sink);
            let ended = match &promotion {
                None => Some(end.await),
                Some(Promotion { after, .. }) => tokio::select! {
                    biased;
                    ended = end => Some(ended),
                    () = time_is_up(&entered.live, &id, *after, Duration::ZERO, &started) => None,
                },
            };
            match (ended, promotion) {
                (None, Some(promotion)) => {
                    audited.hand_over();
                    // If it fails, it was killed for that.
                    let _ = inner.promote(&id, promotion, &foreground, entered).await;
                }
                (Some(ended), promotion) => {
                    match ended {
                        Ok(status) => drop(inner.over(&foreground, &status, Some(audited))),
                        Err(error) => {
                            let error = with_epitaph(begun_and_lost(error), &entered.live);
                            foreground.failed(&error);
                            audited.ended(audit::failure(&error), Some(entered.live.identity.clone()));
                        }
                    }
                    if let Some(promotion) = promotion {
                        promotion.over();
                    }
                }
                (None, None) => {}
            }
            foreground.is_over();
        });
    }
}

/// Passes everything on, and notes when a command that had to wait begins.
struct Noting<'a> {
    sink: &'a mut dyn Sink,
    started: &'a Notify,
}

impl Sink for Noting<'_> {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.sink.chunk(chunk);
    }

    fn room(&mut self) -> Option<farshell_engine::backend::BoxFuture<'_, ()>> {
        self.sink.room()
    }

    fn gap(&mut self, from: u64, to: u64) {
        self.sink.gap(from, to);
    }

    fn started(&mut self, pid: u32) {
        self.started.notify_one();
        self.sink.started(pid);
    }
}

/// Sends the whole input, until it is taken or the command wants no more.
async fn feed(live: &Live, id: &ProcessId, input: &Text) {
    let mut sent = 0;
    loop {
        let piece = &input.0[sent..input.0.len().min(sent + PIECE)];
        let eof = sent + piece.len() == input.0.len();
        let taken = live.outpost.stdin(id.clone(), sent as u64, piece.to_vec(), eof).await;
        match taken {
            Ok(_) if eof => return,
            Ok(_) => sent += piece.len(),
            // Input may overtake the command's own start.
            Err(error) if error.kind == Kind::NotFound => tokio::time::sleep(NOT_YET).await,
            Err(error) if error.kind == Kind::Busy => tokio::time::sleep(BUSY).await,
            // Its right, or what the run itself will report.
            Err(_) => return,
        }
    }
}
