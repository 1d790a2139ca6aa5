//! What can be asked of a process, and done to it.

use crate::background::Unfinished;
use crate::recent::Foreground;
use crate::slot::{Live, Phase, Slot};
use crate::{Inner, from_store, request, result, signals};
use farshell_api::environment::EnvironmentState;
use farshell_api::process::{
    KillRequest, KillResult, Process, ProcessQuery, StdinRequest, StdinResult, WaitRequest,
};
use farshell_api::run::Size;
use farshell_engine::capture::Discard;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Killed, State, Status};
use farshell_store::{ProcessRow, finished};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait for the end of a process, and what is waited if nothing is said.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The longest pause between TERM and KILL.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);
/// How long input may wait for a process that does not read. It is kept for it all the same.
const UNREAD: Duration = Duration::from_secs(10);
/// How long an outpost may take to say how a process is, for somebody who only wants to see it.
const GLANCE: Duration = Duration::from_secs(5);
/// How long an environment that is being found again is waited for.
pub(crate) const RECOVERY: Duration = Duration::from_secs(30);
/// How long a process that has ended is waited for to be recorded as that.
const RECORDED: Duration = Duration::from_secs(5);
/// How long an outpost may take for an answer, beside what it is asked to wait.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a process that was killed may take to be seen to have ended, before it is killed again, and how often.
const ENDED: Duration = Duration::from_millis(500);
const KILLS: u32 = 10;
/// Pause before something is tried again that came before the start of its process.
const NOT_YET: Duration = Duration::from_millis(2);

/// A process that is known here.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    Background(Box<ProcessRow>),
    Foreground(Arc<Foreground>),
}

/// A process with the outpost that has it.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub(crate) id: ProcessId,
    pub(crate) slot: Arc<Slot>,
    pub(crate) live: Arc<Live>,
}

fn unknown(id: &str) -> Error {
    let shown = result::head(id, 80);
    Error::new(Kind::NotFound, format!("looking for process {shown}"), "no process with this id is known")
        .with_hint("`farshell ps --all` shows those that are")
}

impl Known {
    pub(crate) fn process(&self) -> Process {
        match self {
            Self::Background(row) => row.process.clone(),
            Self::Foreground(foreground) => foreground.process(),
        }
    }

    fn instance(&self) -> Option<&str> {
        match self {
            Self::Background(row) => row.instance.as_deref(),
            Self::Foreground(foreground) => Some(&foreground.instance),
        }
    }
}

impl Inner {
    /// # Errors
    /// Nothing is known of it.
    pub(crate) async fn known(&self, id: &str) -> Result<Known> {
        if let Some(foreground) = self.recent().get(id) {
            return Ok(Known::Foreground(foreground));
        }
        let row = self.common.store.process(id).await.map_err(from_store)?;
        row.map(|row| Known::Background(Box::new(row))).ok_or_else(|| unknown(id))
    }

    /// The outpost that has a process, if it is still there.
    pub(crate) async fn reach(&self, known: &Known) -> Option<Reached> {
        let process = known.process();
        let slot = self.environments.find(&process.environment)?;
        let live = match slot.live() {
            Some(live) => live,
            None => {
                // It is being found again, or made anew.
                let until = Instant::now() + RECOVERY;
                let life = tokio::time::timeout_at(until, Arc::clone(&slot.life).lock_owned()).await.ok()?;
                match slot.live() {
                    Some(live) => live,
                    // It was out of reach when it was last used, and may be back. On a task of its own: what is found to
                    // have ended is not left half put away by a caller who goes.
                    None if slot.lock().may_be_back() => {
                        let (environments, slot) = (Arc::clone(&self.environments), Arc::clone(&slot));
                        let found = self.common.tasks.spawn(async move {
                            let _life = life;
                            environments.connect_again(&slot).await
                        });
                        tokio::time::timeout_at(until, found).await.ok()?.ok()??.ok()??
                    }
                    None => return None,
                }
            }
        };
        let same = known.instance().is_none_or(|instance| instance == live.instance());
        let id = ProcessId::new(process.id).ok()?;
        same.then_some(Reached { id, slot, live })
    }

    /// A process that can be reached.
    async fn reached(&self, id: &str) -> Result<(Known, Reached)> {
        let known = self.known(id).await?;
        match self.reach(&known).await {
            Some(reached) => {
                self.begun(&known, &reached).await;
                Ok((known, reached))
            }
            None if finished(known.process().state) => {
                Err(gone(id, "it has ended, and its environment is gone"))
            }
            None => Err(self.away(&known)),
        }
    }

    /// Why a process that has not ended can't be reached.
    pub(crate) fn away(&self, known: &Known) -> Error {
        let Process { id, environment, .. } = known.process();
        let what = format!("reaching process {}", result::head(&id, 80));
        match self.out_of_reach(&environment) {
            Some(why) => {
                Error::new(Kind::Disconnected, what, format!("its environment can't be reached: {why}"))
                    .with_hint("it may well run on: try again when its place can be reached")
            }
            None => gone(&id, "its environment is gone, or the outpost that had it"),
        }
    }

    /// Why an environment can't be asked, if it is known and can't.
    fn out_of_reach(&self, key: &str) -> Option<String> {
        let slot = self.environments.find(key)?;
        let inner = slot.lock();
        let there = matches!(inner.phase, Phase::Ready(_) | Phase::Absent(EnvironmentState::Stopped));
        let why = || inner.row.note.clone().unwrap_or_else(|| "it is being looked for".to_owned());
        (inner.recorded && !there).then(why)
    }

    /// Waits for a foreground command whose start is on its way.
    async fn begun(&self, known: &Known, reached: &Reached) {
        let Known::Foreground(foreground) = known else { return };
        let deadline = Instant::now() + RECORDED;
        while foreground.active() && Instant::now() < deadline {
            match reached.live.outpost.status(reached.id.clone()).await {
                Err(error) if error.kind == Kind::NotFound => tokio::time::sleep(NOT_YET).await,
                _ => return,
            }
        }
    }

    pub(crate) async fn process(&self, id: &str) -> Result<Process> {
        let known = self.known(id).await?;
        match &known {
            Known::Background(row) if finished(row.process.state) => return Ok(row.process.clone()),
            Known::Foreground(foreground) if !foreground.active() => return Ok(foreground.process()),
            _ => {}
        }
        let why = match self.reach(&known).await {
            None => self.out_of_reach(&known.process().environment),
            Some(reached) => {
                let status = reached.live.outpost.status(reached.id.clone());
                match tokio::time::timeout(GLANCE, status).await {
                    Ok(Ok(status)) => return self.with_status(known, &status).await,
                    // Not there yet.
                    Ok(Err(error)) if error.kind == Kind::NotFound => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some(silent()),
                }
            }
        };
        // What is known is all there is.
        let mut process = self.known(id).await?.process();
        process.unreachable = why.filter(|_| !finished(process.state));
        Ok(process)
    }

    /// A process that was not finished when it was looked up, with what its outpost says.
    async fn with_status(&self, known: Known, status: &Status) -> Result<Process> {
        let mut row = match known {
            Known::Foreground(foreground) => return Ok(foreground.update(status)),
            Known::Background(row) => row,
        };
        if matches!(status.state, State::Ended(_) | State::Abandoned) {
            // Its watcher is about to record that; until then it has not happened.
            if let Some(unfinished) = self.unfinished_of(&row.process.id) {
                let _ = tokio::time::timeout(RECORDED, unfinished.done()).await;
            }
            let row = self.common.store.process(&row.process.id).await.map_err(from_store)?;
            return row.map(|row| row.process).ok_or_else(|| unknown(status.id.as_str()));
        }
        result::update(&mut row.process, status, crate::now());
        Ok(row.process)
    }

    pub(crate) async fn processes(&self, query: ProcessQuery) -> Result<Vec<Process>> {
        let rows = self.common.store.processes(query.task.as_deref(), query.all).await;
        let rows = rows.map_err(from_store)?;
        let active = self.recent().active();
        let of_task = |process: &Process| query.task.as_ref().is_none_or(|task| *task == process.task);
        let active: Vec<_> = active.into_iter().filter(|foreground| of_task(&foreground.process())).collect();
        let unfinished = rows.iter().map(|row| &row.process).filter(|process| !finished(process.state));
        let environments = unfinished.map(|process| process.environment.clone());
        let asked = Asked::about(
            self,
            environments.chain(active.iter().map(|foreground| foreground.process().environment)),
        )
        .await;
        let mut list = Vec::new();
        for mut row in rows {
            if !finished(row.process.state) {
                match asked.status_of(&row.process).await {
                    // The end of one is only true once it is recorded.
                    Ok(Some(status)) if matches!(status.state, State::Running | State::Queued) => {
                        result::update(&mut row.process, &status, crate::now());
                    }
                    Ok(_) => {}
                    Err(why) => row.process.unreachable = Some(why),
                }
            }
            list.push(row.process);
        }
        for foreground in active {
            let process = foreground.process();
            list.push(match asked.status_of(&process).await {
                Ok(Some(status)) => foreground.update(&status),
                Ok(None) => process,
                Err(why) => Process { unreachable: Some(why), ..process },
            });
        }
        Ok(list)
    }

    pub(crate) async fn wait(&self, id: &str, request: WaitRequest) -> Result<Process> {
        let wait = request::pause("timeout", request.timeout, LONGEST_WAIT, LONGEST_WAIT)?;
        let known = self.known(id).await?;
        match &known {
            Known::Background(row) if !finished(row.process.state) => {
                if let Some(unfinished) = self.unfinished_of(id) {
                    let _ = tokio::time::timeout(wait, unfinished.done()).await;
                }
            }
            Known::Background(_) => {}
            Known::Foreground(_) => {
                if let Some(reached) = self.reach(&known).await {
                    let (attach, mut sink) = (Attach::end_only(), Discard);
                    let end = reached.live.outpost.attach(reached.id.clone(), attach, &mut sink);
                    if let Ok(Ok(status)) = tokio::time::timeout(wait, end).await {
                        return self.with_status(known, &status).await;
                    }
                }
            }
        }
        self.process(id).await
    }

    pub(crate) async fn stdin(&self, id: &str, request: StdinRequest) -> Result<StdinResult> {
        let (known, reached) = self.reached(id).await?;
        let mut bytes = request.data.0;
        if request.submit {
            bytes.push(if known.process().pty { b'\r' } else { b'\n' });
        }
        let Reached { id: process, live, .. } = &reached;
        let taken = match request.offset {
            Some(offset) => reached.send(offset, bytes, request.eof).await?,
            None => {
                // One at a time, or two would send at the same offset and one of them in vain.
                let turn = self.turn(id);
                let _turn = turn.lock().await;
                let before = live.outpost.stdin(process.clone(), 0, Vec::new(), false).await?;
                reached.send(before, bytes, request.eof).await?
            }
        };
        Ok(StdinResult { taken })
    }

    pub(crate) async fn kill(&self, id: &str, request: KillRequest) -> Result<KillResult> {
        let known = self.known(id).await?;
        let Some(reached) = self.reach(&known).await else {
            return match finished(known.process().state) {
                true => Ok(KillResult { killed: 0, survivors: 0, had_ended: true }),
                false => Err(self.away(&known)),
            };
        };
        self.begun(&known, &reached).await;
        let done = reached.kill(request.grace).await;
        let done = match done {
            // Its record was dropped: it has ended long ago.
            Err(error) if error.kind == Kind::NotFound && finished(known.process().state) => {
                return Ok(KillResult { killed: 0, survivors: 0, had_ended: true });
            }
            other => other?,
        };
        if let Some(unfinished) = self.unfinished_of(id) {
            let _ = tokio::time::timeout(RECORDED, unfinished.done()).await;
        }
        Ok(done)
    }

    pub(crate) async fn signal(&self, id: &str, signal: &str) -> Result<()> {
        let signal = signals::number(signal)?;
        let (_, reached) = self.reached(id).await?;
        reached.signal(signal).await
    }

    pub(crate) async fn resize(&self, id: &str, size: Size) -> Result<()> {
        request::check_size("size", size)?;
        let (known, reached) = self.reached(id).await?;
        self.resize_reached(&known, &reached, size).await
    }

    pub(crate) async fn resize_reached(&self, known: &Known, reached: &Reached, size: Size) -> Result<()> {
        reached.live.outpost.resize(reached.id.clone(), request::size(size)).await?;
        match known {
            Known::Foreground(foreground) => foreground.set_size(Some(size)),
            Known::Background(row) => {
                if let Some(unfinished) = self.unfinished_of(&row.process.id) {
                    unfinished.set_size(size);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn unfinished_of(&self, id: &str) -> Option<Arc<Unfinished>> {
        self.unfinished().get(id).cloned()
    }

    /// Who sends input to a process without saying where.
    fn turn(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(id.to_owned()).or_default())
    }
}

/// What outposts say of their processes, each asked once: also those that don't answer.
struct Asked<'a> {
    inner: &'a Inner,
    answers: HashMap<String, (Arc<Live>, Answer)>,
}

/// All processes of an outpost, or why it can't be asked.
type Answer = std::result::Result<HashMap<ProcessId, Status>, String>;

impl<'a> Asked<'a> {
    /// Asks all that are there at once: several that are silent cost the time of one.
    async fn about(inner: &'a Inner, environments: impl Iterator<Item = String>) -> Self {
        let mut asking = tokio::task::JoinSet::new();
        for key in environments.collect::<HashSet<_>>() {
            let Some(live) = inner.environments.find(&key).and_then(|slot| slot.live()) else { continue };
            asking.spawn(async move {
                let answer = match tokio::time::timeout(GLANCE, live.outpost.processes()).await {
                    Ok(Ok(all)) => Ok(all.into_iter().map(|status| (status.id.clone(), status)).collect()),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(silent()),
                };
                (key, (live, answer))
            });
        }
        let mut answers = HashMap::new();
        while let Some(answer) = asking.join_next().await {
            answers.extend(answer.ok());
        }
        Self { inner, answers }
    }

    async fn status_of(&self, process: &Process) -> std::result::Result<Option<Status>, String> {
        let key = &process.environment;
        let Ok(id) = ProcessId::new(process.id.as_str()) else { return Ok(None) };
        let Some((live, answer)) = self.answers.get(key) else {
            return self.inner.out_of_reach(key).map_or(Ok(None), Err);
        };
        let known = answer.as_ref().map_err(Clone::clone)?.get(&id).cloned();
        // Whether it waits for input is only told of one that is asked about.
        if process.pty
            && let Ok(Ok(status)) = tokio::time::timeout(GLANCE, live.outpost.status(id)).await
        {
            return Ok(Some(status));
        }
        Ok(known)
    }
}

fn silent() -> String {
    format!("no answer in {} s", GLANCE.as_secs())
}

pub(crate) fn gone(id: &str, why: &str) -> Error {
    Error::new(Kind::NotFound, format!("reaching process {}", result::head(id, 80)), why)
}

impl Reached {
    /// Sends input. A process that does not read is not waited for for ever: what was sent is kept for it.
    pub(crate) async fn send(&self, offset: u64, bytes: Vec<u8>, eof: bool) -> Result<u64> {
        let outpost = &self.live.outpost;
        match tokio::time::timeout(UNREAD, outpost.stdin(self.id.clone(), offset, bytes, eof)).await {
            Ok(taken) => taken,
            Err(_) => outpost.stdin(self.id.clone(), 0, Vec::new(), false).await,
        }
    }

    pub(crate) async fn kill(&self, grace: Option<f64>) -> Result<KillResult> {
        let configured = self.slot.lock().grace;
        let grace = request::pause("grace", grace, configured, LONGEST_GRACE)?;
        let outpost = &self.live.outpost;
        let before = outpost.status(self.id.clone()).await?;
        let had_ended = matches!(before.state, State::Ended(_) | State::Abandoned);
        let mut killed = Killed::default();
        for _ in 0..KILLS {
            let kill = outpost.kill(vec![self.id.clone()], grace);
            let list = tokio::time::timeout(grace + ANSWER, kill).await.map_err(|_| {
                Error::new(Kind::TimedOut, format!("killing {}", self.id), "the outpost is still at it")
            })??;
            killed = list.first().map(|(_, killed)| *killed).unwrap_or_default();
            // One that was just about to begin may have escaped.
            let mut sink = Discard;
            let end = outpost.attach(self.id.clone(), Attach::end_only(), &mut sink);
            if had_ended || killed.left > 0 || tokio::time::timeout(ENDED, end).await.is_ok() {
                break;
            }
        }
        Ok(KillResult { killed: killed.killed, survivors: killed.left, had_ended })
    }

    pub(crate) async fn signal(&self, signal: i32) -> Result<()> {
        let outpost = &self.live.outpost;
        let refused = match outpost.signal(self.id.clone(), signal).await {
            Err(error) if error.kind == Kind::Invalid => error,
            other => return other,
        };
        // One that waits for its session has nobody who could take a signal; those that end it do so.
        let queued = outpost.status(self.id.clone()).await.is_ok_and(|s| s.state == State::Queued);
        if !queued {
            return Err(refused);
        }
        if signals::ends(signal) {
            outpost.kill(vec![self.id.clone()], Duration::ZERO).await?;
        }
        Ok(())
    }
}

/// Tries again for as long as a process that is being started is not there yet.
pub(crate) async fn once_there<T, F: Future<Output = Result<T>>>(
    over: &tokio::sync::watch::Receiver<bool>,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    loop {
        match attempt().await {
            Err(error) if error.kind == Kind::NotFound && !*over.borrow() => {
                tokio::time::sleep(NOT_YET).await;
            }
            other => return other,
        }
    }
}
