//! [`Backend`] by Modal.

use crate::account::Account;
use crate::client::{Client, Router};
use crate::config::Config;
use crate::ensure::{Origin, Ready};
use crate::error::{explain, first_contact};
use crate::place::ModalPlace;
use crate::snapshots::Snapshots;
use crate::state::{DIR, Records};
use crate::{check, credentials, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Place, Progress, Spec, Support,
};
use farshell_engine::credentials::{Credential, read};
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
        let config = &self.config;
        let files = read(&config.hermes_home, &config.credential_files, credentials::WHAT)?;
        // Until they are in it, too: nobody else uses a sandbox that may have to be ended.
        let _alone = account.records.lock(&spec.task).await?;
        let mut ready = account.ensure(spec, progress).await.map_err(first_contact)?;
        if !files.is_empty()
            && let Err(error) = equip(&account, &mut ready, files, progress).await
        {
            // Nobody knows of it yet, and nobody would end it. If that fails, it ends by itself when it is idle.
            if ready.origin == Origin::Made && account.end(&ready.id).await.is_ok() {
                account.never_used(&spec.task, ready.state)?;
            }
            return Err(error);
        }
        let Ready { id, router, state, .. } = ready;
        let place = ModalPlace::new(account, spec, Some(id), &state);
        Ok(Box::new(place.by(router)))
    }

    async fn seek(&self, spec: &Spec) -> Result<Option<Box<dyn Place>>> {
        let account = self.account()?;
        // Whoever is given it may use it: its record names it by then.
        let running = account.running_and_known(&spec.task).await?;
        let state = account.state(&spec.task).await?.unwrap_or_default();
        if running.is_none() && state.is_empty() {
            return Ok(None);
        }
        // One that was saved and could not be ended is put away still: nothing new is begun in it.
        let asleep = running.is_none() || (state.saved.is_some() && running == state.sandbox);
        // One that has ended, and of which nobody has recorded yet what was kept, is put away by its id.
        let sandbox = running.or(state.sandbox.clone().filter(|_| state.saved.is_none()));
        let place = ModalPlace::new(account, spec, sandbox, &state);
        Ok(Some(Box::new(if asleep { place.asleep() } else { place })))
    }
}

/// Puts `credential_files` into a sandbox. The way to it is known then.
async fn equip(
    account: &Account,
    ready: &mut Ready,
    files: Vec<Credential>,
    progress: &dyn Progress,
) -> Result<()> {
    let way = match ready.router.take() {
        Some(way) => way,
        None => Router::find(&account.client, &ready.id).await.map_err(|e| explain(credentials::WHAT, e))?,
    };
    credentials::put(&way, files, progress).await.map_err(first_contact)?;
    ready.router = Some(way);
    Ok(())
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
