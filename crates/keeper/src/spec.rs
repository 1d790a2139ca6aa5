//! What a place is made from: if any of it changes, it is another place.
//!
//! What a session begins with (variables, directory) is no part of it, nor is anything about single commands. Variables
//! that travel with each call (`docker_env`, `docker_forward_env`, `singularity_env`) are no part of it either.

use crate::Asker;
use farshell_config::settings::{Backend, ContainerSettings, Settings};
use farshell_config::volume::Volume;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

/// The setting that says whether a place's files outlive it.
pub(crate) const PERSISTENT: &str = "container_persistent";

/// Variables that say where the Docker engine is. The place of a task is another one on another engine.
pub(crate) const ENGINE: &[&str] = &[
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
];

/// Variables that say where Daytona is, and for whom.
pub(crate) const DAYTONA: &[&str] = &["DAYTONA_API_URL", "DAYTONA_SERVER_URL", "DAYTONA_ORGANIZATION_ID"];

/// Variables that say where Modal is, and for whom.
pub(crate) const MODAL: &[&str] =
    &["MODAL_SERVER_URL", "MODAL_ENVIRONMENT", "MODAL_PROFILE", "MODAL_CONFIG_PATH"];

/// The settings of which a place is made, by their names.
pub(crate) fn settings(settings: &Settings, asker: &Asker<'_>) -> BTreeMap<String, String> {
    let mut spec = Spec::default();
    match &settings.backend {
        Backend::Local(local) => {
            spec.add("home_mode", local.home_mode);
            spec.list("shell_init_files", &paths(&local.shell_init_files));
            spec.add("auto_source_bashrc", local.auto_source_bashrc);
        }
        Backend::Docker(docker) => {
            spec.add("docker_image", &docker.image);
            spec.list("docker_volumes", &volumes(&docker.volumes));
            match asker.start_dir {
                Some(dir) => spec.add("docker_mount_cwd_to_workspace", dir.display()),
                None => spec.add("docker_mount_cwd_to_workspace", docker.mount_cwd_to_workspace),
            }
            spec.add("docker_network", docker.network);
            spec.add("docker_read_only", docker.read_only);
            spec.list("docker_cap_add", &docker.cap_add);
            spec.limit("docker_pids_limit", docker.pids_limit);
            spec.add("docker_run_as_host_user", docker.run_as_host_user);
            spec.list("docker_extra_args", &docker.extra_args);
            spec.add("sandbox_dir", docker.sandbox_dir.display());
            spec.container(&docker.container);
            for name in ENGINE {
                spec.some(name, asker.environment.get(*name).filter(|value| !value.is_empty()));
            }
        }
        Backend::Ssh(ssh) => {
            spec.add("ssh_host", &ssh.host);
            spec.add("ssh_user", &ssh.user);
            spec.add("ssh_port", ssh.port);
            spec.some("ssh_jump", ssh.jump.as_ref());
            spec.list("ssh_options", &ssh.options);
            spec.some("ssh_outpost_dir", ssh.outpost_dir.as_ref());
        }
        Backend::Singularity(singularity) => {
            spec.add("singularity_image", &singularity.image);
            spec.list("singularity_bind", &volumes(&singularity.bind));
            spec.add("singularity_gpu", singularity.gpu);
            spec.limit("singularity_pids_limit", singularity.pids_limit);
            spec.add("singularity_disk_image", singularity.disk_image);
            spec.list("singularity_extra_args", &singularity.extra_args);
            if let Some(dir) = &singularity.scratch_dir {
                spec.add("scratch_dir", dir.display());
            }
            if let Some(slurm) = &singularity.slurm {
                spec.add("singularity_slurm", format!("{slurm:?}"));
            }
            spec.add("sandbox_dir", singularity.sandbox_dir.display());
            spec.container(&singularity.container);
        }
        Backend::Modal(modal) => {
            spec.add("modal_image", &modal.image);
            spec.some("modal_gpu", modal.gpu.as_ref());
            spec.some("modal_region", modal.region.as_ref());
            spec.add("modal_network", modal.network);
            spec.list("modal_network_allow", &modal.network_allow);
            // Without the disk, which Modal does not limit: its files are in the place and nowhere else, so what has no
            // effect must not make it another one.
            spec.sized(&modal.container);
            for name in MODAL {
                spec.some(name, asker.environment.get(*name).filter(|value| !value.is_empty()));
            }
        }
        Backend::Daytona(daytona) => {
            spec.add("daytona_image", &daytona.image);
            spec.some("daytona_target", daytona.target.as_ref());
            spec.container(&daytona.container);
            for name in DAYTONA {
                spec.some(name, asker.environment.get(*name).filter(|value| !value.is_empty()));
            }
        }
    }
    if !settings.credential_files.is_empty() {
        spec.list("credential_files", &paths(&settings.credential_files));
    }
    spec.0
}

/// Has settings lead to where the place is that was made from `spec`, whatever they name now.
pub(crate) fn locate(settings: &mut Backend, spec: &BTreeMap<String, String>) {
    let path = |key: &str| spec.get(key).map(PathBuf::from);
    match settings {
        Backend::Ssh(ssh) => {
            // Without a host nothing was ever made from it.
            let Some(host) = spec.get("ssh_host") else { return };
            ssh.host.clone_from(host);
            ssh.user = spec.get("ssh_user").cloned().unwrap_or_default();
            if let Some(port) = spec.get("ssh_port").and_then(|port| port.parse().ok()) {
                ssh.port = port;
            }
            ssh.jump = spec.get("ssh_jump").cloned();
            ssh.outpost_dir = spec.get("ssh_outpost_dir").cloned();
            ssh.options = taken_apart(spec.get("ssh_options").map(String::as_str).unwrap_or_default());
        }
        Backend::Docker(docker) => {
            if let Some(dir) = path("sandbox_dir") {
                docker.sandbox_dir = dir;
            }
        }
        Backend::Singularity(singularity) => {
            if let Some(dir) = path("sandbox_dir") {
                singularity.sandbox_dir = dir;
                singularity.scratch_dir = path("scratch_dir");
            }
        }
        Backend::Local(_) | Backend::Modal(_) | Backend::Daytona(_) => {}
    }
}

/// What is different, for people: `key: old -> new`.
pub(crate) fn difference(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    let shown = |value: Option<&String>| match value {
        None => "(not set)".to_owned(),
        Some(text) if text.is_empty() => "(empty)".to_owned(),
        Some(text) => text.clone(),
    };
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| format!("{key}: {} -> {}", shown(old.get(key)), shown(new.get(key))))
        .collect()
}

#[derive(Default)]
struct Spec(BTreeMap<String, String>);

impl Spec {
    fn add(&mut self, key: &str, value: impl Display) {
        self.0.insert(key.to_owned(), value.to_string());
    }

    fn some(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        self.add(key, listed(values));
    }

    fn limit(&mut self, key: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.add(key, value),
            None => self.add(key, "no limit"),
        }
    }

    fn container(&mut self, container: &ContainerSettings) {
        self.sized(container);
        self.limit("container_disk", container.disk_mb);
    }

    fn sized(&mut self, container: &ContainerSettings) {
        self.limit("container_cpu", container.cpu);
        self.limit("container_memory", container.memory_mb);
        self.add(PERSISTENT, container.persistent);
    }
}

/// Values with a comma between them. A comma in one of them has a backslash before it.
fn listed(values: &[String]) -> String {
    values.iter().map(|value| value.replace('\\', r"\\").replace(',', r"\,")).collect::<Vec<_>>().join(", ")
}

/// The values of [`listed`].
fn taken_apart(text: &str) -> Vec<String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => value.extend(rest.next()),
            ',' if rest.next_if_eq(&' ').is_some() => values.push(std::mem::take(&mut value)),
            c => value.push(c),
        }
    }
    values.push(value);
    values.retain(|value| !value.is_empty());
    values
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn volumes(volumes: &[Volume]) -> Vec<String> {
    let shown = |volume: &Volume| {
        let options = volume.options.join("+");
        let options = if options.is_empty() { options } else { format!(":{options}") };
        format!("{}:{}{options}", volume.source, volume.target)
    };
    volumes.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_list_is_what_it_was() {
        for values in [&[][..], &["a"], &["Ciphers=a,b", "SendEnv=A, B"], &[r"X=\", r"Y=\, ,", "Z= z"]] {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            assert_eq!(taken_apart(&listed(&values)), values, "{}", listed(&values));
        }
        assert_eq!(listed(&["a".into(), "b c".into()]), "a, b c");
    }

    #[test]
    fn the_difference_is_told() {
        let (old, new) =
            (map(&[("a", "1"), ("b", "2"), ("c", "")]), map(&[("a", "1"), ("b", "3"), ("d", "x")]));
        assert_eq!(difference(&old, &new), ["b: 2 -> 3", "c: (empty) -> (not set)", "d: (not set) -> x"]);
    }
}
