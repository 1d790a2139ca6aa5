//! The tables, version by version.

use crate::error::{Error, Kind, Result};
use rusqlite::{Connection, TransactionBehavior};

/// Step `n` makes version `n + 1`. Steps that were released are never changed; new ones are added at the end. A new
/// word in a column (a state, a kind of event) needs a step too, if an empty one: an older release can't read it.
const STEPS: [&str; 1] = ["
    CREATE TABLE environments (
        key TEXT PRIMARY KEY,
        backend TEXT NOT NULL,
        place_task TEXT NOT NULL,
        tasks TEXT NOT NULL,
        state TEXT NOT NULL,
        spec TEXT NOT NULL,
        spec_hash TEXT NOT NULL,
        place TEXT,
        instance TEXT,
        created_at INTEGER NOT NULL,
        last_used_at INTEGER NOT NULL,
        lifetime_seconds INTEGER NOT NULL,
        note TEXT,
        settings TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE processes (
        ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        task TEXT NOT NULL,
        completed INTEGER,
        instance TEXT,
        watch_offset INTEGER NOT NULL,
        watch_state TEXT NOT NULL,
        detail TEXT NOT NULL,
        process TEXT NOT NULL
    ) STRICT;
    CREATE INDEX processes_unfinished ON processes (ordinal) WHERE completed IS NULL;
    CREATE INDEX processes_completed ON processes (completed) WHERE completed IS NOT NULL;
    CREATE INDEX processes_task ON processes (task, ordinal);

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        task TEXT,
        process_id TEXT,
        environment TEXT,
        data TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX events_completion ON events (process_id) WHERE kind = 'process_completed';
    CREATE INDEX events_task ON events (task, seq) WHERE task IS NOT NULL;

    CREATE TABLE consumers (
        name TEXT PRIMARY KEY,
        seq INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
"];

/// The version of this release.
const VERSION: i64 = 1;
const _: () = assert!(VERSION as usize == STEPS.len());

/// Refuses what this release must not touch. Writes nothing.
pub(crate) fn check(connection: &Connection) -> Result<()> {
    let version = version(connection)?;
    if !(0..=VERSION).contains(&version) {
        return Err(Error::new(
            Kind::Newer,
            format!("it is of version {version}, and this release knows only versions up to {VERSION}"),
        )
        .with_hint("use the newer release of farshell that has written it; nothing was changed"));
    }
    let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    if version == 0 && tables > 0 {
        return Err(Error::new(Kind::Invalid, "it is a database, but not one of farshell's")
            .with_hint("move it away; nothing was changed"));
    }
    Ok(())
}

/// Brings the tables to the newest version.
pub(crate) fn migrate(connection: &mut Connection) -> Result<()> {
    let from = version(connection)?;
    if from == VERSION {
        return Ok(());
    }
    // All steps or none.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in STEPS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

fn version(connection: &Connection) -> Result<i64> {
    Ok(connection.query_row("PRAGMA user_version", (), |row| row.get(0))?)
}
