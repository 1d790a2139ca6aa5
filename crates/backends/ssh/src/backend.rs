//! [`Backend`] by way of `ssh`.

use crate::config::Config;
use crate::host::Host;
use crate::place::SshPlace;
use crate::{check, survey};
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Identity, News, Place, Progress, Spec, Support,
};
use farshell_engine::{Error, Kind, Result, credentials};
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

    async fn make(&self, spec: &Spec, was: Option<&Identity>, progress: &dyn Progress) -> Result<SshPlace> {
        self.config().check()?;
        self.host.links.called();
        let config = self.config();
        let what = "putting credential_files on the host";
        let credentials = credentials::read(&config.credential_root, &config.credential_files, what)?;
        let message = format!("connecting to {}", self.config().destination());
        progress.say(&News { message, part: None });
        let started = self.host.start(&spec.task, spec.lease, was, progress).await;
        let (link, facts) = started.map_err(first_contact)?;
        let place = SshPlace::new(self.host.clone(), spec.task.clone(), spec.lease, facts, Some(link));
        credentials::put(Arc::new(place.clone()), credentials).await?;
        Ok(place)
    }

    async fn seek(&self, spec: &Spec, was: Option<&Identity>) -> Result<Option<SshPlace>> {
        self.config().check()?;
        let facts = self.host.look(&spec.task).await.map_err(first_contact)?;
        // What is not on this machine may well be on the other.
        if let Some(was) = was {
            facts.is_still(was, &spec.task, self.config())?;
        }
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

    fn can_be_cut_off(&self) -> bool {
        true
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move { Ok(Box::new(self.make(spec, None, progress).await?) as Box<dyn Place>) })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(
            async move { Ok(self.seek(spec, None).await?.map(|place| Box::new(place) as Box<dyn Place>)) },
        )
    }

    fn find_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            Ok(self.seek(spec, Some(was)).await?.map(|place| Box::new(place) as Box<dyn Place>))
        })
    }

    fn provision_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move { Ok(Box::new(self.make(spec, Some(was), progress).await?) as Box<dyn Place>) })
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

    fn called(&self) {
        self.host.links.called();
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(check::findings(&self.host))
    }
}
