//! [`Backend`] by Daytona.

use crate::client::{Client, Sandbox, State};
use crate::config::Config;
use crate::ensure::{ensure, keeps, remove, stop};
use crate::error::{explain, first_contact};
use crate::labels::{self, Whose};
use crate::place::DaytonaPlace;
use crate::{check, steps, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Place, Progress, Spec, Support, TaskName,
};
use farshell_engine::{Error, Kind, Result, credentials, owner};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Where a home notes that it has used Daytona.
const USED: &str = "run/daytona";

/// Sandboxes of one Daytona account.
#[derive(Clone, Debug)]
pub struct Daytona {
    config: Arc<Config>,
    client: Arc<OnceLock<Client>>,
    /// Files below a directory that are put into each sandbox.
    credentials: Arc<(PathBuf, Vec<PathBuf>)>,
}

impl Daytona {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), client: Arc::default(), credentials: Arc::default() }
    }

    /// With files below `root` that are put into each sandbox.
    #[must_use]
    pub fn with_credentials(self, root: PathBuf, files: Vec<PathBuf>) -> Self {
        Self { credentials: Arc::new((root, files)), ..self }
    }

    /// Whether this home has ever used Daytona: one that has not is not asked about.
    #[must_use]
    pub fn was_used(home: &std::path::Path) -> bool {
        home.join(USED).is_dir()
    }

    pub(crate) fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = self.config.client()?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    fn place(&self, client: Client, sandbox: &Sandbox, spec: &Spec) -> DaytonaPlace {
        let config = &self.config;
        DaytonaPlace::new(client, sandbox, &config.settings.image, spec.lease, config.disk_note())
    }

    async fn make(&self, spec: &Spec, progress: &dyn Progress) -> Result<Box<dyn Place>> {
        let client = self.client()?;
        let owner = owner::of(&self.config.home)?;
        let used = self.config.home.join(USED);
        std::fs::create_dir_all(&used).map_err(|e| Error::io(format!("making {}", used.display()), e))?;
        let what = "putting credential_files into the sandbox";
        let files = credentials::read(&self.credentials.0, &self.credentials.1, what)?;
        let ensured = ensure(&client, &self.config, spec, &owner, progress).await;
        let (sandbox, new) = ensured.map_err(first_contact)?;
        credentials::put(Arc::new(self.place(client.clone(), &sandbox, spec)), files).await?;
        let place = self.place(client, &sandbox, spec);
        Ok(Box::new(if new { place.with_word(self.config.disk_note()) } else { place }))
    }

    async fn seek(&self, spec: &Spec) -> Result<Option<Box<dyn Place>>> {
        let client = self.client()?;
        let owner = owner::of(&self.config.home)?;
        let found =
            client.get(&labels::name(&spec.task)).await.map_err(|e| explain("looking for the sandbox", e))?;
        let ours = |sandbox: &Sandbox| {
            labels::whose(sandbox, &spec.task, &owner) == Whose::Ours
                && !matches!(sandbox.state, State::Destroying | State::Destroyed)
        };
        Ok(found
            .filter(ours)
            .map(|sandbox| -> Box<dyn Place> { Box::new(self.place(client, &sandbox, spec)) }))
    }
}

impl Backend for Daytona {
    fn name(&self) -> &'static str {
        "daytona"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits_cpu: Support::Enforced,
            limits_memory: Support::Enforced,
            limits_disk: Support::Enforced,
            limits_processes: Support::NotEnforced,
            isolates: true,
            // They sleep with the sandbox, and go with it.
            persists_files: false,
            suspends: true,
        }
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(self.make(spec, progress))
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move { self.seek(spec).await.map_err(first_contact) })
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(async move {
            let owner = owner::of(&self.config.home)?;
            survey::all(&self.client()?, &owner).await.map_err(first_contact)
        })
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let client = self.client()?;
            let owner = owner::of(&self.config.home)?;
            let what = || format!("removing {}", found.name);
            // Looked at again: an id that was made up must not cost anybody a sandbox.
            match client.get(&found.id).await.map_err(|e| first_contact(explain(what(), e)))? {
                Some(sandbox) if sandbox.labels.get(labels::OWNER) != Some(&owner) => {
                    Err(Error::new(Kind::NotFound, what(), "the sandbox is not of this home"))
                }
                // Its files are in it and nowhere else: what costs is stopped, and the rest is for whoever names it.
                Some(sandbox) if keeps(&sandbox) == Some(true) && !steps::sleeps(&sandbox.state) => {
                    stop(&client, &sandbox.id).await.map_err(first_contact)
                }
                Some(sandbox) if keeps(&sandbox) == Some(true) => {
                    let task = found.task.as_ref().map_or("TASK", TaskName::as_str);
                    Err(Error::new(Kind::Busy, what(), format!("it has the only files of task {task}"))
                        .with_hint(format!("`farshell env rm --files daytona/{task}` deletes it with them")))
                }
                Some(sandbox) => remove(&client, &sandbox.id).await.map_err(first_contact),
                None => Ok(()),
            }
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move { check::findings(self.client(), &self.config).await })
    }
}
