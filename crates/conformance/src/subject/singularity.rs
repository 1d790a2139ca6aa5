//! Instances of Apptainer.
//!
//! `scripts/rig/apptainer.sh` brings it here; variables say where it is.

use super::Subject;
use farshell_config::choice::SingularityGpu;
use farshell_config::settings::{ContainerSettings, SingularitySettings, Slurm};
use farshell_engine::backend::{Backend, TaskName};
use farshell_singularity::{Config, Singularity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An image with bash.
pub(super) const DEBIAN: Instances =
    Instances { name: "singularity", image: "FARSHELL_TEST_SIF", bash: true, jobs: false };

/// A directory with nothing but busybox.
pub(super) const BUSYBOX: Instances =
    Instances { name: "singularity-busybox", image: "FARSHELL_TEST_SANDBOX", bash: false, jobs: false };

/// An image with bash, in jobs of Slurm's.
pub(super) const SLURM: Instances =
    Instances { name: "slurm", image: "FARSHELL_TEST_SIF", bash: true, jobs: true };

/// Slurm's configuration.
const CLUSTER: &str = "FARSHELL_TEST_SLURM";

/// Where the program is.
const PROGRAM: &str = "FARSHELL_TEST_APPTAINER";

/// Cases start hundreds of processes at once. The limit that users get has tests of its own.
const PROCESSES: u64 = 4096;

/// Instances of one image.
#[derive(Debug)]
pub(super) struct Instances {
    name: &'static str,
    /// The variable that holds the image's path.
    image: &'static str,
    bash: bool,
    jobs: bool,
}

fn variable(name: &str) -> Result<String, String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("no {name}; scripts/test singularity and slurm set it"))
}

/// What a directory holds that begins with a task's name.
fn entries(dir: &Path, task: &TaskName) -> Vec<PathBuf> {
    let start = format!("farshell-{}-", task.as_str());
    let ours = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(ours).collect()
}

fn run(home: &Path) -> PathBuf {
    home.join("run/singularity")
}

/// The processes of the machine whose arguments name a task's files: instances and their file systems.
fn processes(task: &TaskName) -> Vec<String> {
    let start = format!("farshell-{}-", task.as_str());
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let args = all.filter_map(|entry| {
        let args = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&args).replace('\0', " "))
    });
    args.filter(|args| args.contains(&start)).map(|args| format!("process {args}")).collect()
}

impl Subject for Instances {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Result<(), String> {
        variable(PROGRAM)?;
        if self.jobs {
            variable(CLUSTER)?;
        }
        variable(self.image).map(|_| ())
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        let variables = ["PATH", "HOME", "USER", "TMPDIR"].into_iter();
        let cluster = self.jobs.then(|| Some(("SLURM_CONF".to_owned(), variable(CLUSTER).ok()?))).flatten();
        Box::new(Singularity::new(Config {
            home: home.to_owned(),
            settings: SingularitySettings {
                image: variable(self.image).unwrap_or_default(),
                binary: variable(PROGRAM).ok().map(PathBuf::from),
                bind: Vec::new(),
                env: Vec::new(),
                gpu: SingularityGpu::None,
                pids_limit: Some(PROCESSES),
                disk_image: false,
                extra_args: Vec::new(),
                slurm: self.jobs.then(|| Slurm { memory: Some("100M".into()), ..Slurm::default() }),
                scratch_dir: None,
                disk_warning_gb: 500.0,
                sandbox_dir: home.join("sandboxes"),
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(5120),
                    disk_mb: Some(51200),
                    persistent: true,
                },
            },
            environment: variables
                .filter_map(|n| Some((n.to_owned(), std::env::var(n).ok()?)))
                .chain(cluster)
                .collect(),
            credential_root: home.to_owned(),
            credential_files: Vec::new(),
        }))
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("image".to_owned(), variable(self.image).unwrap_or_default())])
    }

    fn bash(&self) -> bool {
        self.bash
    }

    fn scratch(&self) -> &'static str {
        // /tmp is lost with each end of the instance.
        "/workspace"
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    fn wakes(&self) -> bool {
        // A job has to wait in a queue, and whoever waits is to be told.
        !self.jobs
    }

    fn has_socket(&self) -> bool {
        !self.jobs
    }

    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        let dirs = entries(&run(home), task).into_iter().filter(|_| !self.jobs);
        dirs.map(|dir| dir.join("s/sock")).find(|path| path.exists())
    }

    fn awake(&self, _home: &Path, task: &TaskName) -> Vec<String> {
        processes(task)
    }

    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let mut left = processes(task);
        for dir in [run(home), home.join("sandboxes/singularity/tasks")] {
            left.extend(entries(&dir, task).iter().map(|path| format!("file {}", path.display())));
        }
        left
    }
}
