//! What the Docker backend needs to know.

use farshell_config::settings::DockerSettings;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of the Docker backend. Nothing else is read: not the environment of this process, nor its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Farshell's home: it owns the containers. What they share with this machine lies below it.
    pub home: PathBuf,
    pub settings: DockerSettings,
    /// Variables of whoever asks: `DOCKER_HOST`, `DOCKER_CONTEXT`, `HOME` and so on say which engine is meant.
    pub environment: BTreeMap<String, String>,
    /// What `docker_mount_cwd_to_workspace` shares as `/workspace`.
    pub start_dir: Option<PathBuf>,
    /// Files that the container may read, as paths relative to `credential_root`, which they can't leave.
    pub credential_root: PathBuf,
    pub credential_files: Vec<PathBuf>,
}

impl Config {
    /// A variable that is set to something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use farshell_config::settings::ContainerSettings;

    /// Something to begin with.
    pub(crate) fn config() -> Config {
        Config {
            home: "/home/me/.hermes/farshell".into(),
            settings: DockerSettings {
                image: "debian:12".into(),
                volumes: Vec::new(),
                mount_cwd_to_workspace: false,
                forward_env: Vec::new(),
                env: Vec::new(),
                network: true,
                read_only: false,
                cap_add: Vec::new(),
                pids_limit: Some(256),
                run_as_host_user: false,
                extra_args: Vec::new(),
                persist_across_processes: true,
                orphan_reaper: true,
                sandbox_dir: "/home/me/.hermes/sandboxes".into(),
                container: ContainerSettings { cpu: None, memory_mb: None, disk_mb: None, persistent: true },
            },
            environment: BTreeMap::new(),
            start_dir: None,
            credential_root: "/home/me/.hermes".into(),
            credential_files: Vec::new(),
        }
    }
}
