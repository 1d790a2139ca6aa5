//! The part of the engine that remembers: environments with a life of their own, background processes and events.
//!
//! Everything that can be asked of Farshell goes through a [`Keeper`]: the HTTP API, the agent's tools and the
//! tests are callers of the same methods. Its types are those of the API.

use farshell_api::environment::{Environment, GcRequest, GcResult, RemoveRequest, RemoveResult};
use farshell_api::event::{AckRequest, EventList, EventQuery};
use farshell_api::process::{
    KillRequest, KillResult, LogPiece, LogQuery, Process, ProcessQuery, Screen, SignalRequest, StdinRequest,
    StdinResult, WaitRequest,
};
use farshell_api::run::{RunRequest, RunResult, Size, StartRequest};
use farshell_api::server::Counts;
use farshell_api::stream::Open;
use farshell_config::Settings;
use farshell_engine::capture::Sink;
use farshell_engine::{Backend, Error, Kind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The backends of this build.
pub trait Backends: Send + Sync + std::fmt::Debug {
    /// The selected backend. There is no other one that could stand in for it.
    ///
    /// # Errors
    /// It is not part of this build.
    fn open(&self, settings: &Settings, home: &Path) -> Result<Arc<dyn Backend>>;

    /// All of them that can be asked for what they hold without being selected, for the reaper and `gc`.
    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>>;
}

/// What a keeper needs to begin.
#[derive(Clone, Debug)]
pub struct Options {
    /// `$HERMES_HOME`.
    pub home: PathBuf,
    pub backends: Arc<dyn Backends>,
}

/// Owner of all environments of one home.
#[derive(Clone, Debug)]
pub struct Keeper {
    _inner: Arc<()>,
}

/// How a stream came to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEnd {
    Ended(Process),
    /// The process goes on without it.
    Detached(Process, String),
}

/// A process that is about to be followed.
#[derive(Debug)]
pub struct Stream {
    /// As it was when the stream was opened. One that the stream starts has not begun yet.
    pub process: Process,
    pub stdin_taken: u64,
    /// Asked for with `screen`: what to draw, and where output goes on.
    pub screen: Option<(Vec<u8>, u64)>,
}

/// What can be done to a process while its stream is followed.
#[derive(Clone, Debug)]
pub struct Control {}

fn not_yet() -> Error {
    Error::new(Kind::Unavailable, "keeping", "not built yet")
}

impl Keeper {
    /// Opens the state of a home and takes up what an earlier keeper left: environments are found again,
    /// processes followed on, and what died meanwhile is said.
    ///
    /// # Errors
    /// The state can't be opened.
    pub async fn open(_options: Options) -> Result<Self> {
        Err(not_yet())
    }

    /// What a person should know since the start: a database that was moved aside, say.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// A foreground command, to its end.
    pub async fn run(&self, _request: RunRequest) -> Result<RunResult> {
        Err(not_yet())
    }

    /// A background process: returns when it is recorded and started.
    pub async fn start(&self, _request: StartRequest) -> Result<Process> {
        Err(not_yet())
    }

    /// Opens a stream. `progress` is told what takes long.
    pub async fn stream(&self, _open: Open, _progress: &(dyn Fn(&str) + Send + Sync)) -> Result<Stream> {
        Err(not_yet())
    }

    pub async fn process(&self, _id: &str) -> Result<Process> {
        Err(not_yet())
    }

    pub async fn processes(&self, _query: ProcessQuery) -> Result<Vec<Process>> {
        Err(not_yet())
    }

    pub async fn log(&self, _id: &str, _query: LogQuery) -> Result<LogPiece> {
        Err(not_yet())
    }

    pub async fn wait(&self, _id: &str, _request: WaitRequest) -> Result<Process> {
        Err(not_yet())
    }

    pub async fn stdin(&self, _id: &str, _request: StdinRequest) -> Result<StdinResult> {
        Err(not_yet())
    }

    pub async fn kill(&self, _id: &str, _request: KillRequest) -> Result<KillResult> {
        Err(not_yet())
    }

    pub async fn signal(&self, _id: &str, _request: SignalRequest) -> Result<()> {
        Err(not_yet())
    }

    pub async fn resize(&self, _id: &str, _size: Size) -> Result<()> {
        Err(not_yet())
    }

    pub async fn screen(&self, _id: &str) -> Result<Screen> {
        Err(not_yet())
    }

    pub async fn environments(&self) -> Result<Vec<Environment>> {
        Err(not_yet())
    }

    /// By key or task.
    pub async fn environment(&self, _name: &str) -> Result<Environment> {
        Err(not_yet())
    }

    pub async fn remove(&self, _request: RemoveRequest) -> Result<RemoveResult> {
        Err(not_yet())
    }

    pub async fn gc(&self, _request: GcRequest) -> Result<GcResult> {
        Err(not_yet())
    }

    pub async fn events(&self, _query: EventQuery) -> Result<EventList> {
        Err(not_yet())
    }

    pub async fn ack(&self, _request: AckRequest) -> Result<()> {
        Err(not_yet())
    }

    pub async fn counts(&self) -> Result<Counts> {
        Err(not_yet())
    }

    /// Returns when nothing has been alive for so long: no environment, no process, no call.
    pub async fn idle_for(&self, _time: Duration) {
        std::future::pending().await
    }

    /// Lets go of everything in order: records are complete, environments live on (or are removed, if asked).
    pub async fn close(&self, _remove_environments: bool) -> Result<()> {
        Err(not_yet())
    }
}

impl Stream {
    /// To be used while [`Stream::follow`] runs.
    #[must_use]
    pub fn control(&self) -> Control {
        Control {}
    }

    /// Starts the process if the stream was opened for that, and follows it to its end.
    pub async fn follow(self, _sink: &mut dyn Sink) -> Result<StreamEnd> {
        Err(not_yet())
    }
}

impl Control {
    /// Sends input at an offset; returns all that was taken so far.
    pub async fn stdin(&self, _offset: u64, _bytes: Vec<u8>, _eof: bool) -> Result<u64> {
        Err(not_yet())
    }

    pub async fn signal(&self, _signal: &str) -> Result<()> {
        Err(not_yet())
    }

    pub async fn resize(&self, _size: Size) -> Result<()> {
        Err(not_yet())
    }

    pub async fn kill(&self) -> Result<KillResult> {
        Err(not_yet())
    }
}
