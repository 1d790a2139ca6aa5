//! The files of an environment, for whoever works on them: the agent's tools, and copies.

use crate::progress::Progress;
use crate::slot::Use;
use crate::{Inner, Keeper, sessions};
use farshell_api::run::{Place, Target};
use farshell_config::Settings;
use farshell_engine::Result;
use farshell_engine::client::Outpost;
use farshell_protocol::SessionName;
use std::path::Path;
use std::sync::Arc;

/// An environment whose files are used. It is not put away for as long as somebody holds this.
#[derive(Debug)]
pub struct Files {
    entered: Use,
    session: SessionName,
    key: String,
    backend: &'static str,
}

impl Files {
    /// Who does what is asked.
    #[must_use]
    pub fn outpost(&self) -> &Outpost {
        &self.entered.live.outpost
    }

    /// Whose directory relative paths are taken from; it is open.
    #[must_use]
    pub fn session(&self) -> SessionName {
        self.session.clone()
    }

    /// The environment's key.
    #[must_use]
    pub fn environment(&self) -> &str {
        &self.key
    }

    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    #[must_use]
    pub fn place(&self) -> &Place {
        &self.entered.live.identity
    }
}

impl Inner {
    pub(crate) async fn files(
        self: &Arc<Self>,
        target: &Target,
        session: &str,
        progress: Progress<'_>,
    ) -> Result<Files> {
        let resolved = self.resolver.resolve(target)?;
        let wanted = resolved.wanted(&target.task)?;
        let session = sessions::outpost_name(wanted.shared, wanted.task.as_str(), session)?;
        let entered = self.environments.enter(&wanted, &resolved, false, progress).await?;
        let defaults = sessions::defaults(self.resolver.world(), &resolved, target.caller.as_ref())?;
        entered.slot.open_session(&entered.live.outpost, defaults, &session).await?;
        Ok(Files { entered, session, key: wanted.key, backend: resolved.backend.name() })
    }
}

impl Keeper {
    /// What counts for a target, as its settings say.
    ///
    /// # Errors
    /// They can't be read or used.
    pub fn settings(&self, target: &Target) -> Result<Settings> {
        Ok(self.inner.resolver.resolve(target)?.settings.clone())
    }

    /// `$HERMES_HOME`.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.inner.resolver.world().home
    }
}
