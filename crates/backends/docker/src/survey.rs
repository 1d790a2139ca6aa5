//! What an engine holds of ours: containers and volumes by their labels, and their end.

use crate::engine::{Engine, Volume};
use crate::error::{is_status, refusal};
use crate::layout;
use bollard::query_parameters::{LogsOptions, RemoveContainerOptions, RemoveVolumeOptions};
use farshell_engine::backend::{Found, TaskName};
use farshell_engine::{Error, Kind, Result};
use futures_util::StreamExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::RwLock;
use tokio::time::Instant;

/// How long a container may take to go.
const GO: Duration = Duration::from_secs(60);
/// How much of what an outpost said before its end is shown.
const WORDS: usize = 500;

/// What the id of a volume begins with, to tell it from a container's.
pub(crate) const VOLUME: &str = "volume/";
/// Read by who makes a container. Some engines make its volumes before there is a container that uses them, so nobody
/// removes volumes meanwhile.
pub(crate) static MAKING: RwLock<()> = RwLock::const_new(());

/// All containers of this owner, and volumes of containers that are gone.
pub(crate) async fn all(engine: &Engine, owner: &str) -> Result<Vec<Found>> {
    let listed = engine.labelled(layout::OWNER, owner).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let found = listed.into_iter().map(|container| {
        let label = |name: &str| container.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let name = container.names.first().map(|name| name.trim_start_matches('/').to_owned());
        Found {
            name: name.unwrap_or_else(|| container.id.clone()),
            task: label(layout::TASK).and_then(|task| TaskName::new(&task).ok()),
            owner: owner.to_owned(),
            spec_hash: label(layout::SPEC),
            age: u64::try_from(container.created).ok().map(|at| now.saturating_sub(Duration::from_secs(at))),
            alive: container.state == "running",
            id: container.id,
        }
    });
    let mut found: Vec<Found> = found.collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.extend(left_volumes(engine, owner).await?.into_iter().map(|volume| Found {
        id: format!("{VOLUME}{}", volume.name),
        name: format!("volume {}", volume.name),
        // No container uses it, and none ever will: whatever the task has now is something else.
        task: None,
        owner: owner.to_owned(),
        spec_hash: None,
        age: None,
        alive: false,
    }));
    Ok(found)
}

/// The volumes that containers of this owner had, and that no container uses. Volumes with files that are kept have no
/// task on them, and a name.
async fn left_volumes(engine: &Engine, owner: &str) -> Result<Vec<Volume>> {
    let nameless = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut volumes = engine.unused_volumes(layout::OWNER, owner).await?;
    volumes.retain(|volume| {
        volume.label(layout::OWNER) == Some(owner)
            && volume.label(layout::TASK).is_some()
            && nameless(&volume.name)
    });
    Ok(volumes)
}

/// Removes a volume that a container of this owner had. One that is in use is not removed.
pub(crate) async fn remove_volume(engine: &Engine, owner: &str, name: &str) -> Result<()> {
    let _nobody_makes_any = MAKING.write().await;
    if !left_volumes(engine, owner).await?.iter().any(|volume| volume.name == name) {
        return Ok(());
    }
    match engine.api.remove_volume(name, None::<RemoveVolumeOptions>).await {
        Ok(()) => Ok(()),
        Err(error) if is_status(&error, 404) => Ok(()),
        Err(error) => Err(engine.explain(format!("removing volume {name}"), error)),
    }
}

/// Ends and removes a container. If it is gone already, that is no error.
pub(crate) async fn remove(engine: &Engine, id: &str) -> Result<()> {
    let what = || format!("removing container {}", id.get(..12).unwrap_or(id));
    let deadline = Instant::now() + GO;
    loop {
        let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        match engine.api.remove_container(id, Some(options)).await {
            Ok(()) => return Ok(()),
            Err(error) if is_status(&error, 404) => return Ok(()),
            // Somebody else is at it, or the engine itself.
            Err(error) if is_status(&error, 409) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(30)).await;
                if engine.container(id).await?.is_none() {
                    return Ok(());
                }
            }
            Err(error) => {
                let busy = refusal(&error).is_some_and(|(_, message)| message.contains("busy"));
                if !busy || Instant::now() >= deadline {
                    return Err(engine.explain(what(), error));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits until a container that is being removed is gone.
pub(crate) async fn wait_gone(engine: &Engine, id: &str) -> Result<()> {
    let deadline = Instant::now() + GO;
    while engine.container(id).await?.is_some() {
        if Instant::now() >= deadline {
            let message = "the engine does not come to an end with it";
            return Err(Error::new(
                Kind::TimedOut,
                format!("waiting until container {id} is removed"),
                message,
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What the container's only program said, for the error that its end is.
pub(crate) async fn last_words(engine: &Engine, id: &str) -> String {
    let options = LogsOptions { stdout: true, stderr: true, tail: "5".into(), ..LogsOptions::default() };
    let mut logs = engine.api.logs(id, Some(options));
    let mut said = String::new();
    while let Ok(Some(Ok(piece))) = tokio::time::timeout(Duration::from_secs(2), logs.next()).await {
        said.push_str(&String::from_utf8_lossy(&piece.into_bytes()));
        if said.len() > WORDS {
            break;
        }
    }
    let said: String = said.chars().filter(|c| !c.is_control() || *c == '\n').take(WORDS).collect();
    said.trim().replace('\n', "; ")
}
