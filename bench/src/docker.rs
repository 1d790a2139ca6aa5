//! Farshell's containers, beside the Engine API by hand.
//!
//! [`Setting`] is the engine and the image that were given.

use crate::contained::Contained;
use crate::engine_api::{Engine, Shell};
use crate::ours::Ours;
use farshell_config::settings::{ContainerSettings, DockerSettings};
use farshell_docker::{Config, Docker};
use farshell_protocol::session::Mode;
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Processes in a container: as many as the other benchmarks start at once.
const PROCESSES: u64 = 4096;

/// What a benchmark of containers needs.
#[derive(Debug)]
pub struct Setting {
    pub engine: Engine,
    /// The same engine by TCP: then Farshell can't share files with it, and reaches its outposts by an exec.
    pub far: Engine,
    pub image: String,
    address: String,
    far_address: String,
}

impl Setting {
    /// For an engine at `unix://PATH`.
    ///
    /// # Errors
    /// That is not its address, or no port is free.
    pub fn new(address: &str, image: &str) -> Result<Self> {
        let path = address.strip_prefix("unix://").ok_or("the engine's address must be unix://PATH")?;
        let far_address = forward(Path::new(path))?;
        Ok(Self {
            engine: Engine::new(address),
            far: Engine::new(&far_address),
            image: image.into(),
            address: address.into(),
            far_address,
        })
    }

    fn backend(&self, home: &Path, address: &str) -> Docker {
        let settings = DockerSettings {
            image: self.image.clone(),
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
        };
        Docker::new(Config {
            home: home.into(),
            settings,
            environment: BTreeMap::from([("DOCKER_HOST".to_owned(), address.to_owned())]),
            start_dir: None,
            credential_root: home.into(),
            credential_files: Vec::new(),
        })
    }

    /// A container whose outpost is reached by its socket.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn near(&self, task: &str) -> Result<Contained> {
        self.open(task, &self.address).await
    }

    /// A container whose outpost is reached by an exec.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn far(&self, task: &str) -> Result<Contained> {
        self.open(task, &self.far_address).await
    }

    async fn open(&self, task: &str, address: &str) -> Result<Contained> {
        let home = tempfile::tempdir()?;
        let backend = self.backend(home.path(), address);
        let ours = Ours::on(&backend, task, Mode::Live, home).await?;
        Ok(Contained::new(ours, Box::new(backend)))
    }

    /// From nothing to the first result, and to nothing again: create, start, one command; remove.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn cold_by_hand(&self) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let container = self.engine.container(&self.image).await?;
        container.exec(&["true"]).await?.drain().await?;
        Ok([begin.elapsed(), container.remove().await?])
    }

    /// The same with Farshell.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn cold(&self) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let container = self.near("cold").await?;
        container.ours.run("true").await?;
        let took = begin.elapsed();
        let begin = Instant::now();
        container.remove().await?;
        Ok([took, begin.elapsed()])
    }

    /// Many containers, each with an outpost of ours and a bare shell.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn fleet(&self, count: usize) -> Result<Fleet> {
        let mut fleet = Fleet { ours: Vec::new(), shells: Vec::new() };
        for number in 0..count {
            let container = self.near(&format!("fleet{number}")).await?;
            let known = self.engine.known(&container.ours.place());
            fleet.shells.push(Shell::start(&known).await?);
            fleet.ours.push(container);
        }
        Ok(fleet)
    }
}

/// Many containers.
#[derive(Debug)]
pub struct Fleet {
    ours: Vec<Contained>,
    shells: Vec<Shell>,
}

impl Fleet {
    /// That many commands in each container, all containers at once.
    ///
    /// # Errors
    /// One failed.
    pub async fn ours(&self, each: usize) -> Result<Duration> {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for container in &self.ours {
            let ours = container.ours.clone();
            running.spawn(async move {
                for _ in 0..each {
                    ours.run("true").await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(begin.elapsed())
    }

    /// The same in the bare shells.
    ///
    /// # Errors
    /// One failed.
    pub async fn shells(&mut self, each: usize) -> Result<Duration> {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for mut shell in self.shells.drain(..) {
            running.spawn(async move {
                for _ in 0..each {
                    shell.run("true").await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(shell)
            });
        }
        while let Some(ended) = running.join_next().await {
            self.shells.push(ended??);
        }
        Ok(begin.elapsed())
    }

    /// # Errors
    /// One can't be removed.
    pub async fn remove(self) -> Result<()> {
        for container in self.ours {
            container.remove().await?;
        }
        Ok(())
    }
}

/// A TCP address of a Unix socket, for as long as this program runs.
fn forward(socket: &Path) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = format!("tcp://{}", listener.local_addr()?);
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        for far in listener.incoming().flatten() {
            if let Ok(near) = UnixStream::connect(&socket) {
                // A connection that can't be served ends, and its user sees that.
                let _ = join(far, near);
            }
        }
    });
    Ok(address)
}

fn join(far: TcpStream, near: UnixStream) -> std::io::Result<()> {
    far.set_nodelay(true)?;
    let (mut from_far, mut to_far) = (far.try_clone()?, far);
    let (mut from_near, mut to_near) = (near.try_clone()?, near);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_far, &mut to_near);
        let _ = to_near.shutdown(Shutdown::Write);
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_near, &mut to_far);
        let _ = to_far.shutdown(Shutdown::Write);
    });
    Ok(())
}
