//! An engine, a home, and environments in it.

use farshell_config::settings::{ContainerSettings, DockerSettings};
use farshell_docker::{Config, Docker};
use farshell_engine::backend::{Backend, Place, Spec, TaskName};
pub(crate) use farshell_testing::Env;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What the rig says.
pub(crate) fn var(name: &str) -> Option<String> {
    farshell_testing::var(name, "docker")
}

/// Engines, hosts and disks of a test's own are root's to make. As another user, a test is skipped in sight.
pub(crate) fn root() -> bool {
    let root = rustix::process::getuid().is_root();
    if !root {
        eprintln!("skipped: this takes root");
    }
    root
}

/// A home and the configuration of a backend for it. Containers go with it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) home: TempDir,
    pub(crate) config: Config,
}

impl Rig {
    pub(crate) fn new() -> Option<Self> {
        Self::on(&var("FARSHELL_TEST_DOCKER")?, &var("FARSHELL_TEST_IMAGE")?)
    }

    pub(crate) fn busybox() -> Option<Self> {
        Self::on(&var("FARSHELL_TEST_DOCKER")?, &var("FARSHELL_TEST_BUSYBOX")?)
    }

    pub(crate) fn on(engine: &str, image: &str) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let mut environment: BTreeMap<String, String> =
            ["PATH", "HOME"].iter().filter_map(|n| Some(((*n).to_owned(), std::env::var(n).ok()?))).collect();
        environment.insert("DOCKER_HOST".into(), engine.into());
        let config = Config {
            home: home.path().into(),
            settings: DockerSettings {
                image: image.into(),
                volumes: Vec::new(),
                mount_cwd_to_workspace: false,
                forward_env: Vec::new(),
                env: Vec::new(),
                network: true,
                read_only: false,
                cap_add: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"].map(Into::into).into(),
                pids_limit: Some(256),
                run_as_host_user: false,
                extra_args: Vec::new(),
                persist_across_processes: true,
                orphan_reaper: true,
                sandbox_dir: home.path().join("sandboxes"),
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(512),
                    disk_mb: None,
                    persistent: true,
                },
            },
            environment,
            start_dir: None,
            credential_root: home.path().into(),
            credential_files: Vec::new(),
        };
        Some(Self { home, config })
    }

    /// The same home with other settings.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut DockerSettings)) -> Self {
        change(&mut self.config.settings);
        self
    }

    pub(crate) fn backend(&self) -> Docker {
        Docker::new(self.config.clone())
    }

    pub(crate) fn spec(&self, task: &str) -> Spec {
        let settings = BTreeMap::from([("image".to_owned(), self.config.settings.image.clone())]);
        Spec { task: TaskName::new(task).unwrap(), lease: Duration::from_secs(120), settings }
    }

    pub(crate) async fn open(&self) -> Env {
        self.open_task("default").await
    }

    pub(crate) async fn open_task(&self, task: &str) -> Env {
        Env::open(&self.backend(), &self.spec(task)).await
    }

    /// The engine's own command line.
    pub(crate) fn docker(&self, args: &[&str]) -> String {
        let output = Command::new("docker")
            .args(["-H", &self.config.environment["DOCKER_HOST"]])
            .args(args)
            .output()
            .expect("the docker program runs");
        assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        farshell_testing::remove_all(self.backend());
    }
}

/// The place of a task that is there.
pub(crate) async fn find(backend: &Docker, spec: &Spec) -> Option<Box<dyn Place>> {
    backend.find(spec).await.unwrap()
}

/// All sockets of outposts below a home.
pub(crate) fn sockets(home: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(home.join("run/docker")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("s/sock")).collect()
}
