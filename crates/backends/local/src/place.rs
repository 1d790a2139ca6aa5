//! [`Place`] on this machine: a directory with an outpost in it.

use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Place, TaskName};
use farshell_engine::machine::Machine;
use farshell_engine::{Error, Kind, Outpost, Result};
use sha2::{Digest, Sha256};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::process::Command;

/// Variables that the outpost itself reads, or passes on to processes that ask for its environment.
const NEEDED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "FARSHELL_SHELL"];

/// The directory of a task's outpost.
///
/// Host and boot are part of it: a home that several machines share, or one from before a restart, never
/// leads to a socket that nobody here listens on.
#[must_use]
pub fn run_dir(home: &Path, task: &TaskName) -> PathBuf {
    home.join("run").join(format!("{}-{}", task.as_str(), mark_of(&Machine::this())))
}

/// What the names of a machine's directories end with.
pub(crate) fn mark_of(machine: &Machine) -> String {
    let digest = Sha256::digest(format!("{}\n{}\nlocal", machine.host, machine.boot));
    digest[..4].iter().map(|b| format!("{b:02x}")).collect()
}

#[derive(Clone, Debug)]
pub(crate) struct LocalPlace {
    program: PathBuf,
    dir: PathBuf,
    lease: Duration,
}

impl LocalPlace {
    pub(crate) fn new(program: PathBuf, dir: PathBuf, lease: Duration) -> Self {
        Self { program, dir, lease }
    }

    /// Connects to an outpost that runs, and starts none.
    pub(crate) async fn try_connect(&self) -> std::io::Result<UnixStream> {
        // By way of a descriptor, since a socket's address is shorter than a path can be.
        let flags = (rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH).bits().cast_signed();
        let handle = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&self.dir)?;
        UnixStream::connect(format!("/proc/self/fd/{}/sock", handle.as_raw_fd())).await
    }

    /// Starts the outpost's daemon, unless there is one.
    async fn start(&self) -> Result<()> {
        let what = "starting the outpost";
        let mut patience = 100;
        let output = loop {
            let mut command = Command::new(&self.program);
            command
                .arg("start")
                .arg("--dir")
                .arg(&self.dir)
                .arg("--lease")
                .arg(self.lease.as_secs().to_string());
            // The daemon outlives the caller, and commands can read its environment: it gets what it needs itself.
            command.env_clear().envs(NEEDED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
            match command.stdin(Stdio::null()).output().await {
                Ok(output) => break output,
                // Another process that installs it at this moment still has it open for writing.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && patience > 0 => {
                    patience -= 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => {
                    let noexec = error.kind() == std::io::ErrorKind::PermissionDenied;
                    let error = Error::io(format!("{what} {}", self.program.display()), error);
                    let hint =
                        "if the home is on a file system mounted noexec, set HERMES_HOME to another one";
                    return Err(if noexec { error.with_hint(hint) } else { error });
                }
            }
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let message = said.trim().trim_start_matches("farshell-outpost: ").to_owned();
        let message = if message.is_empty() { output.status.to_string() } else { message };
        Err(Error::new(Kind::Unavailable, what, message)
            .with_hint(format!("its directory is {}", self.dir.display())))
    }
}

impl Place for LocalPlace {
    fn identity(&self) -> Identity {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let machine = machine.trim();
        let id = if machine.is_empty() { name.clone() } else { machine.to_owned() };
        Identity { name, id }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async move {
            let stream = match self.try_connect().await {
                Ok(stream) => stream,
                Err(_) => {
                    self.start().await?;
                    self.try_connect().await.map_err(|e| {
                        // It listened a moment ago: it has ended since, or somebody removed its directory.
                        Error::new(Kind::Disconnected, "connecting to the outpost", e.to_string())
                    })?
                }
            };
            ByteStream::of_socket(stream)
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // No directory means nothing to end. A directory without an outpost is what a killed one left: a new
            // one finds what survived, and ends it.
            if !self.dir.exists() {
                return Ok(());
            }
            let outpost = Outpost::new(Arc::new(self.clone()));
            outpost.shutdown().await?;
            // It removes its directory as its last act.
            let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
            while self.dir.exists() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }
}
