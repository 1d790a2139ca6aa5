//! Sandboxes are put away, and removed.

use crate::account::{Account, Found};
use crate::client::{ExitSnapshot, Router};
use crate::error::explain;
use crate::state::State;
use farshell_engine::backend::TaskName;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;
use tokio::time::Instant;

/// How long a sandbox may take to end.
const GO: Duration = Duration::from_secs(120);
/// How long Modal may take for the snapshot that it takes of every sandbox that ends, and that nobody needs.
const SPARE: Duration = Duration::from_secs(20);

impl Account {
    /// Takes a snapshot of the task's sandbox and ends it. If it has ended already, what Modal saved of it is recorded.
    pub(crate) async fn put_away(&self, task: &TaskName, id: &str) -> Result<()> {
        let _alone = self.records.lock(task).await?;
        if !self.config.persistent() {
            return self.remove_all(task, Some(id)).await;
        }
        let Some(mut state) = self.records.get(task)? else { return Ok(()) };
        // Another one has taken its place.
        if state.sandbox.as_deref() != Some(id) {
            return Ok(());
        }
        if self.look(id).await? != Found::Runs {
            return self.note_saved(task, &mut state, id).await;
        }
        let what = "taking a snapshot of the sandbox";
        let image = async { Router::find(&self.client, id).await?.snapshot().await };
        let image = match image.await {
            Ok(image) => image,
            // It may have ended in between.
            Err(_) if !matches!(self.look(id).await, Ok(Found::Runs)) => {
                return self.note_saved(task, &mut state, id).await;
            }
            Err(error) => {
                return Err(explain(what, error).with_hint(
                    "the sandbox runs on; Modal ends it when nothing runs in it, and keeps its files",
                ));
            }
        };
        self.record(task, &mut state, &image).await?;
        self.end(id).await?;
        self.forget_spare(id, Some(&image)).await;
        Ok(())
    }

    /// Records what Modal has saved of a sandbox that ended by itself. If that can't be had now, whoever brings the sandbox
    /// back looks for it, and is told if there is nothing.
    async fn note_saved(&self, task: &TaskName, state: &mut State, id: &str) -> Result<()> {
        if state.saved.is_none()
            && let Ok(ExitSnapshot::Image(image)) = self.client.exit_snapshot(id, SPARE).await
            && let Ok(true) = self.client.has_image(&image).await
        {
            self.record(task, state, &image).await?;
        }
        Ok(())
    }

    /// Ends the task's sandbox, and deletes all of its files.
    pub(crate) async fn destroy(&self, task: &TaskName, id: Option<&str>) -> Result<()> {
        let _alone = self.records.lock(task).await?;
        self.remove_all(task, id).await
    }

    pub(crate) async fn remove_all(&self, task: &TaskName, id: Option<&str>) -> Result<()> {
        let known = self.records.get(task)?;
        if let Some(state) = &known {
            // Whoever dies in the middle of it leaves that to the next.
            self.records.put(task, &State { removing: true, ..state.clone() })?;
        }
        let state = known.unwrap_or_default();
        let mut all: Vec<String> = id.map(str::to_owned).into_iter().chain(state.sandbox.clone()).collect();
        all.extend(self.running(task).await?);
        all.sort();
        all.dedup();
        for id in &all {
            self.end(id).await?;
        }
        if self.config.persistent() {
            for id in &all {
                self.forget_spare(id, None).await;
            }
            let before = self.snapshots.set(task, None).await?;
            let mut images: Vec<String> = before.into_iter().chain(state.base).chain(state.saved).collect();
            images.sort();
            images.dedup();
            for image in images {
                self.forget_image(&image).await;
            }
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
    async fn forget_spare(&self, id: &str, kept: Option<&str>) {
        let deadline = Instant::now() + SPARE;
        while Instant::now() < deadline {
            match self.client.exit_snapshot(id, Duration::from_secs(5)).await {
                Ok(ExitSnapshot::Image(image)) => {
                    if Some(image.as_str()) != kept {
                        self.forget_image(&image).await;
                    }
                    return;
                }
                Ok(ExitSnapshot::Pending) => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(ExitSnapshot::None(_)) | Err(_) => return,
            }
        }
    }
}
