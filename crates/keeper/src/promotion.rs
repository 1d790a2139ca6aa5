//! Foreground commands that are to go on in the background when their time is up.
//!
//! Their outpost is not told of the time, or it would kill them. It is watched here, whoever follows the command,
//! and recorded with the environment, so that the next keeper watches it if this one dies.

use crate::background::LONGEST_SHOWN;
use crate::recent::Foreground;
use crate::request::{Plan, millis};
use crate::slot::{Live, Slot, Use};
use crate::{Inner, from_store, result};
use farshell_api::Text;
use farshell_api::process::{Process, ProcessState};
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::State;
use farshell_store::{Insert, ProcessRow};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Where an environment's record keeps them.
const KEY: &str = "promotions";
/// In what is recorded beside a process.
const PROMOTED: &str = "promoted";
/// How long a command that waits for its session is believed to do so.
const ASKED_AGAIN: Duration = Duration::from_secs(30);

/// When a command is made a background process, and as what.
#[derive(Debug)]
pub(crate) struct Promotion {
    pub(crate) after: Duration,
    task: String,
    session: String,
    command: Text,
    notify: bool,
    /// Recorded beside the process.
    detail: Value,
    promise: Promise,
}

/// A record that is withdrawn when this is dropped, unless its command goes on: what is dropped with a keeper that ends is
/// for the next one to keep.
#[derive(Debug)]
struct Promise {
    slot: Arc<Slot>,
    id: ProcessId,
    goes_on: bool,
}

impl Promotion {
    /// Records what will have to be done.
    ///
    /// # Errors
    /// It can't be recorded.
    pub(crate) async fn promise(plan: &Plan, after: Duration, slot: &Arc<Slot>) -> Result<Self> {
        let request = &plan.request;
        let command = result::head(&request.command.lossy(), LONGEST_SHOWN).to_owned();
        let detail = crate::background::detail(plan);
        let value = json!({
            "after_ms": millis(after),
            "task": request.target.task,
            "session": request.session,
            "command": command,
            "notify": request.notify_on_complete,
            "detail": detail,
        });
        change(slot, |promotions| drop(promotions.insert(plan.id.as_str().to_owned(), value)));
        let promise = Promise { slot: Arc::clone(slot), id: plan.id.clone(), goes_on: false };
        slot.record_now().await.map_err(from_store)?;
        Ok(Self {
            after,
            task: request.target.task.clone(),
            session: request.session.clone(),
            command: command.into(),
            notify: request.notify_on_complete,
            detail,
            promise,
        })
    }

    /// What an earlier keeper has promised.
    pub(crate) fn recorded(slot: &Arc<Slot>, id: &ProcessId) -> Option<Self> {
        let value = slot.lock().row.settings.get(KEY)?.get(id.as_str())?.clone();
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            after: Duration::from_millis(value.get("after_ms")?.as_u64()?),
            task: text("task"),
            session: text("session"),
            command: text("command").into(),
            notify: value.get("notify").and_then(Value::as_bool).unwrap_or_default(),
            detail: value.get("detail").cloned().unwrap_or_default(),
            promise: Promise { slot: Arc::clone(slot), id: id.clone(), goes_on: true },
        })
    }

    /// The command goes on by itself from here: only [`Promotion::over`] withdraws the record.
    pub(crate) fn goes_on(&mut self) {
        self.promise.goes_on = true;
    }

    /// There is nothing left to be done.
    pub(crate) fn over(mut self) {
        self.promise.goes_on = false;
    }

    /// Fills in what only the one who asked knew.
    pub(crate) fn describe(&self, process: &mut Process) {
        process.task.clone_from(&self.task);
        process.session = Some(self.session.clone());
        process.command = self.command.clone();
        process.notify_on_complete = self.notify;
    }
}

/// The commands for which something was promised.
pub(crate) fn promised(slot: &Slot) -> HashSet<String> {
    let inner = slot.lock();
    let all = inner.row.settings.get(KEY).and_then(Value::as_object);
    all.into_iter().flat_map(|all| all.keys().cloned()).collect()
}

/// Forgets what was promised for commands that have ended meanwhile.
pub(crate) fn keep_only(slot: &Slot, running: impl Fn(&str) -> bool) {
    change(slot, |promotions| promotions.retain(|id, _| running(id)));
}

fn change(slot: &Slot, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let mut inner = slot.lock();
    if !inner.row.settings.is_object() {
        inner.row.settings = json!({});
    }
    let promotions = &mut inner.row.settings[KEY];
    if !promotions.is_object() {
        *promotions = json!({});
    }
    if let Some(promotions) = promotions.as_object_mut() {
        change(promotions);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        change(&self.slot, |promotions| drop(promotions.remove(self.id.as_str())));
        self.slot.record_soon(None);
    }
}

impl Inner {
    /// Makes a background process of a foreground command, and tells those who follow it.
    pub(crate) async fn promote(
        self: &Arc<Self>,
        id: &ProcessId,
        promotion: Promotion,
        foreground: &Foreground,
        entered: Use,
    ) -> Result<Process> {
        let promoted = self.make_background(id, &promotion, foreground, entered).await;
        promotion.over();
        promoted
    }

    async fn make_background(
        self: &Arc<Self>,
        id: &ProcessId,
        promotion: &Promotion,
        foreground: &Foreground,
        entered: Use,
    ) -> Result<Process> {
        // Whatever comes of it, nobody follows it as a foreground command any more.
        foreground.is_over();
        let live = Arc::clone(&entered.live);
        let status = live.outpost.status(id.clone()).await?;
        let mut process = foreground.update(&status);
        process.background = true;
        process.note = Some(format!(
            "it reached its timeout and was made a background process; session {} waits for its end",
            promotion.session
        ));
        // Also one that has ended at this very moment: its watcher finds that out.
        process.state = ProcessState::Running;
        let row = ProcessRow {
            process,
            instance: Some(live.instance()),
            watch_offset: 0,
            watch_state: json!({}),
            detail: promoted_detail(&promotion.detail),
        };
        match self.common.store.insert_process(row.clone(), None).await {
            Ok(Insert::Inserted) => {}
            // The same one, which somebody else has made one of: whoever asked for it twice under its id is told twice.
            Ok(Insert::Exists(known))
                if known.instance.as_ref() == Some(&live.instance())
                    && known.detail["command"] == promotion.detail["command"] =>
            {
                self.recent().remove(id.as_str());
                foreground.promoted(&known.process);
                return Ok(known.process);
            }
            Ok(Insert::Exists(_)) => {
                let message = "its id is that of a background process";
                return Err(Error::new(Kind::AlreadyExists, format!("keeping {id} alive"), message));
            }
            Err(error) => {
                // Nobody would know of it any more.
                let grace = entered.slot.lock().grace;
                let _ = live.outpost.kill(vec![id.clone()], grace).await;
                return Err(from_store(error).with_hint(
                    "the command reached its timeout, and was killed because it could not be recorded as a background process",
                ));
            }
        }
        let unfinished = self.remember(&row);
        self.recent().remove(id.as_str());
        let shown = row.process.clone();
        self.watch(entered.into_background(), row, unfinished);
        foreground.promoted(&shown);
        Ok(shown)
    }
}

/// What is recorded beside a process that began as a foreground command.
fn promoted_detail(detail: &Value) -> Value {
    let mut detail = detail.clone();
    if let Some(fields) = detail.as_object_mut() {
        fields.insert(PROMOTED.into(), true.into());
    }
    detail
}

/// Whether it was one whose caller has to be told that it goes on in the background.
pub(crate) fn was_promoted(row: &ProcessRow) -> bool {
    row.detail.get(PROMOTED).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns when a command has run for so long. The time in which it waited for its session does not count.
/// `first`: how long it can't have been yet. `started` is told when it begins, if it had to wait.
pub(crate) async fn time_is_up(
    live: &Live,
    id: &ProcessId,
    after: Duration,
    first: Duration,
    started: &Notify,
) {
    let mut left = first;
    loop {
        tokio::time::sleep(left).await;
        left = match live.outpost.status(id.clone()).await {
            Ok(status) => match status.state {
                // That it began may have been said on a line that was dead already: it is asked again then.
                State::Queued => match tokio::time::timeout(after.min(ASKED_AGAIN), started.notified()).await
                {
                    Ok(()) => after,
                    Err(_) => Duration::ZERO,
                },
                State::Running => match after.checked_sub(Duration::from_micros(status.elapsed_us)) {
                    Some(left) if !left.is_zero() => left,
                    _ => return,
                },
                // Whoever follows it is about to hear of that.
                State::Ended(_) | State::Abandoned => after.max(Duration::from_secs(1)),
            },
            // Out of reach, or not there yet.
            Err(_) => Duration::from_secs(1).min(after),
        };
    }
}
