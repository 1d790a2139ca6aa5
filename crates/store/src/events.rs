//! The log of what happened, and who has seen how much of it.

use crate::error::{Error, Kind, Result};
use crate::thread::{Store, Write};
use crate::value::{from_json, from_word, int, natural, to_json, to_word};
use farshell_api::Millis;
use farshell_api::event::{Event, EventKind, EventList};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

/// The longest name of a consumer.
const LONGEST_NAME: usize = 64;

/// So many consumers are remembered; then the one that is furthest behind is forgotten.
const CONSUMERS: u32 = 1_000;

/// Numbers that are left out when the newest changes were lost: more events than could be among them.
const SKIPPED: u64 = 1_000_000;

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub at: Millis,
    pub kind: EventKind,
    pub task: Option<String>,
    pub process_id: Option<String>,
    pub environment: Option<String>,
    pub data: Value,
}

impl NewEvent {
    /// An event that is about nothing yet.
    #[must_use]
    pub fn new(kind: EventKind, at: Millis) -> Self {
        Self { at, kind, task: None, process_id: None, environment: None, data: Value::Null }
    }
}

impl Store {
    /// Adds an event and gives its number. [`EventKind::ProcessCompleted`] is refused: that comes with
    /// [`Store::complete`].
    pub async fn append(&self, event: NewEvent) -> Result<u64> {
        self.call("recording an event", move |database| database.write(|write| append(write, &event))).await
    }

    /// At most `limit` events after the number `after`, oldest first; with `task`, those of this task only.
    pub async fn events(&self, after: u64, limit: u32, task: Option<&str>) -> Result<EventList> {
        let task = task.map(str::to_owned);
        self.call("reading events", move |database| {
            let connection = database.read();
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(match task {
                None => "SELECT * FROM events WHERE seq > ?1 AND ?3 IS NULL ORDER BY seq LIMIT ?2",
                Some(_) => "SELECT * FROM events WHERE seq > ?1 AND task = ?3 ORDER BY seq LIMIT ?2",
            })?;
            let mut rows = statement.query(params![after, limit, task])?;
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                events.push(event(row)?);
            }
            let last = last(connection)?;
            let first: Option<i64> =
                connection.query_row("SELECT min(seq) FROM events", (), |row| row.get(0))?;
            let pruned = first.map_or(Ok(last), |first| natural(first - 1))?;
            Ok(EventList { events, last, pruned })
        })
        .await
    }

    /// This consumer has seen everything up to `seq`. That never goes back; the answer is how far it is now.
    pub async fn ack(&self, consumer: &str, seq: u64) -> Result<u64> {
        const OPERATION: &str = "acknowledging events";
        let name = checked(consumer).map_err(|error| error.during(OPERATION))?;
        self.call(OPERATION, move |database| {
            database.write(|write| {
                let transaction = &write.transaction;
                let last = last(transaction)?;
                if seq > last {
                    let message = format!("event {seq} does not exist; the newest one is {last}");
                    return Err(Error::new(Kind::Invalid, message));
                }
                let seq: i64 = transaction
                    .prepare_cached(
                        "INSERT INTO consumers (name, seq) VALUES (?1, ?2)
                         ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq) RETURNING seq",
                    )?
                    .query_row(params![name, int(seq)?], |row| row.get(0))?;
                let count: u32 = transaction
                    .prepare_cached("SELECT count(*) FROM consumers")?
                    .query_row((), |row| row.get(0))?;
                if count > CONSUMERS {
                    transaction.execute(
                        "DELETE FROM consumers WHERE name =
                         (SELECT name FROM consumers WHERE name <> ?1 ORDER BY seq LIMIT 1)",
                        [&name],
                    )?;
                }
                natural(seq)
            })
        })
        .await
    }

    /// How far this consumer is; 0 if it never acknowledged anything.
    pub async fn acked(&self, consumer: &str) -> Result<u64> {
        const OPERATION: &str = "reading what was acknowledged";
        let name = checked(consumer).map_err(|error| error.during(OPERATION))?;
        self.call(OPERATION, move |database| {
            let seq = database
                .read()
                .prepare_cached("SELECT seq FROM consumers WHERE name = ?1")?
                .query_row([name], |row| row.get(0))
                .optional()?;
            seq.map_or(Ok(0), natural)
        })
        .await
    }
}

fn checked(consumer: &str) -> Result<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if consumer.is_empty() || consumer.len() > LONGEST_NAME || !consumer.bytes().all(allowed) {
        return Err(Error::new(Kind::Invalid, format!("{consumer:?} can't be the name of a consumer"))
            .with_hint(format!("use 1 to {LONGEST_NAME} of the characters A-Z a-z 0-9 . _ -")));
    }
    Ok(consumer.into())
}

/// Adds an event of any kind but a completion.
pub(crate) fn append(write: &mut Write<'_>, event: &NewEvent) -> Result<u64> {
    if event.kind == EventKind::ProcessCompleted {
        return Err(Error::new(Kind::Invalid, "a completion is recorded with its process, not by itself"));
    }
    insert(write, event)
}

/// Adds an event.
pub(crate) fn insert(write: &mut Write<'_>, event: &NewEvent) -> Result<u64> {
    let seq: i64 = write
        .transaction
        .prepare_cached(
            "INSERT INTO events (at, kind, task, process_id, environment, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING seq",
        )?
        .query_row(
            params![
                int(event.at)?,
                to_word(&event.kind)?,
                event.task,
                event.process_id,
                event.environment,
                to_json(&event.data)?
            ],
            |row| row.get(0),
        )?;
    let seq = natural(seq)?;
    write.added_event(seq);
    Ok(seq)
}

fn event(row: &Row<'_>) -> Result<Event> {
    Ok(Event {
        seq: natural(row.get("seq")?)?,
        at: natural(row.get("at")?)?,
        kind: from_word(row.get("kind")?)?,
        task: row.get("task")?,
        process_id: row.get("process_id")?,
        environment: row.get("environment")?,
        data: from_json(&row.get::<_, String>("data")?)?,
    })
}

/// The newest number that was ever given.
pub(crate) fn last(connection: &Connection) -> Result<u64> {
    let last = connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?
        .query_row((), |row| row.get(0))
        .optional()?;
    last.map_or(Ok(0), natural)
}

/// Goes on with numbers that no event had which is lost now: a reader who has seen it would miss the new one. `above`
/// is the time in milliseconds if all events are lost; nobody has that many.
pub(crate) fn skip_numbers(connection: &Connection, above: u64) -> Result<()> {
    let next = int(above.max(last(connection)? + SKIPPED))?;
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'events'", ())?;
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)", [next])?;
    Ok(())
}

/// Deletes all but the newest `keep`, and says how many that were.
pub(crate) fn prune(connection: &Connection, keep: u64) -> Result<u64> {
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    let deleted = connection
        .prepare_cached(
            "DELETE FROM events WHERE seq <= (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([keep])?;
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}
