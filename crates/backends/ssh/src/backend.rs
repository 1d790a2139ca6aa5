//! [`Backend`] by way of `ssh`.

use crate::config::Config;
use crate::host::Host;
use crate::place::SshPlace;
use crate::{check, credentials, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, News, Place, Progress, Spec, Support,
};
use farshell_engine::{Error, Kind, Result};
use std::sync::Arc;

/// A host that `ssh` reaches.
#[derive(Clone, Debug)]
pub struct Ssh {
    host: Host,
}

impl Ssh {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { host: Host::new(Arc::new(config)) }
    }

    fn config(&self) -> &Config {
        &self.host.config
    }

    async fn make(&self, spec: &Spec, progress: &dyn Progress) -> Result<SshPlace> {
        self.config().check()?;
        let credentials = credentials::read(self.config())?;
        let message = format!("connecting to {}", self.config().destination());
        progress.say(&News { message, part: None });
        let started = self.host.start(&spec.task, spec.lease, progress).await;
        let (link, facts) = started.map_err(first_contact)?;
        let place = SshPlace::new(self.host.clone(), spec.task.clone(), spec.lease, facts, Some(link));
        credentials::put(&place, credentials).await?;
        Ok(place)
    }

    async fn seek(&self, spec: &Spec) -> Result<Option<SshPlace>> {
        self.config().check()?;
        let facts = self.host.look(&spec.task).await.map_err(first_contact)?;
        let found = facts.present;
        Ok(found.then(|| SshPlace::new(self.host.clone(), spec.task.clone(), spec.lease, facts, None)))
    }
}

/// Nothing was connected before, so nothing is disconnected.
fn first_contact(mut error: Error) -> Error {
    if error.kind == Kind::Disconnected {
        error.kind = Kind::Unavailable;
    }
    error
}

impl Backend for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits_cpu: Support::NotEnforced,
            limits_memory: Support::NotEnforced,
            limits_disk: Support::NotEnforced,
            limits_processes: Support::NotEnforced,
            isolates: false,
            persists_files: true,
            suspends: false,
        }
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move { Ok(Box::new(self.make(spec, progress).await?) as Box<dyn Place>) })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move { Ok(self.seek(spec).await?.map(|place| Box::new(place) as Box<dyn Place>)) })
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(async move {
            self.config().check()?;
            survey::all(&self.host).await.map_err(first_contact)
        })
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.config().check()?;
            survey::remove(&self.host, &found.name).await.map_err(first_contact)
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(check::findings(&self.host))
    }
}
