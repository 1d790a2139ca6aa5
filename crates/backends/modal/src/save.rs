//! Sandboxes are put away, and removed.

use crate::account::{Account, Found};
use crate::client::{ExitSnapshot, Router, SNAPSHOT, key};
use crate::error::explain;
use crate::state::{State, Taken};
use crate::tags::Keeps;
use farshell_engine::backend::TaskName;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;
use tokio::time::Instant;

/// How long putting one away may take: a snapshot of somebody who died, one of ours, its end, and what is cleaned up after.
pub(crate) const PUT_AWAY: Duration =
    SNAPSHOT.saturating_mul(2).saturating_add(GO).saturating_add(SPARE).saturating_add(GO);
/// How long a sandbox may take to end.
const GO: Duration = Duration::from_secs(120);
/// How long Modal may take for the snapshot that it takes of every sandbox that ends, and that nobody needs.
const SPARE: Duration = Duration::from_secs(20);

impl Account {
    /// Takes a snapshot of the task's sandbox and ends it. If it has ended already, what Modal saved of it is recorded.
    pub(crate) async fn put_away(&self, task: &TaskName, id: &str) -> Result<()> {
        let _alone = self.records.lock(task).await?;
        let known = self.state(task).await?.and_then(|state| state.sandbox);
        // Another one has taken its place.
        if known.is_some_and(|known| known != id) {
            return Ok(());
        }
        let Some(mut state) = self.adopt(task, id).await? else { return Ok(()) };
        if state.keeps == Keeps::Nothing {
            return self.remove_all(task, Some(id)).await;
        }
        if self.look(id).await? != Found::Runs {
            return self.note_saved(task, &mut state, id).await;
        }
        let image = match self.snapshot(task, &mut state, id).await {
            Ok(image) => image,
            Err(error) => {
                // It may have ended in between.
                if !matches!(self.look(id).await?, Found::Runs) {
                    return self.note_saved(task, &mut state, id).await;
                }
                return Err(error);
            }
        };
        state.prove();
        self.record(task, &mut state, &image, Taken::ByUs).await?;
        self.end(id).await?;
        self.put_away_wholly(task, &mut state).await
    }

    /// A sandbox of which there is a snapshot has ended: what Modal saved of it besides is deleted.
    async fn put_away_wholly(&self, task: &TaskName, state: &mut State) -> Result<()> {
        let (Some(id), Some(image)) = (state.sandbox.clone(), state.saved.clone()) else { return Ok(()) };
        self.forget_spare(task, state, &id, Some(&image)).await;
        state.sandbox = None;
        self.records.put(task, state)
    }

    /// Takes a snapshot that is known to be ours, whoever dies on the way.
    async fn snapshot(&self, task: &TaskName, state: &mut State, id: &str) -> Result<String> {
        let failed = |error| {
            explain("taking a snapshot of the sandbox", error)
                .with_hint("the sandbox runs on; Modal ends it when nothing runs in it, and keeps its files")
        };
        let router = Router::find(&self.client, id).await.map_err(failed)?;
        if let Some(name) = state.taking.take() {
            // Of somebody who died: it is older than what is in the sandbox now, and must not be left for ever.
            let old = router.snapshot_named(&name).await.map_err(failed)?;
            state.owns(&old);
        }
        let name = key();
        state.taking = Some(name.clone());
        self.records.put(task, state)?;
        router.snapshot_named(&name).await.map_err(failed)
    }

    /// Writes down that this snapshot has everything of the sandbox. The last from which a sandbox came up is kept until one
    /// came up from this; others are deleted.
    pub(crate) async fn record(
        &self,
        task: &TaskName,
        state: &mut State,
        image: &str,
        taken: Taken,
    ) -> Result<()> {
        state.owns(image);
        state.taking = None;
        self.records.put(task, state)?;
        self.snapshots.set(task, Some(image)).await?;
        state.base = Some(image.to_owned());
        state.saved = Some(image.to_owned());
        state.taken = taken;
        self.records.put(task, state)?;
        self.forget_older(task, state).await
    }

    /// Deletes what is neither the last snapshot nor one that is known to work.
    async fn forget_older(&self, task: &TaskName, state: &mut State) -> Result<()> {
        let needed = |id: &String| state.last() == Some(id) || state.proven.as_ref() == Some(id);
        let older: Vec<String> = state.ours.iter().filter(|id| !needed(id)).cloned().collect();
        for old in older {
            self.forget_image(task, state, &old).await;
        }
        self.records.put(task, state)
    }

    /// Somebody is connected to the sandbox: what it was made from can be restored, and those before are not needed. If
    /// somebody else is at it now, that stays to be noted.
    pub(crate) async fn came_up(&self, task: &TaskName, id: &str) -> Result<()> {
        let Some(_alone) = self.records.try_lock(task).await else { return Ok(()) };
        let Some(mut state) = self.records.get(task)? else { return Ok(()) };
        if state.sandbox.as_deref() != Some(id) || state.removing || !state.prove() {
            return Ok(());
        }
        self.records.put(task, &state)?;
        self.forget_older(task, &mut state).await
    }

    /// Deletes a snapshot that was taken for this task, and that nobody needs any more. Whatever else there is, Hermes' own
    /// or somebody's image, is not touched. If it can't be deleted, it costs a little storage.
    async fn forget_image(&self, task: &TaskName, state: &mut State, id: &str) {
        let source = state.image.as_deref() == Some(id) || id == self.config.settings.image;
        if source || !state.ours.iter().any(|ours| ours == id) {
            return;
        }
        // What can't be read may name it.
        let used = |other: &TaskName| match self.records.get(other) {
            Ok(other) => other.is_some_and(|other| other.uses(id)),
            Err(_) => true,
        };
        let others = self.records.tasks().into_iter().filter(|other| other != task).any(|other| used(&other));
        if others || self.snapshots.of_others(task, id).await.unwrap_or(true) {
            return;
        }
        if self.client.delete_image(id).await.is_ok() {
            state.ours.retain(|ours| ours != id);
        }
    }

    /// Records what Modal has saved of a sandbox that ended by itself. If that can't be had now, whoever brings the sandbox
    /// back looks for it, and is told if there is nothing.
    async fn note_saved(&self, task: &TaskName, state: &mut State, id: &str) -> Result<()> {
        if let Ok(ExitSnapshot::Image(image)) = self.client.exit_snapshot(id, SPARE).await
            && state.saved.as_ref() != Some(&image)
            && let Ok(true) = self.client.has_image(&image).await
        {
            self.record(task, state, &image, Taken::AtItsEnd).await?;
        }
        Ok(())
    }

    /// Ends the task's sandbox, and deletes all of its files.
    pub(crate) async fn destroy(&self, task: &TaskName, id: Option<&str>) -> Result<()> {
        let _alone = self.records.lock(task).await?;
        self.remove_all(task, id).await
    }

    pub(crate) async fn remove_all(&self, task: &TaskName, id: Option<&str>) -> Result<()> {
        let known = self.state(task).await?;
        if let Some(state) = &known {
            // Whoever dies in the middle of it leaves that to the next.
            self.records.put(task, &State { removing: true, ..state.clone() })?;
        }
        let recorded = known.is_some();
        let mut state = State { removing: true, ..known.unwrap_or_default() };
        let mut all: Vec<String> = id.map(str::to_owned).into_iter().chain(state.sandbox.clone()).collect();
        if let Some(named) = self.running(task).await?
            && !all.contains(&named)
            && self.is_ours(&named).await?
        {
            all.push(named);
        }
        all.sort();
        all.dedup();
        for id in &all {
            self.end(id).await?;
        }
        for id in &all {
            self.forget_spare(task, &mut state, id, None).await;
        }
        // What was not to be kept has no part in the record of snapshots.
        if state.keeps == Keeps::Files && (recorded || !all.is_empty()) {
            self.snapshots.set(task, None).await?;
        }
        for image in state.ours.clone() {
            self.forget_image(task, &mut state, &image).await;
        }
        self.records.remove(task)
    }

    /// Ends a sandbox, and waits until nothing runs in it any more.
    pub(crate) async fn end(&self, id: &str) -> Result<()> {
        let what = "ending the sandbox";
        self.client.terminate(id).await.map_err(|e| explain(what, e))?;
        let deadline = Instant::now() + GO;
        loop {
            match self.wait(id, Duration::from_secs(10)).await {
                Ok(Found::Runs) => {}
                Ok(Found::Ended(_) | Found::Unknown) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
            if Instant::now() >= deadline {
                let message = format!("sandbox {id} was told to end, and runs still");
                return Err(Error::new(Kind::TimedOut, what, message));
            }
        }
    }

    /// Deletes what Modal saved of a sandbox that ended, unless it is what is kept. If that can't be done soon, it costs a
    /// little storage.
    pub(crate) async fn forget_spare(
        &self,
        task: &TaskName,
        state: &mut State,
        id: &str,
        kept: Option<&str>,
    ) {
        let deadline = Instant::now() + SPARE;
        while Instant::now() < deadline {
            match self.client.exit_snapshot(id, Duration::from_secs(5)).await {
                Ok(ExitSnapshot::Image(image)) => {
                    // One that is what the sandbox was made from is not only its own.
                    if Some(image.as_str()) != kept && state.image.as_ref() != Some(&image) {
                        state.owns(&image);
                        let _ = self.records.put(task, state);
                        self.forget_image(task, state, &image).await;
                        let _ = self.records.put(task, state);
                    }
                    return;
                }
                Ok(ExitSnapshot::Pending) => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(ExitSnapshot::None(_)) | Err(_) => return,
            }
        }
    }
}
