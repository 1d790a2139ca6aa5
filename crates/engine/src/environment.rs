//! A task's place with its outpost and its settings.

use crate::backend::{Backend, Identity, Place, Spec, TaskName};
use crate::capture::Sink;
use crate::client::Outpost;
use crate::error::{Kind, Result};
use farshell_protocol::process::{OnBusy, Start, Status, Stdin, What};
use farshell_protocol::session::{Mode, OpenSession};
use farshell_protocol::{ProcessId, SessionName};
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::time::Duration;

/// A task's place, ready for commands.
#[derive(Clone, Debug)]
pub struct Environment {
    task: TaskName,
    backend: &'static str,
    place: Arc<dyn Place>,
    outpost: Outpost,
    sessions: SessionDefaults,
}

/// What a session of this environment begins with.
#[derive(Clone, Debug)]
pub struct SessionDefaults {
    pub mode: Mode,
    pub env: Vec<(ByteBuf, ByteBuf)>,
    pub clear_env: bool,
    pub cwd: Option<Vec<u8>>,
    pub init_files: Vec<ByteBuf>,
}

impl SessionDefaults {
    /// The outpost's own environment and home directory.
    #[must_use]
    pub fn plain(mode: Mode) -> Self {
        Self { mode, env: Vec::new(), clear_env: false, cwd: None, init_files: Vec::new() }
    }

    /// Opens a session that begins with these, unless it is open. True if this call opened it.
    ///
    /// # Errors
    /// Its directory can't be entered, or the place has no shell.
    pub async fn open(self, outpost: &Outpost, name: &SessionName) -> Result<bool> {
        let Self { mode, env, clear_env, cwd, init_files } = self;
        let open = OpenSession { name: name.clone(), mode, env, clear_env, cwd, init_files };
        let info = outpost.open_session(open).await.map_err(|error| match error.kind {
            Kind::NotFound | Kind::PermissionDenied | Kind::Invalid => {
                error.with_hint("a session starts in the directory that the setting cwd names")
            }
            _ => error,
        })?;
        Ok(info.created)
    }
}

/// One command, as a caller wants it run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub id: ProcessId,
    pub session: SessionName,
    pub command: Vec<u8>,
    pub workdir: Option<Vec<u8>>,
    pub timeout: Option<Duration>,
    pub grace: Duration,
    pub on_busy: OnBusy,
    pub stdin: Stdin,
    pub merge_stderr: bool,
    pub log_cap: u64,
}

impl RunOptions {
    /// A command with nothing special about it.
    #[must_use]
    pub fn new(session: SessionName, command: impl Into<Vec<u8>>) -> Self {
        Self {
            id: crate::client::new_process_id(),
            session,
            command: command.into(),
            workdir: None,
            timeout: None,
            grace: Duration::from_secs(2),
            on_busy: OnBusy::Wait,
            stdin: Stdin::Null,
            merge_stderr: false,
            log_cap: 0,
        }
    }

    fn start(&self) -> Start {
        Start {
            id: self.id.clone(),
            what: What::Session {
                session: self.session.clone(),
                command: self.command.clone(),
                workdir: self.workdir.clone(),
                on_busy: self.on_busy,
                merge_stderr: self.merge_stderr,
            },
            stdin: self.stdin,
            timeout_ms: self.timeout.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            grace_ms: u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX),
            log_cap: self.log_cap,
            attach: None,
            variables: None,
        }
    }
}

impl Environment {
    /// Finds or makes the task's place. The outpost is connected with the first request.
    ///
    /// # Errors
    /// The backend can't serve.
    pub async fn open(backend: &dyn Backend, spec: &Spec, sessions: SessionDefaults) -> Result<Self> {
        let place: Arc<dyn Place> = Arc::from(backend.provision(spec, &()).await?);
        let outpost = Outpost::new(Arc::clone(&place));
        Ok(Self { task: spec.task.clone(), backend: backend.name(), place, outpost, sessions })
    }

    #[must_use]
    pub fn task(&self) -> &TaskName {
        &self.task
    }

    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// What every result names.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.place.identity()
    }

    #[must_use]
    pub fn outpost(&self) -> &Outpost {
        &self.outpost
    }

    /// Opens the session if it is not open. True if this call opened it: its state is fresh.
    ///
    /// # Errors
    /// Its directory can't be entered, or the place has no shell.
    pub async fn ensure_session(&self, name: &SessionName) -> Result<bool> {
        self.sessions.clone().open(&self.outpost, name).await
    }

    /// Runs a command in a session and follows it to its end. The session is opened on first use; the way of
    /// every later command is one request and one answer.
    ///
    /// # Errors
    /// As [`Outpost::run`].
    pub async fn run(&self, options: &RunOptions, sink: &mut dyn Sink) -> Result<Status> {
        match self.outpost.run(options.start(), sink).await {
            // Nothing ran: the session is not there (any more).
            Err(error) if error.kind == Kind::NotFound => {
                self.ensure_session(&options.session).await?;
                self.outpost.run(options.start(), sink).await
            }
            other => other,
        }
    }

    /// Ends everything of this environment.
    ///
    /// # Errors
    /// Something may be left.
    pub async fn destroy(&self) -> Result<()> {
        self.place.destroy().await
    }
}
