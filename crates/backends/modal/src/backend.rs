//! [`Backend`] by Modal.

use crate::account::Account;
use crate::client::Client;
use crate::config::Config;
use crate::error::first_contact;
use crate::place::ModalPlace;
use crate::snapshots::Snapshots;
use crate::state::{DIR, Records};
use crate::{check, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Place, Progress, Spec, Support,
};
use farshell_engine::{Result, owner};
use std::sync::{Arc, OnceLock};

/// Sandboxes of one Modal account.
#[derive(Clone, Debug)]
pub struct Modal {
    config: Arc<Config>,
    client: Arc<OnceLock<Client>>,
}

impl Modal {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), client: Arc::default() }
    }

    /// Whether this home has ever used Modal: one that has not is not asked about.
    #[must_use]
    pub fn was_used(home: &std::path::Path) -> bool {
        home.join(DIR).is_dir()
    }

    fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = self.config.client()?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    fn account(&self) -> Result<Account> {
        Ok(Account {
            client: self.client()?,
            config: Arc::clone(&self.config),
            owner: owner::of(&self.config.home)?,
            records: Records::of(&self.config.home),
            snapshots: Snapshots::of(&self.config.hermes_home),
        })
    }

    async fn make(&self, spec: &Spec, progress: &dyn Progress) -> Result<Box<dyn Place>> {
        let account = self.account()?;
        let ready = account.ensure(spec, progress).await.map_err(first_contact)?;
        let place = ModalPlace::new(
            account,
            spec.task.clone(),
            spec.lease,
            Some(ready.id),
            ready.router,
            ready.since,
        );
        Ok(Box::new(place))
    }

    async fn seek(&self, spec: &Spec) -> Result<Option<Box<dyn Place>>> {
        let account = self.account()?;
        let running = account.running(&spec.task).await?;
        let state = account.records.get(&spec.task)?;
        if running.is_none() && state.is_none() {
            return Ok(None);
        }
        let state = state.unwrap_or_default();
        let asleep = running.is_none();
        // One that has ended, and of which nobody has recorded yet what was kept, is put away by its id.
        let sandbox = running.or(state.sandbox.filter(|_| state.saved.is_none()));
        let place = ModalPlace::new(account, spec.task.clone(), spec.lease, sandbox, None, state.since);
        Ok(Some(Box::new(if asleep { place.asleep() } else { place })))
    }
}

impl Backend for Modal {
    fn name(&self) -> &'static str {
        "modal"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits_cpu: Support::Enforced,
            limits_memory: Support::Enforced,
            limits_disk: Support::NotEnforced,
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
        Box::pin(async move { survey::all(&self.account()?).await.map_err(first_contact) })
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { survey::remove(&self.account()?, found).await.map_err(first_contact) })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move { check::findings(self.client(), &self.config).await })
    }
}
