//! What a home holds of ours: instances that run, that have ended, and that were killed.

use crate::config::Config;
use crate::layout::{self, Layout};
use crate::place::{SingularityPlace, destroy};
use crate::slurm;
use crate::state::State;
use farshell_engine::backend::{Found, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All instances of this home that this machine can know of.
pub(crate) async fn all(config: &Config) -> Result<Vec<Found>> {
    let dir = layout::all(config);
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("looking through {}", dir.display()), error)),
    };
    let owner = layout::owner(config);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut found = Vec::new();
    let mut states = Vec::new();
    for entry in entries.flatten() {
        let Ok(Some(state)) = State::read(&entry.path()) else { continue };
        // What another machine uses at this moment is not to be seen from here.
        if state.elsewhere().is_some() || state.owner != owner {
            continue;
        }
        found.push(Found {
            name: entry.file_name().to_string_lossy().into_owned(),
            task: TaskName::new(&state.task).ok(),
            spec_hash: Some(state.spec.clone()),
            age: Some(now.saturating_sub(Duration::from_secs(state.made))),
            alive: state.alive(),
            owner: state.owner.clone(),
            id: state.id.clone(),
        });
        states.push(state);
    }
    for (found, job) in found.iter_mut().zip(slurm::living(config, &states).await) {
        found.alive |= job;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Ends and removes one of them. If it is gone already, that is no error.
pub(crate) async fn remove(config: &Config, found: &Found) -> Result<()> {
    let task = found.task.as_ref().ok_or_else(|| {
        Error::new(Kind::NotFound, format!("removing {}", found.name), "it is not the instance of a task")
    })?;
    // Made anew from the task: a name that was made up must not lead anywhere.
    let layout = Layout::new(config, task)?;
    if layout.name != found.name {
        let message = "the instance is not of this home";
        return Err(Error::new(Kind::NotFound, format!("removing {}", found.name), message));
    }
    let lock = SingularityPlace::lock(&layout).await?;
    match State::read(&layout.private)? {
        Some(state) if state.id == found.id => destroy(config, &layout, state, lock).await,
        Some(_) => Ok(()),
        None => {
            lock.remove();
            Ok(())
        }
    }
}
