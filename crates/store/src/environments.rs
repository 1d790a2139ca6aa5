//! Environments.

use crate::error::Result;
use crate::events::{self, NewEvent};
use crate::thread::Store;
use crate::value::{from_json, from_word, int, natural, to_json, to_word};
use farshell_api::Millis;
use farshell_api::environment::EnvironmentState;
use farshell_api::run::Place;
use rusqlite::{Row, params};
use serde_json::Value;
use std::collections::BTreeMap;

/// An environment as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentRow {
    /// `<backend>/<task>`.
    pub key: String,
    pub backend: String,
    /// The task that the place is of.
    pub place_task: String,
    /// Those that use it.
    pub tasks: Vec<String>,
    pub state: EnvironmentState,
    /// What the place was made with, for people and for showing a difference.
    pub spec: BTreeMap<String, String>,
    pub spec_hash: String,
    /// Absent until it is made.
    pub place: Option<Place>,
    /// The outpost that serves it.
    pub instance: Option<String>,
    pub created_at: Millis,
    pub last_used_at: Millis,
    pub lifetime_seconds: u64,
    pub note: Option<String>,
    /// What opens the backend again after a restart. Nothing here looks into it.
    pub settings: Value,
}

impl Store {
    /// Records an environment, in place of what was recorded for its key, together with an event.
    pub async fn put_environment(&self, row: EnvironmentRow, event: Option<NewEvent>) -> Result<()> {
        self.call("recording an environment", move |database| {
            database.write(|write| {
                write
                    .transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO environments
                         (key, backend, place_task, tasks, state, spec, spec_hash, place, instance, created_at,
                          last_used_at, lifetime_seconds, note, settings)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                    )?
                    .execute(params![
                        row.key,
                        row.backend,
                        row.place_task,
                        to_json(&row.tasks)?,
                        to_word(&row.state)?,
                        to_json(&row.spec)?,
                        row.spec_hash,
                        row.place.as_ref().map(to_json).transpose()?,
                        row.instance,
                        int(row.created_at)?,
                        int(row.last_used_at)?,
                        int(row.lifetime_seconds)?,
                        row.note,
                        to_json(&row.settings)?,
                    ])?;
                event.iter().try_for_each(|event| events::append(write, event).map(drop))
            })
        })
        .await
    }

    pub async fn environment(&self, key: &str) -> Result<Option<EnvironmentRow>> {
        let key = key.to_owned();
        self.call("reading an environment", move |database| {
            let mut statement =
                database.read().prepare_cached("SELECT * FROM environments WHERE key = ?1")?;
            let mut rows = statement.query([key])?;
            rows.next()?.map(environment).transpose()
        })
        .await
    }

    /// All, by key.
    pub async fn environments(&self) -> Result<Vec<EnvironmentRow>> {
        self.call("reading environments", |database| {
            let mut statement = database.read().prepare_cached("SELECT * FROM environments ORDER BY key")?;
            let mut rows = statement.query(())?;
            let mut environments = Vec::new();
            while let Some(row) = rows.next()? {
                environments.push(environment(row)?);
            }
            Ok(environments)
        })
        .await
    }

    /// Forgets an environment, together with an event. False, and no event, if there was none.
    pub async fn remove_environment(&self, key: &str, event: Option<NewEvent>) -> Result<bool> {
        let key = key.to_owned();
        self.call("removing the record of an environment", move |database| {
            database.write(|write| {
                let removed = write
                    .transaction
                    .prepare_cached("DELETE FROM environments WHERE key = ?1")?
                    .execute([key])?;
                if removed == 0 {
                    return Ok(false);
                }
                event.iter().try_for_each(|event| events::append(write, event).map(drop))?;
                Ok(true)
            })
        })
        .await
    }

    /// Records when it was last used. False if there is none.
    pub async fn touch(&self, key: &str, last_used_at: Millis) -> Result<bool> {
        let key = key.to_owned();
        self.call("recording the use of an environment", move |database| {
            database.write(|write| {
                let changed = write
                    .transaction
                    .prepare_cached("UPDATE environments SET last_used_at = ?2 WHERE key = ?1")?
                    .execute(params![key, int(last_used_at)?])?;
                Ok(changed > 0)
            })
        })
        .await
    }
}

fn environment(row: &Row<'_>) -> Result<EnvironmentRow> {
    Ok(EnvironmentRow {
        key: row.get("key")?,
        backend: row.get("backend")?,
        place_task: row.get("place_task")?,
        tasks: from_json(&row.get::<_, String>("tasks")?)?,
        state: from_word(row.get("state")?)?,
        spec: from_json(&row.get::<_, String>("spec")?)?,
        spec_hash: row.get("spec_hash")?,
        place: row.get::<_, Option<String>>("place")?.as_deref().map(from_json).transpose()?,
        instance: row.get("instance")?,
        created_at: natural(row.get("created_at")?)?,
        last_used_at: natural(row.get("last_used_at")?)?,
        lifetime_seconds: natural(row.get("lifetime_seconds")?)?,
        note: row.get("note")?,
        settings: from_json(&row.get::<_, String>("settings")?)?,
    })
}
