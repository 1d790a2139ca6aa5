//! Farshell in instances of Apptainer, beside Apptainer by hand.

use crate::contained::Contained;
use crate::hermes::Hermes;
use crate::limits::Shell;
use crate::ours::Ours;
use crate::stats::{Bench, Column, Metric, Weight, on};
use farshell_config::choice::SingularityGpu;
use farshell_config::settings::{ContainerSettings, SingularitySettings};
use farshell_protocol::session::Mode;
use farshell_singularity::{Config, Singularity};
use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An Apptainer, and what its instances are made of.
#[derive(Clone, Debug)]
pub struct Image {
    pub program: PathBuf,
    pub image: PathBuf,
}

impl Image {
    fn backend(&self, home: &Path) -> Singularity {
        Singularity::new(Config {
            home: home.into(),
            settings: SingularitySettings {
                image: self.image.to_string_lossy().into_owned(),
                binary: Some(self.program.clone()),
                bind: Vec::new(),
                env: Vec::new(),
                gpu: SingularityGpu::None,
                pids_limit: None,
                disk_image: false,
                extra_args: Vec::new(),
                slurm: None,
                scratch_dir: None,
                disk_warning_gb: 500.0,
                sandbox_dir: home.join("sandboxes"),
                container: ContainerSettings { cpu: None, memory_mb: None, disk_mb: None, persistent: true },
            },
            environment: std::env::vars().collect(),
            credential_root: home.into(),
            credential_files: Vec::new(),
        })
    }

    async fn open(&self, task: &str) -> Result<Contained> {
        let home = tempfile::tempdir()?;
        let backend = self.backend(home.path());
        let ours = Ours::on(&backend, task, Mode::Live, home).await?;
        Ok(Contained::new(ours, Box::new(backend)))
    }

    /// A bare bash in a container that lasts as long as it: nothing that Apptainer offers is there sooner.
    fn shell(&self) -> Result<Shell> {
        let mut command = Command::new(&self.program);
        command.args(["--silent", "exec", "--containall", "--no-home", "--writable-tmpfs"]).arg(&self.image);
        Shell::of(command.args(["bash", "--norc", "--noprofile"]))
    }

    /// From nothing to the first result, and to nothing again.
    fn cold_by_hand(&self) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let mut shell = self.shell()?;
        shell.run("true")?;
        let took = begin.elapsed();
        let begin = Instant::now();
        drop(shell);
        Ok([took, begin.elapsed()])
    }

    async fn cold(&self) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let instance = self.open("cold").await?;
        instance.ours.run("true").await?;
        let took = begin.elapsed();
        let begin = Instant::now();
        instance.remove().await?;
        Ok([took, begin.elapsed()])
    }
}

/// What the rows need.
#[derive(Debug)]
pub struct Instances {
    image: Image,
    warm: Contained,
    hermes: Option<RefCell<Hermes>>,
}

impl Instances {
    /// # Errors
    /// No instance can be started.
    pub fn open(image: Image, hermes: Option<&Path>, runtime: &Runtime) -> Result<Self> {
        let hermes = hermes.map(|python| Hermes::start_in_instance(python, &image.program, &image.image));
        let hermes = hermes.transpose()?.map(RefCell::new);
        let warm = runtime.block_on(image.open("warm"))?;
        Ok(Self { image, warm, hermes })
    }

    /// # Errors
    /// No instance can be started.
    pub fn rows<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime, local: &'a Ours) -> Result<()> {
        let group = bench
            .group(Weight::Light, vec![Metric::time("singularity: builtin, limit: our local")])
            .case(Column::Limit, on(runtime, async || Ok(vec![local.run("true").await?])))
            .case(Column::Ours, on(runtime, async || Ok(vec![self.warm.ours.run("true").await?])));
        if let Some(hermes) = &self.hermes {
            group.case(Column::Hermes, || Ok(vec![hermes.borrow_mut().run("true")?]));
        }
        for (name, command) in [("singularity: builtin", "true"), ("singularity: external", "/bin/true")] {
            let mut shell = self.image.shell()?;
            bench
                .group(Weight::Light, vec![Metric::time(name)])
                .case(Column::Limit, move || Ok(vec![shell.run(command)?]))
                .case(Column::Ours, on(runtime, async move || Ok(vec![self.warm.ours.run(command).await?])));
        }
        let metrics = vec![Metric::time("singularity: cold start"), Metric::time("singularity: removal")];
        bench
            .group(Weight::Heavy, metrics)
            .case(Column::Limit, || Ok(self.image.cold_by_hand()?.to_vec()))
            .case(Column::Ours, on(runtime, async || Ok(self.image.cold().await?.to_vec())));
        Ok(())
    }

    /// # Errors
    /// The instance can't be removed.
    pub async fn close(self) -> Result<()> {
        self.warm.remove().await
    }
}
