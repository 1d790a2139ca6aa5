//! What a sandbox is called, and what is written on it.

use crate::client::{BuildInfo, Create, Resources, Sandbox};
use crate::config::Config;
use farshell_engine::backend::{Spec, TaskName};
use std::collections::BTreeMap;

pub(crate) const OWNER: &str = "farshell.owner";
pub(crate) const TASK: &str = "farshell.task";
pub(crate) const SPEC: &str = "farshell.spec";
const VERSION: &str = "farshell.version";
/// As Hermes writes it.
const HERMES_TASK: &str = "hermes_task_id";

/// As Hermes calls it, so that its sandboxes are found again.
pub(crate) fn name(task: &TaskName) -> String {
    format!("hermes-{}", task.as_str())
}

pub(crate) fn all(spec: &Spec, owner: &str) -> BTreeMap<String, String> {
    [
        (OWNER, owner.to_owned()),
        (TASK, spec.task.as_str().to_owned()),
        (SPEC, spec.hash("daytona")),
        (VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (HERMES_TASK, spec.task.as_str().to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Whose a sandbox of our name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    /// Made by Hermes for the same task: it is taken over.
    Hermes,
    Theirs,
}

pub(crate) fn whose(sandbox: &Sandbox, task: &TaskName, owner: &str) -> Whose {
    let label = |name: &str| sandbox.labels.get(name).map(String::as_str);
    match label(OWNER) {
        Some(named) if named == owner => Whose::Ours,
        None if label(HERMES_TASK) == Some(task.as_str()) => Whose::Hermes,
        _ => Whose::Theirs,
    }
}

fn dockerfile(image: &str) -> String {
    format!("FROM {image}\n")
}

/// Whether it is made from this image, as far as it says.
pub(crate) fn same_image(sandbox: &Sandbox, image: &str) -> bool {
    sandbox.build_info.as_ref().is_none_or(|info| info.dockerfile_content.trim() == dockerfile(image).trim())
}

/// Whether it has these limits, as far as it says.
pub(crate) fn same_resources(sandbox: &Sandbox, wanted: Resources) -> bool {
    let same =
        |there: Option<f64>, wanted: u32| there.is_none_or(|there| (there - f64::from(wanted)).abs() < 0.01);
    same(sandbox.cpu, wanted.cpu) && same(sandbox.memory, wanted.memory) && same(sandbox.disk, wanted.disk)
}

/// What Daytona is asked for.
pub(crate) fn create(config: &Config, spec: &Spec, owner: &str) -> Create {
    let settings = &config.settings;
    Create {
        name: Some(name(&spec.task)),
        snapshot: None,
        build_info: Some(BuildInfo { dockerfile_content: dockerfile(&settings.image) }),
        resources: Some(config.resources()),
        env: BTreeMap::new(),
        labels: all(spec, owner),
        target: settings.target.clone(),
        auto_stop_interval: Some(i64::from(settings.auto_stop_minutes)),
        auto_archive_interval: Some(i64::from(settings.auto_archive_minutes)),
        auto_delete_interval: Some(config.auto_delete()),
    }
}
