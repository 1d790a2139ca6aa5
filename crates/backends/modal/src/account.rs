//! Everything that making, keeping and ending sandboxes needs.

use crate::client::{Client, Code, Ended};
use crate::config::Config;
use crate::error::explain;
use crate::snapshots::Snapshots;
use crate::state::Records;
use crate::tags;
use farshell_engine::Result;
use farshell_engine::backend::TaskName;
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

    /// The task's sandbox that runs, if there is one: the one that is known, or else one of its name.
    pub(crate) async fn running(&self, task: &TaskName) -> Result<Option<String>> {
        let known = self.records.get(task)?.and_then(|state| state.sandbox);
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
