//! `farshell env`: environments as a whole.

use crate::args::{EnvCommand, EnvironmentArgs};
use crate::output::{self, Outcome};
use crate::plan::EnvironmentPlan;

pub(crate) fn run(command: EnvCommand) -> Outcome {
    match command {
        EnvCommand::Rm { task, backend } => {
            let (plan, _, _) = EnvironmentPlan::new(&EnvironmentArgs { backend, task })?;
            crate::runtime()?
                .block_on(async { plan.backend.provision(&plan.spec).await?.destroy().await })?;
            output::notice(&format!("environment {} on {} is ended", plan.spec.task, plan.backend.name()));
            Ok(0)
        }
    }
}
