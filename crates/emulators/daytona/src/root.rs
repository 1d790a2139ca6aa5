//! A private root: a process namespace whose first process is ours, with a root directory of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// How long a sandbox may take to come up or go down. A loaded machine takes a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox that runs.
#[derive(Debug)]
pub(crate) struct Root {
    /// `unshare`, which waits for the namespace's first process.
    child: Child,
    /// The namespace lives as long as this is open.
    life: Option<ChildStdin>,
}

/// Where the daemon of a sandbox with this directory listens.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("root").join(crate::inside::SOCKET)
}

impl Root {
    pub(crate) async fn start(dir: &Path, name: &str, env: &BTreeMap<String, String>) -> io::Result<Self> {
        let root = dir.join("root");
        std::fs::create_dir_all(&root)?;
        // For people, and for tests that look for what is left.
        std::fs::write(dir.join("name"), name)?;
        let mut command = Command::from(farshell_emulator_inside::namespaces(&[])?);
        command.arg("init").arg(&root);
        for (name, value) in env {
            command.arg(format!("{name}={value}"));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let life = child.stdin.take();
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout);
            let _ = tokio::time::timeout(PATIENCE, lines.read_line(&mut said)).await;
        }
        if said.trim() != "ready" {
            return Err(io::Error::other(format!("the sandbox did not come up: {said}")));
        }
        Ok(Self { child, life })
    }

    /// Ends every process in it.
    pub(crate) async fn stop(mut self) {
        drop(self.life.take());
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}
