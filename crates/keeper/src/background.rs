//! Background processes: recorded before they are started, watched until they end, and that is recorded once.

use crate::alive::Token;
use crate::events::event;
use crate::gate::Cleared;
use crate::progress::Progress;
use crate::request::Plan;
use crate::slot::{Live, Use};
use crate::watch::{Search, WatchState};
use crate::{Inner, from_store, now, result, sessions};
use farshell_api::Text;
use farshell_api::event::EventKind;
use farshell_api::process::{Process, ProcessState};
use farshell_api::run::{LogInfo, Size};
use farshell_engine::capture::Discard;
use farshell_engine::{Error, Kind, Place as _, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Start, State, Status, View};
use farshell_store::{Insert, ProcessRow, Running};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Background processes that are not finished, at one time.
const MOST: usize = 10_000;
/// Output of which an event tells.
const TAIL: u32 = 4096;
/// Bytes of a command of which an event tells.
const TOLD_COMMAND: usize = 2000;
/// Bytes of a command that are recorded.
pub(crate) const LONGEST_SHOWN: usize = 64 << 10;
/// How long a repeated start waits to be told whether the first one came to anything.
const FOUND_OUT: Duration = Duration::from_secs(60);
/// Pauses between attempts to reach an outpost that does not answer, and to record what can't be recorded. The last
/// one is repeated.
const PAUSES: [u64; 6] = [1, 2, 5, 15, 30, 60];

const NEVER: &str = "it was recorded, and the connection or the server was lost before it was started";

/// A background process that is not finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    stage: watch::Sender<Stage>,
    /// Its terminal's size now.
    pub(crate) size: Mutex<Option<Size>>,
    _token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Recorded. Whether it was started as well is not known yet.
    Recorded,
    Running,
    /// Its end is recorded.
    Done,
}

impl Unfinished {
    pub(crate) fn size(&self) -> Option<Size> {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_size(&self, size: Size) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = Some(size);
    }

    /// Waits until its end is recorded.
    pub(crate) async fn done(&self) {
        self.reach(Stage::Done).await;
    }

    async fn reach(&self, stage: Stage) {
        let _ = self.stage.subscribe().wait_for(|reached| *reached >= stage).await;
    }
}

pub(crate) fn pause(attempt: usize) -> Duration {
    Duration::from_secs(PAUSES.get(attempt).or(PAUSES.last()).copied().unwrap_or(60))
}

impl Inner {
    /// The process that was started under this id, if there is one.
    pub(crate) async fn started_before(self: &Arc<Self>, plan: &Plan) -> Result<Option<Process>> {
        match self.common.store.process(plan.id.as_str()).await.map_err(from_store)? {
            Some(row) => self.repeated(plan, row).await.map(Some),
            None => Ok(None),
        }
    }

    /// Starts a background process, or finds the one that was started under this id.
    pub(crate) async fn start_background(
        self: &Arc<Self>,
        plan: Plan,
        cleared: Cleared,
        progress: Progress<'_>,
    ) -> Result<Process> {
        let store = &self.common.store;
        let id = plan.id.as_str();
        if self.unfinished().len() >= MOST {
            let message = format!("{MOST} background processes run already");
            return Err(Error::new(Kind::Exhausted, format!("starting {id}"), message)
                .with_hint("`farshell ps` shows them, `farshell kill` ends them"));
        }
        let Cleared { resolved, wanted, mut start, sudo, audited } = cleared;
        let entered = self.environments.enter(&wanted, &resolved, true, progress).await?;
        let mut row = ProcessRow {
            process: blank(&plan, &entered),
            instance: Some(entered.live.instance()),
            watch_offset: 0,
            watch_state: json!({}),
            detail: detail(&plan),
        };
        match store.insert_process(row.clone(), None).await.map_err(from_store)? {
            Insert::Inserted => {}
            Insert::Exists(row) => return self.repeated(&plan, *row).await,
        }
        // Its end is recorded with the process's.
        audited.hand_over();
        let unfinished = self.remember(&row);
        let caller = plan.request.target.caller.as_ref();
        // Nobody waits for it who could be asked.
        let _askpass = match sudo {
            true => self.askpass(&mut start, &entered.live, &resolved, caller, None).await,
            false => None,
        };
        let defaults = || sessions::defaults(self.resolver.world(), &resolved, caller);
        match start_in(&entered, start, defaults).await {
            Ok((status, anew)) => {
                row.process.note = anew;
                row.instance = Some(entered.live.instance());
                self.is_running(&mut row, &status).await;
                let process = row.process.clone();
                self.watch(entered, row, unfinished);
                Ok(process)
            }
            // Its outpost is gone or out of reach, and knows more than we do if it comes back.
            Err(error) if error.kind == Kind::UnknownOutcome => {
                self.watch(entered, row, unfinished);
                Err(error.with_hint(format!(
                    "`farshell ps --all` shows what became of {id} as soon as its place can be asked; look there before you run it again"
                )))
            }
            Err(error) => {
                self.complete(&mut row, ProcessState::NotStarted, Some(error.to_string()), None).await;
                Err(error)
            }
        }
    }

    /// The process that was started before under the same id, if it is the same.
    async fn repeated(self: &Arc<Self>, plan: &Plan, row: ProcessRow) -> Result<Process> {
        let known = &row.process;
        let same = row.detail.get("command") == Some(&hash(&plan.request.command).into())
            && known.task == plan.request.target.task
            && known.session.as_deref() == Some(plan.request.session.as_str());
        if same {
            // An earlier keeper may have died before it started it, which is being found out at this moment.
            if let Some(unfinished) = self.unfinished_of(&known.id) {
                let _ = tokio::time::timeout(FOUND_OUT, unfinished.reach(Stage::Running)).await;
            }
            return self.process(&known.id).await;
        }
        let message = format!("process id {} was used for another command", known.id);
        Err(Error::new(Kind::AlreadyExists, format!("starting {}", known.id), message))
    }

    /// Takes a process among those that are not finished.
    pub(crate) fn remember(&self, row: &ProcessRow) -> Arc<Unfinished> {
        let size = row.detail.get("size").and_then(|size| serde_json::from_value(size.clone()).ok());
        let unfinished = Arc::new(Unfinished {
            stage: watch::Sender::new(Stage::Recorded),
            size: Mutex::new(size),
            _token: self.common.alive.token(),
        });
        self.unfinished().insert(row.process.id.clone(), Arc::clone(&unfinished));
        unfinished
    }

    /// Records that a process runs, with the event that says so.
    pub(crate) async fn is_running(&self, row: &mut ProcessRow, status: &Status) {
        let first = row.process.state == ProcessState::Starting;
        result::update(&mut row.process, status, now());
        let running = Running {
            pid: row.process.pid,
            instance: row.instance.clone(),
            started_at: row.process.started_at,
        };
        let command = row.process.command.lossy();
        let started = first.then(|| {
            event(EventKind::ProcessStarted, json!({ "command": result::head(&command, TOLD_COMMAND) }))
        });
        // It runs whether or not that can be written down; its end will be.
        let _ = self.common.store.set_running(&row.process.id, running, started).await;
        if let Some(unfinished) = self.unfinished_of(&row.process.id) {
            unfinished.stage.send_replace(Stage::Running);
        }
    }

    /// Follows a process to its end, on a task of its own.
    pub(crate) fn watch(self: &Arc<Self>, entered: Use, row: ProcessRow, unfinished: Arc<Unfinished>) {
        let inner = Arc::clone(self);
        self.common.tasks.spawn(async move {
            // It stands for the process until its end is recorded.
            let _unfinished = unfinished;
            inner.follow_to_end(entered, row).await;
        });
    }

    async fn follow_to_end(self: &Arc<Self>, entered: Use, mut row: ProcessRow) {
        let live = Arc::clone(&entered.live);
        let live = &*live;
        let Ok(id) = ProcessId::new(row.process.id.as_str()) else { return };
        let mut attempt = 0;
        loop {
            let error = match self.follow(&entered, &id, &mut row).await {
                Ok(None) => continue,
                Ok(Some(status)) => {
                    result::update(&mut row.process, &status, now());
                    let tail = tail_of(live, &id, &status).await;
                    let state = row.process.state;
                    // Whoever learns of the end finds the environment free.
                    drop(entered);
                    return self.complete(&mut row, state, None, tail).await;
                }
                Err(error) => error,
            };
            if error.kind == Kind::NotStarted {
                drop(entered);
                return self.complete(&mut row, ProcessState::NotStarted, Some(error.message), None).await;
            }
            if let Some(note) = self.is_lost(&entered, error).await {
                drop(entered);
                return self.complete(&mut row, ProcessState::Lost, Some(note), None).await;
            }
            // It may well run on; it is only out of reach.
            live.place.pause(pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Follows a process until something is known: its end, that its watch was switched off (nothing), or why neither is.
    async fn follow(
        self: &Arc<Self>,
        entered: &Use,
        id: &ProcessId,
        row: &mut ProcessRow,
    ) -> Result<Option<Status>> {
        let live = &*entered.live;
        if row.process.state == ProcessState::Starting {
            let status = begun(live, id, row).await?;
            self.is_running(row, &status).await;
        }
        let watched = !row.process.watch_patterns.is_empty();
        let state = WatchState::from_json(&row.watch_state);
        if watched && !state.disabled {
            let search = Search::new(row.process.watch_patterns.clone(), state, row.watch_offset);
            self.follow_watched(live, id, search, row).await
        } else {
            live.outpost.attach(id.clone(), Attach::end_only(), &mut Discard).await.map(Some)
        }
    }

    /// Whether a process that can't be followed is lost, and why. Only its outpost's own word makes it so, or that its place
    /// is gone: one that is out of reach says nothing about what runs in it.
    async fn is_lost(&self, entered: &Use, error: Error) -> Option<String> {
        let live = &*entered.live;
        match error.kind {
            Kind::UnknownOutcome | Kind::NotFound => Some(gone(live)),
            _ if live.place.is_given_up().await => {
                Some("its environment was removed before it was seen to end".into())
            }
            Kind::Unavailable if self.environments.is_gone(&entered.slot, live).await => {
                Some(live.place.epitaph().map_or(error.message, |_| gone(live)))
            }
            _ => None,
        }
    }

    /// Whether it is of no use to try again to record something: also if the whole home is gone, and with it all who
    /// could ever read it.
    pub(crate) fn hopeless(&self, error: &farshell_store::Error) -> bool {
        use farshell_store::Kind;
        matches!(error.kind, Kind::Closed | Kind::NotFound | Kind::Invalid | Kind::Corrupt)
            || !self.resolver.world().home.join("farshell").join("state.db").exists()
    }

    /// Records how a process ended, with its one event, and tells those who wait.
    pub(crate) async fn complete(
        &self,
        row: &mut ProcessRow,
        state: ProcessState,
        note: Option<String>,
        tail: Option<String>,
    ) {
        let process = &mut row.process;
        process.state = state;
        process.note = note.or(process.note.take());
        process.waiting_for = None;
        if process.ended_at.is_none() && state != ProcessState::NotStarted {
            process.ended_at = Some(now());
        }
        let notify = process.notify_on_complete || WatchState::from_json(&row.watch_state).disabled;
        let data = json!({
            "state": process.state,
            "exit_code": process.exit_code,
            "signal": process.signal,
            "timed_out": process.timed_out,
            "command": result::head(&process.command.lossy(), TOLD_COMMAND),
            "notify_on_complete": notify,
            "output_tail": tail.unwrap_or_default(),
        });
        let completion = result::completion(process);
        self.audit_end(process);
        let mut attempt = 0;
        loop {
            let event = event(EventKind::ProcessCompleted, data.clone());
            match self.common.store.complete(&process.id, completion.clone(), event).await {
                Ok(_) => break,
                Err(error) if self.hopeless(&error) => break,
                // A full disk is emptied one day. What can't be recorded now would otherwise be found out by the
                // next keeper only.
                Err(_) => {
                    tokio::time::sleep(pause(attempt)).await;
                    attempt += 1;
                }
            }
        }
        if let Some(unfinished) = self.unfinished().remove(&process.id) {
            unfinished.stage.send_replace(Stage::Done);
        }
    }
}

/// Finds out whether a process runs whose start nobody has seen answered. If it does not, it never will.
///
/// # Errors
/// [`Kind::NotStarted`] if it has not begun; [`Kind::UnknownOutcome`] if its outpost is another one by now.
pub(crate) async fn begun(live: &Live, id: &ProcessId, row: &ProcessRow) -> Result<Status> {
    let asked = live.outpost.forbid(id.clone()).await;
    let error = match asked {
        Err(error) if error.kind == Kind::NotFound => error,
        other => return other,
    };
    // Another outpost has never heard of it either, and that says nothing. One that is gone does not come back.
    let instance = live.outpost.identity().await?.instance;
    if row.instance.as_ref() != Some(&instance) {
        return Err(Error::new(Kind::UnknownOutcome, error.operation, "the outpost that was asked is gone"));
    }
    let message = match row.process.state {
        ProcessState::Starting => NEVER,
        _ => return Err(error),
    };
    Err(Error::new(Kind::NotStarted, error.operation, message))
}

/// What is said of a process whose outpost is gone.
fn gone(live: &Live) -> String {
    let why = live.place.epitaph().unwrap_or_else(|| "the outpost that ran it is gone".to_owned());
    format!("{why}: nobody can say how it ended")
}

/// Starts a process from a session's state, opening the session if it is not open. Says if that had to begin anew, and
/// why.
async fn start_in(
    entered: &Use,
    start: Start,
    defaults: impl Fn() -> Result<farshell_engine::environment::SessionDefaults>,
) -> Result<(Status, Option<String>)> {
    let outpost = &entered.live.outpost;
    match outpost.start(start.clone()).await {
        // Nothing was started: the session is not there (any more).
        Err(error) if error.kind == Kind::NotFound => {
            let mut anew = None;
            if let Some(session) = session_of(&start) {
                anew = entered.slot.open_session(outpost, defaults()?, session).await?;
            }
            Ok((outpost.start(start).await?, anew))
        }
        other => Ok((other?, None)),
    }
}

pub(crate) fn session_of(start: &Start) -> Option<&farshell_protocol::SessionName> {
    use farshell_protocol::process::What;
    match &start.what {
        What::Session { session, .. } => Some(session),
        What::Shell { session, .. } => session.as_ref(),
        What::Exec { .. } => None,
    }
}

/// A process of which nothing is known but what was asked for.
pub(crate) fn blank(plan: &Plan, entered: &Use) -> Process {
    let request = &plan.request;
    let id = plan.id.as_str().to_owned();
    Process {
        log: LogInfo { process_id: id.clone(), ..LogInfo::default() },
        id,
        task: request.target.task.clone(),
        session: Some(request.session.clone()),
        environment: entered.slot.key.clone(),
        backend: entered.slot.lock().row.backend.clone(),
        place: entered.live.identity.clone(),
        command: shown(&request.command),
        background: plan.background,
        pty: request.pty.is_some(),
        notify_on_complete: request.notify_on_complete,
        watch_patterns: request.watch_patterns.clone(),
        ..Process::default()
    }
}

/// What is recorded of a process beside what is shown.
pub(crate) fn detail(plan: &Plan) -> serde_json::Value {
    json!({ "size": plan.request.pty, "command": hash(&plan.request.command) })
}

/// Of a command as long as a book, lists show the beginning.
fn shown(command: &Text) -> Text {
    match command.0.len() {
        0..=LONGEST_SHOWN => command.clone(),
        _ => Text::from(result::head(&command.lossy(), LONGEST_SHOWN)),
    }
}

/// Tells one command from another.
fn hash(command: &Text) -> String {
    Sha256::digest(&command.0).iter().map(|b| format!("{b:02x}")).collect()
}

/// The end of its output, in text.
async fn tail_of(live: &Live, id: &ProcessId, status: &Status) -> Option<String> {
    if status.state == State::Abandoned {
        return None;
    }
    let from = status.output.total().saturating_sub(u64::from(TAIL));
    let piece = live.outpost.read_log(id.clone(), View::Arrival, from, TAIL).await.ok()?;
    Some(result::tail(&piece.bytes, TAIL as usize))
}
