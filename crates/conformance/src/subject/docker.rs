//! Containers of a Docker engine, or of what speaks its language.
//!
//! The engines are brought up by `scripts/rig`; variables say where they are.

use super::Subject;
use farshell_config::settings::{ContainerSettings, DockerSettings};
use farshell_docker::{Config, Docker};
use farshell_engine::backend::{Backend, TaskName};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// An image with bash, on an engine of this machine.
pub(super) const DEBIAN: Containers = Containers {
    name: "docker",
    engine: "FARSHELL_TEST_DOCKER",
    image: "FARSHELL_TEST_IMAGE",
    bash: true,
    way: Way::Socket,
};

/// An image with nothing but busybox.
pub(super) const BUSYBOX: Containers =
    Containers { name: "docker-busybox", image: "FARSHELL_TEST_BUSYBOX", bash: false, ..DEBIAN };

/// The same engine as a stranger on another machine sees it.
pub(super) const BY_EXEC: Containers =
    Containers { name: "docker-tcp", engine: "FARSHELL_TEST_DOCKER_TCP", way: Way::Exec, ..DEBIAN };

/// Podman's socket.
pub(super) const PODMAN: Containers = Containers {
    name: "podman",
    engine: "FARSHELL_TEST_PODMAN",
    image: "FARSHELL_TEST_PODMAN_IMAGE",
    ..DEBIAN
};

/// Where the engine's certificates are, if it wants any.
const CERTIFICATES: &str = "FARSHELL_TEST_DOCKER_CERTS";
/// A Unix socket of the same engine, by which the suite looks for what is left.
const LOOK: &str = "FARSHELL_TEST_DOCKER";

/// Cases start hundreds of processes at once. The limit that users get has tests of its own.
const PROCESSES: u64 = 4096;

/// How the outpost in a container is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By a socket in a directory that the container shares with this machine.
    Socket,
    /// By a stream of the engine's.
    Exec,
}

/// Containers of one image on one engine.
#[derive(Debug)]
pub(super) struct Containers {
    name: &'static str,
    /// The variable that holds the engine's address.
    engine: &'static str,
    /// The variable that holds the image's name.
    image: &'static str,
    bash: bool,
    way: Way,
}

impl Containers {
    fn variable(name: &str) -> Result<String, String> {
        std::env::var(name).map_err(|_| format!("no {name}; scripts/test docker sets it"))
    }

    /// Asks the engine for the things of a task that a path lists.
    fn ask(&self, path: &str) -> Result<String, String> {
        let address = Self::variable(if self.way == Way::Exec { LOOK } else { self.engine })?;
        let socket = address.strip_prefix("unix://").ok_or("its address is no Unix socket")?;
        let fail = |error: std::io::Error| format!("asking {socket}: {error}");
        let mut stream = UnixStream::connect(socket).map_err(fail)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").map_err(fail)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(fail)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        if head.contains(" 200 ") { Ok(body.trim().to_owned()) } else { Err(answer) }
    }

    fn containers(&self, task: &TaskName, which: &str) -> Vec<String> {
        let filters = format!("%7B%22name%22:%5B%22farshell-{}-%22%5D%7D", task.as_str());
        match self.ask(&format!("/v1.41/containers/json?{which}filters={filters}")) {
            Ok(list) if list == "[]" => Vec::new(),
            Ok(list) => vec![format!("containers {list}")],
            Err(error) => vec![error],
        }
    }

    fn volumes(&self, task: &TaskName) -> Vec<String> {
        let filters = format!("%7B%22label%22:%5B%22farshell.task={}%22%5D%7D", task.as_str());
        match self.ask(&format!("/v1.41/volumes?filters={filters}")) {
            Ok(list) if !list.contains("\"Name\"") => Vec::new(),
            Ok(list) => vec![format!("volumes {list}")],
            Err(error) => vec![error],
        }
    }

    /// What the backend made on this machine for a task.
    fn private(home: &Path, task: &TaskName) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(home.join("run/docker")) else { return Vec::new() };
        let start = format!("farshell-{}-", task.as_str());
        let ours = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start));
        entries.flatten().map(|entry| entry.path()).filter(ours).collect()
    }
}

impl Subject for Containers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Result<(), String> {
        Self::variable(self.engine)?;
        Self::variable(self.image)?;
        self.ask("/v1.41/info").map(|_| ())
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        let variable = |name| Self::variable(name).unwrap_or_default();
        let mut environment = BTreeMap::from([("DOCKER_HOST".to_owned(), variable(self.engine))]);
        if self.way == Way::Exec {
            environment.insert("DOCKER_TLS_VERIFY".into(), "1".into());
            environment.insert("DOCKER_CERT_PATH".into(), variable(CERTIFICATES));
        }
        Box::new(Docker::new(Config {
            home: home.to_owned(),
            settings: docker_settings(variable(self.image), home),
            environment,
            start_dir: None,
            credential_files: Vec::new(),
            credential_root: home.to_owned(),
        }))
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("image".to_owned(), Self::variable(self.image).unwrap_or_default())])
    }

    fn bash(&self) -> bool {
        self.bash
    }

    fn scratch(&self) -> &'static str {
        // /tmp is lost with each stop of the container.
        "/workspace"
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    fn has_socket(&self) -> bool {
        self.way == Way::Socket
    }

    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        Self::private(home, task).into_iter().map(|dir| dir.join("s/sock")).find(|path| path.exists())
    }

    fn awake(&self, _home: &Path, task: &TaskName) -> Vec<String> {
        self.containers(task, "")
    }

    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let mut left = self.containers(task, "all=1&");
        left.extend(self.volumes(task));
        left.extend(Self::private(home, task).iter().map(|dir| format!("directory {}", dir.display())));
        left
    }
}

/// What a user gets who sets nothing but the image, except for the number of processes.
fn docker_settings(image: String, home: &Path) -> DockerSettings {
    DockerSettings {
        image,
        volumes: Vec::new(),
        mount_cwd_to_workspace: false,
        forward_env: Vec::new(),
        env: Vec::new(),
        network: true,
        read_only: false,
        cap_add: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"].map(String::from).to_vec(),
        pids_limit: Some(PROCESSES),
        run_as_host_user: false,
        extra_args: Vec::new(),
        persist_across_processes: true,
        orphan_reaper: true,
        sandbox_dir: home.join("sandboxes"),
        container: ContainerSettings { cpu: None, memory_mb: None, disk_mb: None, persistent: true },
    }
}
