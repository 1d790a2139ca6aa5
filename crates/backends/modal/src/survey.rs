//! What an account holds of ours: sandboxes that run, by their tags, and those that are put away, by our own record.

use crate::account::Account;
use crate::error::explain;
use crate::tags::{self, Keeps};
use farshell_engine::backend::{Found, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How the name of one that is put away begins.
const ASLEEP: &str = "asleep:";

/// Everything of this owner. Each is looked at again before it is removed.
pub(crate) async fn all(account: &Account) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wanted = BTreeMap::from([(tags::OWNER.to_owned(), account.owner.clone())]);
    let listed =
        match account.client.find_app(tags::APP).await.map_err(|e| explain("listing sandboxes", e))? {
            Some(app) => account
                .client
                .list(&app, &wanted, false)
                .await
                .map_err(|e| explain("listing sandboxes", e))?,
            None => Vec::new(),
        };
    for sandbox in listed {
        if sandbox.finished || sandbox.tags.get(tags::OWNER) != Some(&account.owner) {
            continue;
        }
        let made = Duration::try_from_secs_f64(sandbox.created_at).unwrap_or_default();
        found.push(Found {
            name: sandbox.name,
            task: sandbox.tags.get(tags::TASK).and_then(|task| TaskName::new(task).ok()),
            owner: account.owner.clone(),
            spec_hash: sandbox.tags.get(tags::SPEC).cloned(),
            age: Some(now.saturating_sub(made)),
            alive: true,
            id: sandbox.id,
        });
    }
    for task in account.records.tasks() {
        if found.iter().any(|one| one.task.as_ref() == Some(&task)) {
            continue;
        }
        let Some(state) = account.records.get(&task)?.filter(|state| !state.is_empty()) else { continue };
        found.push(Found {
            name: account.name(&task),
            id: format!("{ASLEEP}{task}"),
            owner: account.owner.clone(),
            spec_hash: Some(state.spec).filter(|spec| !spec.is_empty()),
            age: Some(now.saturating_sub(Duration::from_secs(state.since))).filter(|_| state.since > 0),
            alive: false,
            task: Some(task),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Ends one of them. Files that were to be kept are put away, and not deleted: nobody has others.
pub(crate) async fn remove(account: &Account, found: &Found) -> Result<()> {
    let what = || format!("removing {}", found.name);
    if let Some(task) = found.id.strip_prefix(ASLEEP) {
        let task = TaskName::new(task).map_err(|e| Error::new(Kind::Invalid, what(), e.to_string()))?;
        return remove_asleep(account, &task, what).await;
    }
    // Looked at again: an id that was made up must not cost anybody a sandbox.
    let tags = match account.client.tags(&found.id).await {
        Ok(tags) => tags,
        Err(error) if error.code() == Some(crate::client::Code::NotFound) => return Ok(()),
        Err(error) => return Err(explain(what(), error)),
    };
    if tags.get(tags::OWNER) != Some(&account.owner) {
        return Err(Error::new(Kind::NotFound, what(), "the sandbox is not of this home"));
    }
    match tags.get(tags::TASK).and_then(|task| TaskName::new(task).ok()) {
        // If it is not the task's own, that one stays.
        Some(task) if account.running_and_known(&task).await?.is_none_or(|id| id == found.id) => {
            let removing = account.state(&task).await?.is_some_and(|state| state.removing);
            match Keeps::of(&tags) {
                Keeps::Files if !removing => account.put_away(&task, &found.id).await,
                _ => account.destroy(&task, Some(&found.id)).await,
            }
        }
        _ => account.end(&found.id).await,
    }
}

/// Removes what is left of one that is put away, unless that is its files.
async fn remove_asleep(account: &Account, task: &TaskName, what: impl Fn() -> String) -> Result<()> {
    let _alone = account.records.lock(task).await?;
    let Some(state) = account.state(task).await? else { return Ok(()) };
    let kept = state.keeps == Keeps::Files && !state.removing;
    // It may have been made again meanwhile.
    if kept && (!state.is_empty() || account.running(task).await?.is_some()) {
        let message = format!("it has the only files of task {task}");
        return Err(Error::new(Kind::Denied, what(), message)
            .with_hint(format!("`farshell env rm --files modal/{task}` deletes it with them")));
    }
    account.remove_all(task, None).await
}
