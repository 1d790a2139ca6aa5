//! Background processes.

use crate::error::{Error, Kind, Result};
use crate::events::{self, NewEvent};
use crate::thread::{Store, Write};
use crate::value::{from_json, int, natural, to_json};
use farshell_api::event::EventKind;
use farshell_api::process::{Process, ProcessState};
use farshell_api::run::LogInfo;
use farshell_api::{Millis, Text};
use rusqlite::{Connection, Row, params};
use serde_json::Value;

/// A background process as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// As it was when it was last recorded. Its id is the key.
    pub process: Process,
    /// The outpost that was asked to start it.
    pub instance: Option<String>,
    /// Output up to here was searched for its watch patterns.
    pub watch_offset: u64,
    /// What the watch remembers from one match to the next. Nothing here looks into it.
    pub watch_state: Value,
    /// Whatever else is to be kept. Nothing here looks into it.
    pub detail: Value,
}

/// What became of an attempt to record a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Insert {
    Inserted,
    /// One with this id is recorded. Nothing was changed.
    Exists(Box<ProcessRow>),
}

/// A process runs. What is absent is left as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    pub pid: Option<u32>,
    pub instance: Option<String>,
    pub started_at: Option<Millis>,
}

/// How a process ended. The fields mean what those of [`Process`] mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// One of those that are [`finished`].
    pub state: ProcessState,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub signal_name: Option<String>,
    pub timed_out: bool,
    pub workdir_failed: bool,
    pub killed: u32,
    pub survivors: u32,
    /// As it is recorded if absent.
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    pub duration_ms: u64,
    pub cwd: Option<Text>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub shell_restarted: bool,
    pub state_lost: bool,
    pub output_open: bool,
    /// As it is recorded if absent.
    pub log: Option<LogInfo>,
    pub note: Option<String>,
}

impl Default for Completion {
    fn default() -> Self {
        Self {
            state: ProcessState::Ended,
            exit_code: None,
            signal: None,
            signal_name: None,
            timed_out: false,
            workdir_failed: false,
            killed: 0,
            survivors: 0,
            started_at: None,
            ended_at: None,
            duration_ms: 0,
            cwd: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            shell_restarted: false,
            state_lost: false,
            output_open: false,
            log: None,
            note: None,
        }
    }
}

impl Completion {
    fn apply(self, process: &mut Process) {
        process.state = self.state;
        process.exit_code = self.exit_code;
        process.signal = self.signal;
        process.signal_name = self.signal_name;
        process.timed_out = self.timed_out;
        process.workdir_failed = self.workdir_failed;
        process.killed = self.killed;
        process.survivors = self.survivors;
        process.started_at = self.started_at.or(process.started_at);
        process.ended_at = self.ended_at;
        process.duration_ms = self.duration_ms;
        process.cwd = self.cwd;
        process.stdout_bytes = self.stdout_bytes;
        process.stderr_bytes = self.stderr_bytes;
        process.shell_restarted = self.shell_restarted;
        process.state_lost = self.state_lost;
        process.output_open = self.output_open;
        if let Some(log) = self.log {
            process.log = log;
        }
        process.note = self.note;
        process.waiting_for = None;
    }
}

/// Is this the state of a process that will not change any more?
#[must_use]
pub fn finished(state: ProcessState) -> bool {
    match state {
        ProcessState::Starting | ProcessState::Queued | ProcessState::Running => false,
        ProcessState::Ended | ProcessState::NotStarted | ProcessState::Lost => true,
    }
}

impl Store {
    /// Records a process that is not finished, together with an event. If its id is recorded already, nothing is
    /// changed. An id whose process is no longer kept but whose completion is: [`Kind::AlreadyExists`].
    pub async fn insert_process(&self, row: ProcessRow, event: Option<NewEvent>) -> Result<Insert> {
        self.call("recording a process", move |database| {
            database.write(|write| {
                let process = &row.process;
                if finished(process.state) {
                    return Err(Error::new(Kind::Invalid, "a process can't begin as a finished one"));
                }
                if let Some(known) = find(&write.transaction, &process.id)? {
                    return Ok(Insert::Exists(Box::new(known.row)));
                }
                let used: bool = write
                    .transaction
                    .prepare_cached(
                        "SELECT EXISTS (SELECT 1 FROM events
                         WHERE kind = 'process_completed' AND process_id = ?1)",
                    )?
                    .query_row([&process.id], |row| row.get(0))?;
                if used {
                    let message = format!("the id {} was used by a process that has ended and was forgotten", process.id);
                    return Err(Error::new(Kind::AlreadyExists, message).with_hint("use a new id"));
                }
                write
                    .transaction
                    .prepare_cached(
                        "INSERT INTO processes (id, task, instance, watch_offset, watch_state, detail, process)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    )?
                    .execute(params![
                        process.id,
                        process.task,
                        row.instance,
                        int(row.watch_offset)?,
                        to_json(&row.watch_state)?,
                        to_json(&row.detail)?,
                        to_json(process)?,
                    ])?;
                if let Some(event) = event {
                    events::append(write, &about(event, process))?;
                }
                Ok(Insert::Inserted)
            })
        })
        .await
    }

    /// Records that a process runs, together with an event. False, and no event, if it has finished.
    pub async fn set_running(&self, id: &str, running: Running, event: Option<NewEvent>) -> Result<bool> {
        let id = id.to_owned();
        self.call("recording that a process runs", move |database| {
            database.write(|write| {
                let mut known = found(write, &id)?;
                if known.completed {
                    return Ok(false);
                }
                let process = &mut known.row.process;
                process.state = ProcessState::Running;
                process.pid = running.pid.or(process.pid);
                process.started_at = running.started_at.or(process.started_at);
                write
                    .transaction
                    .prepare_cached("UPDATE processes SET process = ?2, instance = ?3 WHERE id = ?1")?
                    .execute(params![id, to_json(process)?, running.instance.or(known.row.instance)])?;
                if let Some(event) = event {
                    events::append(write, &about(event, process))?;
                }
                Ok(true)
            })
        })
        .await
    }

    /// Records how a process ended, together with its one [`EventKind::ProcessCompleted`]. False, and nothing
    /// changed, if that was recorded before.
    pub async fn complete(&self, id: &str, completion: Completion, event: NewEvent) -> Result<bool> {
        let id = id.to_owned();
        self.call("recording the end of a process", move |database| {
            database.write(|write| {
                if !finished(completion.state) {
                    return Err(Error::new(Kind::Invalid, "a completed process must be in a final state"));
                }
                if event.kind != EventKind::ProcessCompleted {
                    return Err(Error::new(Kind::Invalid, "a completion needs an event that says so"));
                }
                let mut known = found(write, &id)?;
                if known.completed {
                    return Ok(false);
                }
                let process = &mut known.row.process;
                completion.apply(process);
                let event = NewEvent { process_id: Some(id.clone()), ..event };
                let seq = events::insert(write, &about(event, process))?;
                write
                    .transaction
                    .prepare_cached("UPDATE processes SET process = ?2, completed = ?3 WHERE id = ?1")?
                    .execute(params![id, to_json(process)?, int(seq)?])?;
                write.finished_process();
                Ok(true)
            })
        })
        .await
    }

    /// Records how far a process's output was searched, together with what was found. False, and nothing changed, if
    /// it was searched further already.
    pub async fn set_watch(
        &self,
        id: &str,
        offset: u64,
        state: Value,
        events: Vec<NewEvent>,
    ) -> Result<bool> {
        let id = id.to_owned();
        self.call("recording what a watch found", move |database| {
            database.write(|write| {
                let known = found(write, &id)?;
                if offset < known.row.watch_offset {
                    return Ok(false);
                }
                write
                    .transaction
                    .prepare_cached("UPDATE processes SET watch_offset = ?2, watch_state = ?3 WHERE id = ?1")?
                    .execute(params![id, int(offset)?, to_json(&state)?])?;
                for event in events {
                    events::append(write, &about(event, &known.row.process))?;
                }
                Ok(true)
            })
        })
        .await
    }

    pub async fn process(&self, id: &str) -> Result<Option<ProcessRow>> {
        let id = id.to_owned();
        self.call("reading a process", move |database| Ok(find(database.read(), &id)?.map(|known| known.row)))
            .await
    }

    /// Those that are not finished, or with `all` all that are kept; of one task, or of every one. Oldest first.
    pub async fn processes(&self, task: Option<&str>, all: bool) -> Result<Vec<ProcessRow>> {
        let task = task.map(str::to_owned);
        self.call("reading processes", move |database| {
            let mut statement = database.read().prepare_cached(match (&task, all) {
                (None, true) => "SELECT * FROM processes WHERE ?1 IS NULL ORDER BY ordinal",
                (None, false) => {
                    "SELECT * FROM processes WHERE completed IS NULL AND ?1 IS NULL ORDER BY ordinal"
                }
                (Some(_), true) => "SELECT * FROM processes WHERE task = ?1 ORDER BY ordinal",
                (Some(_), false) => {
                    "SELECT * FROM processes WHERE completed IS NULL AND task = ?1 ORDER BY ordinal"
                }
            })?;
            let mut rows = statement.query([task])?;
            let mut processes = Vec::new();
            while let Some(row) = rows.next()? {
                processes.push(known(row)?.row);
            }
            Ok(processes)
        })
        .await
    }

    /// Those that are not finished, of every task. Oldest first.
    pub async fn unfinished(&self) -> Result<Vec<ProcessRow>> {
        self.processes(None, false).await
    }

    /// Forgets a finished process; its events stay. False if there is none.
    pub async fn forget(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.call("forgetting a process", move |database| {
            database.write(|write| match find(&write.transaction, &id)? {
                None => Ok(false),
                Some(known) if !known.completed => {
                    Err(Error::new(Kind::Invalid, format!("the process {id} has not finished")))
                }
                Some(_) => {
                    write.transaction.prepare_cached("DELETE FROM processes WHERE id = ?1")?.execute([id])?;
                    Ok(true)
                }
            })
        })
        .await
    }
}

struct Known {
    row: ProcessRow,
    completed: bool,
}

fn find(connection: &Connection, id: &str) -> Result<Option<Known>> {
    let mut statement = connection.prepare_cached("SELECT * FROM processes WHERE id = ?1")?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(known).transpose()
}

fn found(write: &Write<'_>, id: &str) -> Result<Known> {
    find(&write.transaction, id)?
        .ok_or_else(|| Error::new(Kind::NotFound, format!("no process with the id {id} is recorded")))
}

fn known(row: &Row<'_>) -> Result<Known> {
    Ok(Known {
        completed: row.get::<_, Option<i64>>("completed")?.is_some(),
        row: ProcessRow {
            process: from_json(&row.get::<_, String>("process")?)?,
            instance: row.get("instance")?,
            watch_offset: natural(row.get("watch_offset")?)?,
            watch_state: from_json(&row.get::<_, String>("watch_state")?)?,
            detail: from_json(&row.get::<_, String>("detail")?)?,
        },
    })
}

/// The event, saying which process it is about.
fn about(event: NewEvent, process: &Process) -> NewEvent {
    NewEvent {
        task: event.task.or_else(|| Some(process.task.clone())),
        process_id: event.process_id.or_else(|| Some(process.id.clone())),
        environment: event.environment.or_else(|| Some(process.environment.clone())),
        ..event
    }
}

/// Deletes all finished ones but the `keep` that finished last, and says how many that were.
pub(crate) fn prune(connection: &Connection, keep: u64) -> Result<u64> {
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    let deleted = connection
        .prepare_cached(
            "DELETE FROM processes WHERE completed <= (SELECT completed FROM processes
             WHERE completed IS NOT NULL ORDER BY completed DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([keep])?;
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}
