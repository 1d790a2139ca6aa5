//! Running `ssh`.

use crate::config::Config;
use crate::error;
use farshell_engine::{Error, Result};
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::Instant;

/// How much of what is complained about is kept.
const COMPLAINT: usize = 8 << 10;

/// The user's `ssh`, with the variables of whoever asks. It is killed when it is dropped.
pub(crate) fn command(config: &Config, args: &[OsString]) -> Command {
    let mut command = Command::new("ssh");
    command.args(args).env_clear().envs(&config.environment);
    // Its messages are read here.
    command.env("LC_ALL", "C");
    if config.variable("SSH_ASKPASS").is_some() {
        // Without this it asks at the terminal of whoever started the server.
        command.env("SSH_ASKPASS_REQUIRE", "force");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    // Keys pressed at a terminal are for somebody else.
    command.process_group(0);
    command
}

/// What a program says on its standard error, as it comes. The rest of too much is read and dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaint(Arc<Mutex<(Vec<u8>, bool)>>);

impl Complaint {
    pub(crate) fn hear(stderr: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let complaint = Self::default();
        let Some(mut stderr) = stderr else { return complaint };
        let heard = complaint.clone();
        tokio::spawn(async move {
            let mut buf = [0; 1024];
            while let Ok(n @ 1..) = stderr.read(&mut buf).await {
                let mut kept = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
                let room = COMPLAINT - kept.0.len();
                kept.0.extend_from_slice(&buf[..n.min(room)]);
            }
            heard.0.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        });
        complaint
    }

    /// All of it, after the program has ended.
    pub(crate) async fn text(&self) -> String {
        self.text_within(Duration::from_millis(500)).await
    }

    /// What comes of it within this time. A proxy that the program started holds its standard error open.
    async fn text_within(&self, limit: Duration) -> String {
        let deadline = Instant::now() + limit;
        loop {
            {
                let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.1 || Instant::now() >= deadline {
                    return String::from_utf8_lossy(&kept.0).into_owned();
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Runs `ssh` to its end and gives its status and what it complained about.
pub(crate) async fn run(
    config: &Config,
    what: &str,
    args: &[OsString],
    limit: Duration,
) -> Result<Option<(ExitStatus, String)>> {
    let mut child = command(config, args).spawn().map_err(|e| not_started(what, e))?;
    let complaint = Complaint::hear(child.stderr.take());
    match tokio::time::timeout(limit, child.wait()).await {
        Ok(status) => {
            let status = status.map_err(|e| Error::io(what, e))?;
            // Who succeeds has little to complain about.
            let limit = Duration::from_millis(if status.success() { 20 } else { 500 });
            Ok(Some((status, complaint.text_within(limit).await)))
        }
        Err(_) => {
            let _ = child.kill().await;
            Ok(None)
        }
    }
}

pub(crate) fn not_started(what: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return error::no_client(what);
    }
    Error::io(what, error)
}
