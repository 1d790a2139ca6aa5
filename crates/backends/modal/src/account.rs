//! Everything that making, keeping and ending sandboxes needs.

use crate::client::{Client, Code, Ended};
use crate::config::Config;
use crate::error::explain;
use crate::snapshots::Snapshots;
use crate::state::{Records, State};
use crate::tags::{self, Keeps};
use farshell_engine::backend::TaskName;
use farshell_engine::{Error, Kind, Result};
use std::sync::Arc;
use std::time::Duration;

/// One home's part of one Modal account. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) client: Client,
    pub(crate) config: Arc<Config>,
    /// Whose sandboxes they are.
    pub(crate) owner: String,
    pub(crate) records: Records,
    pub(crate) snapshots: Snapshots,
}

/// What became of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Runs,
    Ended(Ended),
    /// Modal knows nothing of it.
    Unknown,
}

impl Account {
    pub(crate) fn name(&self, task: &TaskName) -> String {
        tags::name(task, &self.owner)
    }

    pub(crate) async fn look(&self, id: &str) -> Result<Found> {
        self.wait(id, Duration::ZERO).await
    }

    /// The same, when it has ended or this long is over.
    pub(crate) async fn wait(&self, id: &str, wait: Duration) -> Result<Found> {
        match self.client.ended(id, wait).await {
            Ok(None) => Ok(Found::Runs),
            Ok(Some(ended)) => Ok(Found::Ended(ended)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(Found::Unknown),
            Err(error) => Err(explain("looking at the sandbox", error)),
        }
    }

    /// What is known of a task. Everything that is done with it begins here: who asks with the token of another workspace
    /// is told that nothing is there, and would believe it.
    pub(crate) async fn state(&self, task: &TaskName) -> Result<Option<State>> {
        let Some(mut state) = self.records.get(task)? else { return Ok(None) };
        let now = self.workspace().await?;
        if state.workspace.is_empty() {
            state.workspace = now;
            return Ok(Some(state));
        }
        if now.is_empty() || now == state.workspace {
            return Ok(Some(state));
        }
        let message = format!(
            "the sandbox of task {task} and its files are in Modal's workspace {}, and the token is one of {now}",
            state.workspace
        );
        Err(Error::new(Kind::PermissionDenied, "looking at the sandbox", message).with_hint(format!(
            "use a token of {} (MODAL_PROFILE), or another task (`--task`); who removes {} forgets them",
            state.workspace,
            self.records.path(task).display()
        )))
    }

    /// Whose token it is; empty if Modal does not say that.
    pub(crate) async fn workspace(&self) -> Result<String> {
        match self.client.workspace().await {
            Ok(name) => Ok(name),
            Err(error) if matches!(error.code(), Some(Code::Unimplemented | Code::PermissionDenied)) => {
                Ok(String::new())
            }
            Err(error) => Err(explain("asking whose token it is", error)),
        }
    }

    /// Whether a sandbox is one of this home.
    pub(crate) async fn is_ours(&self, id: &str) -> Result<bool> {
        match self.client.tags(id).await {
            Ok(tags) => Ok(tags.get(tags::OWNER) == Some(&self.owner)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(false),
            Err(error) => Err(explain("looking at the sandbox", error)),
        }
    }

    /// The record of a task, with this sandbox in it. Of one that runs and is not named there, whoever made it died at once, or
    /// somebody has removed the record: it is named before anybody uses it, so that its files are followed to where they go.
    /// The caller holds the task's lock. Nothing if it has ended, is not the task's, or all of the task is to go.
    pub(crate) async fn adopt(&self, task: &TaskName, id: &str) -> Result<Option<State>> {
        let state = self.state(task).await?.unwrap_or_default();
        if state.sandbox.as_deref() == Some(id) {
            return Ok(Some(state));
        }
        if state.removing || self.look(id).await? != Found::Runs {
            return Ok(None);
        }
        let tags = match self.client.tags(id).await {
            Ok(tags) => tags,
            Err(error) if error.code() == Some(Code::NotFound) => return Ok(None),
            Err(error) => return Err(explain("looking at the sandbox", error)),
        };
        if tags.get(tags::OWNER) != Some(&self.owner)
            || tags.get(tags::TASK).is_none_or(|of| of != task.as_str())
        {
            return Ok(None);
        }
        let workspace = match state.workspace.is_empty() {
            true => self.workspace().await?,
            false => state.workspace,
        };
        let state = State {
            // Whoever made it and died has noted when; of any other one that is not known.
            since: if state.sandbox.is_none() { state.since } else { 0 },
            sandbox: Some(id.to_owned()),
            base: state.saved.or(state.base),
            saved: None,
            taking: None,
            spec: tags.get(tags::SPEC).cloned().unwrap_or_default(),
            keeps: Keeps::of(&tags),
            workspace,
            ..state
        };
        self.records.put(task, &state)?;
        Ok(Some(state))
    }

    /// The task's own sandbox that runs, if there is one, and its record names it from now on.
    pub(crate) async fn running_and_known(&self, task: &TaskName) -> Result<Option<String>> {
        let running = self.running(task).await?;
        let known = self.state(task).await?.and_then(|state| state.sandbox);
        if running.is_none() || running == known {
            return Ok(running);
        }
        let _alone = self.records.lock(task).await?;
        // Whoever was at it may have named it, or ended it.
        let Some(id) = self.running(task).await? else { return Ok(None) };
        Ok(self.adopt(task, &id).await?.map(|_| id))
    }

    /// The task's sandbox that runs, if there is one: the one that is known, or else one of its name.
    pub(crate) async fn running(&self, task: &TaskName) -> Result<Option<String>> {
        let known = self.state(task).await?.and_then(|state| state.sandbox);
        if let Some(id) = known
            && self.look(&id).await? == Found::Runs
        {
            return Ok(Some(id));
        }
        let named = self.client.by_name(tags::APP, &self.name(task)).await;
        match named.map_err(|e| explain("looking for the sandbox", e))? {
            Some(id) if self.look(&id).await? == Found::Runs => Ok(Some(id)),
            _ => Ok(None),
        }
    }
}
