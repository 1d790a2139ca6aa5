//! A home, and environments in it.

use farshell_config::choice::SingularityGpu;
use farshell_config::settings::{ContainerSettings, SingularitySettings};
use farshell_engine::backend::{Backend, Place, Spec, TaskName};
use farshell_singularity::{Config, Singularity};
pub(crate) use farshell_testing::Env;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// What the rig says. The test programs that share this file are called after their parts.
pub(crate) fn var(name: &str) -> Option<String> {
    farshell_testing::var(name, env!("CARGO_CRATE_NAME"))
}

/// A home and the configuration of a backend for it. Instances go with it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) home: TempDir,
    pub(crate) config: Config,
}

impl Rig {
    /// An image file with bash.
    pub(crate) fn new() -> Option<Self> {
        Self::on(&var("FARSHELL_TEST_SIF")?)
    }

    /// A directory with busybox: nothing has to be mounted by FUSE for the image itself.
    pub(crate) fn busybox() -> Option<Self> {
        Self::on(&var("FARSHELL_TEST_SANDBOX")?)
    }

    pub(crate) fn on(image: &str) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let variables = ["PATH", "HOME", "USER", "TMPDIR"].into_iter();
        let config = Config {
            home: home.path().join("h"),
            settings: SingularitySettings {
                image: image.into(),
                binary: Some(var("FARSHELL_TEST_APPTAINER")?.into()),
                bind: Vec::new(),
                env: Vec::new(),
                gpu: SingularityGpu::None,
                pids_limit: Some(256),
                disk_image: false,
                extra_args: Vec::new(),
                slurm: None,
                scratch_dir: Some(home.path().join("s")),
                disk_warning_gb: 500.0,
                sandbox_dir: home.path().join("sandboxes"),
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(1024),
                    disk_mb: Some(2048),
                    persistent: true,
                },
            },
            environment: variables.filter_map(|n| Some((n.to_owned(), std::env::var(n).ok()?))).collect(),
            credential_root: home.path().join("hermes"),
            credential_files: Vec::new(),
        };
        Some(Self { home, config })
    }

    /// The same home with other settings.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut SingularitySettings)) -> Self {
        change(&mut self.config.settings);
        self
    }

    pub(crate) fn backend(&self) -> Singularity {
        Singularity::new(self.config.clone())
    }

    pub(crate) fn spec(&self, task: &str) -> Spec {
        let settings = [("image".to_owned(), self.config.settings.image.clone())].into();
        Spec { task: TaskName::new(task).unwrap(), lease: Duration::from_secs(120), settings }
    }

    pub(crate) async fn open(&self) -> Env {
        self.open_task("default").await
    }

    pub(crate) async fn open_task(&self, task: &str) -> Env {
        Env::open(&self.backend(), &self.spec(task)).await
    }

    pub(crate) async fn refusal(&self) -> farshell_engine::Error {
        self.backend().provision(&self.spec("default"), &()).await.unwrap_err()
    }

    pub(crate) async fn find(&self) -> Option<Box<dyn Place>> {
        self.backend().find(&self.spec("default")).await.unwrap()
    }

    /// What lies in the directory of all instances.
    pub(crate) fn noted(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.config.home.join("run/singularity"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// The private directory of the only instance.
    pub(crate) fn private(&self) -> PathBuf {
        self.noted().into_iter().find(|path| path.is_dir()).unwrap()
    }

    /// The files of the only task.
    pub(crate) fn files(&self) -> PathBuf {
        let tasks = self.home.path().join("s/tasks");
        std::fs::read_dir(tasks).unwrap().next().unwrap().unwrap().path()
    }

    /// The number of the process that holds the only instance, and those of its children.
    pub(crate) fn family(&self) -> (u32, Vec<u32>) {
        let text = std::fs::read_to_string(self.private().join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&text).unwrap();
        let pid = |process: &serde_json::Value| u32::try_from(process["pid"].as_u64().unwrap()).unwrap();
        let family = &state["family"];
        (pid(&family["parent"]), family["others"].as_array().unwrap().iter().map(pid).collect())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        farshell_testing::remove_all(self.backend());
    }
}

/// The process lives, with some of its threads at least, and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let threads: u32 = rest.split(' ').nth(17).unwrap().parse().unwrap();
    !rest.starts_with(['Z', 'X']) || threads > 1
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have ended meanwhile.
    let killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    assert!(matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)), "{killed:?}");
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
