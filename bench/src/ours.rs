//! Farshell's own side of each comparison: the engine's client on a backend, which is the local one unless said.

use farshell_engine::backend::Backend;
use farshell_engine::capture::{Capture, Discard};
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, Outpost, RunOptions, Spec, TaskName};
use farshell_protocol::SessionName;
use farshell_protocol::process::{End, Start, State, What};
use farshell_protocol::session::Mode;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An environment of its own, with one session.
#[derive(Clone, Debug)]
pub struct Ours {
    environment: Environment,
    session: SessionName,
    spec: Spec,
    _home: Arc<tempfile::TempDir>,
}

impl Ours {
    /// # Errors
    /// The local backend can't serve.
    pub async fn open(task: &str, mode: Mode) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let local = farshell_local::Local::new(farshell_local::Config { home: home.path().into() });
        Self::on(&local, task, mode, home).await
    }

    /// # Errors
    /// The backend can't serve.
    pub async fn on(backend: &dyn Backend, task: &str, mode: Mode, home: tempfile::TempDir) -> Result<Self> {
        let spec = Spec {
            task: TaskName::new(task)?,
            lease: Duration::from_secs(600),
            settings: Default::default(),
        };
        let environment = Environment::open(backend, &spec, SessionDefaults::plain(mode)).await?;
        let session = SessionName::new("bench")?;
        environment.ensure_session(&session).await?;
        Ok(Self { environment, session, spec, _home: Arc::new(home) })
    }

    pub(crate) fn outpost(&self) -> &Outpost {
        self.environment.outpost()
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The place's own name of itself.
    pub(crate) fn place(&self) -> String {
        self.environment.identity().id
    }

    /// One command from request to status.
    ///
    /// # Errors
    /// It failed.
    pub async fn run(&self, command: &str) -> Result<Duration> {
        let options = RunOptions::new(self.session.clone(), command);
        let mut output = Capture::new(1 << 10);
        let start = Instant::now();
        let status = self.environment.run(&options, &mut output).await?;
        let took = start.elapsed();
        if status.state != State::Ended(End::Exited(0)) {
            return Err(format!("{command:.40}: {:?}", status.state).into());
        }
        if status.output.open {
            // What a background command left running is not part of the next sample.
            self.environment.outpost().kill(vec![options.id], Duration::ZERO).await?;
        }
        Ok(took)
    }

    /// A command whose output is moved to this process and thrown away.
    ///
    /// # Errors
    /// It failed, or printed another number of bytes.
    pub async fn output(&self, script: &str, bytes: u64) -> Result<Duration> {
        let options = RunOptions::new(self.session.clone(), script);
        let start = Instant::now();
        let status = self.environment.run(&options, &mut Discard).await?;
        let took = start.elapsed();
        if status.output.stdout != bytes {
            return Err(format!("{} bytes instead of {bytes}", status.output.stdout).into());
        }
        Ok(took)
    }

    /// Starts `count` background processes, then kills them all.
    ///
    /// # Errors
    /// One could not be started, or is left.
    pub async fn many_processes(&self, count: usize) -> Result<[Duration; 2]> {
        let outpost = self.environment.outpost();
        let begin = Instant::now();
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            let id = farshell_engine::client::new_process_id();
            let argv = ["sleep", "1000"].map(|a| serde_bytes::ByteBuf::from(a.as_bytes())).to_vec();
            let what = What::Exec { argv, surroundings: Default::default() };
            outpost.start(Start::new(id.clone(), what)).await?;
            ids.push(id);
        }
        let started = begin.elapsed();
        let begin = Instant::now();
        let killed = outpost.kill(ids, Duration::from_secs(2)).await?;
        let took = begin.elapsed();
        if killed.iter().any(|(_, k)| k.killed != 1 || k.left != 0) {
            return Err("not all processes were killed".into());
        }
        Ok([started, took])
    }

    /// Most memory that the outpost and this process had at any time, in KiB.
    ///
    /// # Errors
    /// The outpost can't be asked.
    pub async fn peak_memory(&self) -> Result<(u64, u64)> {
        let pid = self.environment.outpost().info().await?.identity.pid;
        Ok((peak(&pid.to_string())?, peak("self")?))
    }

    /// # Errors
    /// The outpost can't be ended.
    pub async fn close(self) -> Result<()> {
        Ok(self.environment.destroy().await?)
    }
}

fn peak(pid: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.starts_with("VmHWM")).ok_or("no VmHWM")?;
    Ok(line.split_ascii_whitespace().nth(1).ok_or("no number")?.parse()?)
}
