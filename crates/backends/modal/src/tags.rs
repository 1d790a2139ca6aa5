//! What a sandbox is called, what is written on it, and what Modal is asked for.

use crate::config::Config;
use farshell_engine::backend::{Spec, TaskName, settings_hash};
use farshell_modal_proto::client::sandbox::OpenPortsOneof;
use farshell_modal_proto::client::{PortSpecs, Sandbox, SchedulerPlacement};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// As Hermes calls it.
pub(crate) const APP: &str = "hermes-agent";
pub(crate) const OWNER: &str = "farshell_owner";
pub(crate) const TASK: &str = "farshell_task";
pub(crate) const SPEC: &str = "farshell_spec";
/// Whether its files are to be kept.
pub(crate) const KEEPS: &str = "farshell_keeps";
const LEASE: &str = "farshell_lease_seconds";
const VERSION: &str = "farshell_version";
/// The longest name.
const MOST: usize = 64;

/// Unique among the sandboxes of the app that run: two homes have two names for the same task.
pub(crate) fn name(task: &TaskName, owner: &str) -> String {
    let name = format!("hermes-{owner}-{}", task.as_str());
    if name.len() <= MOST {
        return name;
    }
    let hash = settings_hash(task.as_str(), &BTreeMap::new());
    format!("{}-{}", &name[..MOST - 17], &hash[..16])
}

pub(crate) fn all(spec: &Spec, owner: &str, keeps: Keeps) -> BTreeMap<String, String> {
    [
        (OWNER, owner.to_owned()),
        (KEEPS, keeps.as_str().to_owned()),
        (TASK, spec.task.as_str().to_owned()),
        (SPEC, spec.hash("modal")),
        (LEASE, spec.lease.as_secs().to_string()),
        (VERSION, env!("CARGO_PKG_VERSION").to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Whether the files of a sandbox are to be kept. What it was made with counts for all its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Keeps {
    /// Also what is not known: files are not lost for want of a word.
    #[default]
    Files,
    Nothing,
}

impl Keeps {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Nothing => "nothing",
        }
    }

    /// As it is written on a sandbox.
    pub(crate) fn of(tags: &BTreeMap<String, String>) -> Self {
        match tags.get(KEEPS).map(String::as_str) {
            Some("nothing") => Self::Nothing,
            _ => Self::Files,
        }
    }
}

/// What Modal is asked for.
pub(crate) fn definition(config: &Config, name: String, image: String) -> Sandbox {
    let settings = &config.settings;
    let seconds = |span: Duration| u32::try_from(span.as_secs().max(1)).unwrap_or(u32::MAX);
    let mut options = std::collections::HashMap::new();
    if config.keeps() == Keeps::Files {
        // Whatever ends it, its files are kept. The value is what Modal's own client sends.
        options.insert("enable_exit_snapshot".to_owned(), "True".to_owned());
    }
    Sandbox {
        entrypoint_args: vec!["sleep".into(), "infinity".into()],
        image_id: image,
        resources: Some(config.resources()),
        timeout_secs: seconds(settings.timeout),
        idle_timeout_secs: Some(seconds(settings.idle_timeout)),
        network_access: Some(config.network()),
        open_ports_oneof: Some(OpenPortsOneof::OpenPorts(PortSpecs::default())),
        scheduler_placement: settings
            .region
            .as_ref()
            .map(|region| SchedulerPlacement { regions: vec![region.clone()] }),
        name: Some(name),
        experimental_options_v2: options,
        ..Sandbox::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    #[test]
    fn names_differ_by_owner_and_task_and_are_never_too_long() {
        let task = |text: &str| TaskName::new(text).unwrap();
        assert_eq!(name(&task("default"), "0011aabb"), "hermes-0011aabb-default");
        let long = |end: &str| name(&task(&format!("{}{end}", "x".repeat(60))), "0011aabb");
        assert_eq!(long("a").len(), MOST);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn what_is_not_kept_leaves_no_snapshot_and_everything_has_an_end() {
        let mut config = sample();
        let kept = definition(&config, "n".into(), "im-1".into());
        assert_eq!(kept.experimental_options_v2["enable_exit_snapshot"], "True");
        assert_eq!((kept.timeout_secs, kept.idle_timeout_secs), (86_400, Some(300)));
        config.settings.container.persistent = false;
        assert!(definition(&config, "n".into(), "im-1".into()).experimental_options_v2.is_empty());
    }
}
