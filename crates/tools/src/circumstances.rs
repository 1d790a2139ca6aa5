//! A call's circumstances, for the keeper.

use crate::failure::Failure;
use crate::{Call, Tool, Tools, catalogue};
use farshell_api::approval::Approval;
use farshell_api::run::Target;
use farshell_engine::backend::{BoxFuture, News};
use farshell_keeper::{Keeper, Observer};
use serde_json::Value;

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
        let choices = self.choices(&call.target)?;
        if wanted == choices[0] {
            return Ok(call.target.clone());
        }
        if choices.iter().any(|choice| wanted == choice) {
            return Ok(Target { backend: Some(wanted.to_owned()), ..call.target.clone() });
        }
        let right = match choices.as_slice() {
            [only] => format!("what can be chosen is {only}"),
            all => format!("what can be chosen is one of {}", all.join(", ")),
        };
        Err(Failure::argument("backend", wanted, &right))
    }

    /// The backends that a call may name, the one of calls that name none first.
    fn choices(&self, target: &Target) -> Result<Vec<String>, Failure> {
        let settings = self.keeper.settings(target)?;
        let mut choices = vec![settings.backend.kind().to_string()];
        for more in settings.tool_backends.iter().map(ToString::to_string) {
            if !choices.contains(&more) {
                choices.push(more);
            }
        }
        Ok(choices)
    }

    /// All tools, as they are for callers of this target: with the names of the backends that they may choose.
    #[must_use]
    pub fn catalogue(&self, target: &Target) -> Vec<Tool> {
        let mut tools = catalogue().to_vec();
        // Settings that can't be read are told by each call.
        if let Ok(choices) = self.choices(target) {
            for tool in &mut tools {
                if let Some(Value::Object(backend)) = tool.input.pointer_mut("/properties/backend") {
                    let names = choices.iter().map(String::as_str).map(Value::from);
                    backend.insert("enum".to_owned(), names.chain([Value::Null]).collect());
                }
            }
        }
        tools
    }
}
