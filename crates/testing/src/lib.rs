//! What the tests of all backends share: what the rig says, environments with a session, and how they are left.
//!
//! Nothing of it is part of a release. It panics where a test is to fail.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "for tests")]

use farshell_engine::backend::{Backend, Spec};
use farshell_engine::capture::Capture;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, Result, RunOptions};
use farshell_protocol::SessionName;
use farshell_protocol::process::{End, State, Status};
use farshell_protocol::session::Mode;
use std::collections::BTreeMap;
use std::time::Duration;

/// No command of a test takes longer, on a machine that does much else.
const TIMEOUT: Duration = Duration::from_secs(170);
/// Nor does the removal of what a test made.
const REMOVAL: Duration = Duration::from_secs(60);

/// What the rig says. Without it a test is skipped in sight, except where tests are the purpose of the run.
///
/// # Panics
/// It is not said in CI.
#[must_use]
pub fn var(name: &str, part: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
        assert!(!ci, "{name} is not set: run scripts/test {part}");
        eprintln!("skipped: {name} is not set (scripts/test {part} sets it)");
    }
    value
}

/// Removes everything that a backend finds of its home.
///
/// # Panics
/// There is no runtime to be had.
pub fn remove_all(backend: impl Backend + 'static) {
    // Not on this thread, which may be inside of a runtime.
    let removal = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let all = async {
                for found in backend.survey().await.unwrap_or_default() {
                    // With its files, which those who only clean up leave.
                    if let Some(task) = found.task.clone() {
                        let spec = Spec { task, lease: REMOVAL, settings: BTreeMap::new() };
                        if let Ok(Some(place)) = backend.find(&spec).await {
                            let _ = place.destroy().await;
                        }
                    }
                    let _ = backend.remove_found(&found).await;
                }
            };
            let _ = tokio::time::timeout(REMOVAL, all).await;
        });
    });
    let _ = removal.join();
}

/// One environment and a session in it.
#[derive(Debug)]
pub struct Env {
    pub env: Environment,
}

impl Env {
    /// # Errors
    /// The backend can't serve.
    pub async fn try_open(backend: &dyn Backend, spec: &Spec) -> Result<Self> {
        let env = Environment::open(backend, spec, SessionDefaults::plain(Mode::Live)).await?;
        Ok(Self { env })
    }

    /// # Panics
    /// The backend can't serve.
    pub async fn open(backend: &dyn Backend, spec: &Spec) -> Self {
        Self::try_open(backend, spec).await.unwrap()
    }

    /// # Errors
    /// It is not known how the command ended.
    ///
    /// # Panics
    /// Never.
    pub async fn try_run(&self, command: &str) -> Result<Ran> {
        let mut options = RunOptions::new(SessionName::new("main").unwrap(), command);
        options.timeout = Some(TIMEOUT);
        let mut capture = Capture::unlimited();
        let status = self.env.run(&options, &mut capture).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        Ok(Ran {
            status,
            lost: capture.gaps.iter().map(|(from, to)| to - from).sum(),
            stdout: text(capture.stdout.to_bytes()),
            stderr: text(capture.stderr.to_bytes()),
        })
    }

    /// # Panics
    /// It is not known how the command ended.
    pub async fn run(&self, command: &str) -> Ran {
        self.try_run(command).await.unwrap()
    }

    /// The output of a command that succeeds.
    ///
    /// # Panics
    /// It does not.
    pub async fn out(&self, command: &str) -> String {
        let ran = self.run(command).await;
        assert_eq!(ran.code(), 0, "{command}: {ran:?}");
        ran.stdout
    }

    /// The place's own name of itself.
    #[must_use]
    pub fn id(&self) -> String {
        self.env.identity().id
    }
}

/// How a command ended and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub status: Status,
    pub stdout: String,
    pub stderr: String,
    /// Bytes that were lost, and said to be.
    pub lost: u64,
}

impl Ran {
    /// As a shell tells it.
    ///
    /// # Panics
    /// It has not ended.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self.status.state {
            State::Ended(End::Exited(code)) => code,
            State::Ended(End::Signaled(signal)) => 128 + signal,
            ref other => panic!("{other:?}"),
        }
    }
}
