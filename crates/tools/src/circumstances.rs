//! A call's circumstances, for the keeper.

use crate::failure::Failure;
use crate::{Call, Tools};
use farshell_api::approval::Approval;
use farshell_api::run::Target;
use farshell_engine::backend::{BoxFuture, News};
use farshell_keeper::{Keeper, Observer};

/// Passes on what a call's own observer wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a>(&'a Call<'a>);

impl Observer for Told<'_> {
    fn progress(&self, news: &News) {
        self.0.observer.progress(news);
    }

    fn approval(&self, approval: &Approval) {
        self.0.observer.approval(approval);
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.cancel.cancelled())
    }
}

impl Call<'_> {
    pub(crate) fn told(&self) -> Told<'_> {
        Told(self)
    }
}

impl Tools {
    /// The keeper, in the name of who calls.
    pub(crate) fn keeper(&self, call: &Call<'_>) -> Keeper {
        self.keeper.on_behalf(call.origin.clone())
    }

    /// Where a call goes, if it may go there. A model does not choose among all backends there are: from a container
    /// to this machine would be the way out.
    pub(crate) fn target(&self, call: &Call<'_>, backend: Option<&str>) -> Result<Target, Failure> {
        let Some(wanted) = backend else { return Ok(call.target.clone()) };
        let settings = self.keeper.settings(&call.target)?;
        let configured = settings.backend.kind().to_string();
        if wanted == configured {
            return Ok(call.target.clone());
        }
        let right = format!("what can be chosen is {configured}");
        Err(Failure::argument("backend", wanted, &right))
    }
}
