//! The part of the engine that remembers: environments with a life of their own, background processes and events.
//!
//! Everything that can be asked of Farshell goes through a [`Keeper`]: the HTTP API, the agent's tools and the
//! tests are callers of the same methods. Its types are those of the API.
//!
//! # The way of a command
//! 1. The request is checked, the settings of its caller are read (`resolve`), and with them the environment is
//!    found that is meant.
//! 2. It is judged, and a person is asked if need be (`gate`). What may not run leaves no trace but in the audit log.
//! 3. The environment is entered, and made if it is not there (`environments`). While somebody is in it, it is
//!    not put away (`slot`, `reaper`).
//! 4. A foreground command runs under its caller's eyes and is recorded nowhere: its outpost knows it
//!    (`foreground`). A background process is recorded before it is started, and its end is recorded once
//!    (`background`).
//!
//! # After a crash
//! The records say which environments there may be and which processes have not ended. Each environment is
//! connected to again and asked (`recovery`). What can't be known is said to be lost.
//!
//! | module | question |
//! |---|---|
//! | `resolve`, `spec`, `sessions`, `variables` | what does a caller mean, and what counts for it? |
//! | `request` | can it be done? |
//! | `gate`, `rules`, `approvals`, `denial`, `audit` | may it be done? |
//! | `askpass` | whose password? |
//! | `environments`, `slot`, `demand`, `place`, `shells`, `shown`, `progress` | where? |
//! | `ending`, `reaper`, `removal`, `gc` | when does that end? |
//! | `foreground`, `recent`, `promotion`, `background`, `watching`, `watch` | what runs? |
//! | `processes`, `logs`, `screen`, `streams` | how is it seen and steered? |
//! | `files` | what is in the place? |
//! | `recovery`, `events` | what was, and what happened? |
//! | `result`, `signals`, `alive`, `tasks` | tools |

mod alive;
mod approvals;
mod askpass;
mod audit;
mod background;
mod demand;
mod denial;
mod ending;
mod environments;
mod events;
mod files;
mod foreground;
mod gate;
mod gc;
mod logs;
mod place;
mod processes;
mod progress;
mod promotion;
mod reaper;
mod recent;
mod recovery;
mod removal;
mod request;
mod resolve;
mod resting;
mod result;
mod rules;
mod screen;
mod sessions;
mod shells;
mod shown;
mod signals;
mod slot;
mod spec;
mod streams;
mod tasks;
mod variables;
mod watch;
mod watching;

use alive::Alive;
use background::Unfinished;
use environments::Environments;
use farshell_api::approval::{AnswerRequest, Answered, ApprovalList, ApprovalQuery, Surface};
use farshell_api::audit::{AuditList, AuditQuery, AuditReport};
use farshell_api::environment::{Environment, GcRequest, GcResult, RemoveRequest, RemoveResult};
use farshell_api::event::{AckRequest, EventKind, EventList, EventQuery};
use farshell_api::process::{
    KillRequest, KillResult, LogPiece, LogQuery, Process, ProcessQuery, Screen, SignalRequest, StdinRequest,
    StdinResult, WaitRequest,
};
use farshell_api::run::{RunRequest, RunResult, Size, StartRequest, Target};
use farshell_api::server::Counts;
use farshell_api::stream::Open;
use farshell_api::{ApiError, Millis};
use farshell_config::Settings;
use farshell_engine::backend::News;
use farshell_engine::{Backend, Error, Kind, Result, Retry};
use farshell_policy::Redactor;
use farshell_store::Store;
use foreground::Run;
use gate::Gate;
use processes::{Known, Reached};
use recent::Recent;
use request::{Plan, Way};
use resolve::{Resolver, World};
use serde_json::json;
use slot::Common;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use streams::Work;
use tokio::sync::watch as signal;

pub use farshell_config::settings::Secret;
pub use files::Files;
pub use gate::{Deed, Permit};
pub use progress::{Observer, Passwords};
pub use result::run_result;

/// The backends of this build.
pub trait Backends: Send + Sync + std::fmt::Debug {
    /// The selected backend. There is no other one that could stand in for it.
    ///
    /// # Errors
    /// It is not part of this build.
    fn open(&self, settings: &Settings, asker: &Asker<'_>) -> Result<Arc<dyn Backend>>;

    /// All of them that can be asked for what they hold without being selected, for `gc`.
    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>>;

    /// Those from which dead things that no record claims are removed without being asked to.
    fn swept(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        self.all(home)
    }
}

/// Who asks for a backend, as far as that decides which one it is.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// `$HERMES_HOME`.
    pub home: &'a Path,
    /// Its variables: some say where an engine is.
    pub environment: &'a BTreeMap<String, String>,
    /// The directory of this machine that the place is to share, if there is to be one.
    pub start_dir: Option<&'a Path>,
}

/// What a keeper needs to begin.
#[derive(Clone, Debug)]
pub struct Options {
    /// `$HERMES_HOME`.
    pub home: PathBuf,
    pub backends: Arc<dyn Backends>,
}

/// Owner of all environments of one home, and in whose name it is asked.
#[derive(Clone, Debug)]
pub struct Keeper {
    inner: Arc<Inner>,
    by: Arc<Origin>,
}

/// In whose name something is asked for. A server says what it knows of its callers; they don't say it of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub surface: Surface,
    /// The program that asks, as it calls itself.
    pub client: Option<String>,
}

#[derive(Debug)]
struct Inner {
    common: Arc<Common>,
    resolver: Arc<Resolver>,
    environments: Arc<Environments>,
    /// Background processes whose end is not recorded.
    unfinished: Mutex<HashMap<String, Arc<Unfinished>>>,
    recent: Mutex<Recent>,
    /// Who sends input to which process, one at a time.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    breaker: watch::Breaker,
    gate: Gate,
    warnings: Vec<String>,
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
    /// The outpost that has it, see [`farshell_api::stream::AttachTo::instance`].
    pub instance: Option<String>,
    /// Asked for with `screen`: what to draw, and where output goes on.
    pub screen: Option<(Vec<u8>, u64)>,
    inner: Arc<Inner>,
    work: Work,
    over: signal::Sender<bool>,
}

/// What can be done to a process while its stream is followed.
#[derive(Clone, Debug)]
pub struct Control {
    inner: Arc<Inner>,
    /// Absent if there is nothing left to be steered.
    to: Option<Box<(Reached, Known)>>,
    over: signal::Receiver<bool>,
}

/// Milliseconds since the epoch.
fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn closed() -> Error {
    Error::new(Kind::Unavailable, "keeping environments", "the server is ending")
        .with_hint("call again: that starts another one")
}

/// An error of the store, in the engine's words.
fn from_store(error: farshell_store::Error) -> Error {
    use farshell_store::Kind as Stored;
    let kind = match error.kind {
        Stored::Full => Kind::Exhausted,
        Stored::Locked => Kind::Busy,
        Stored::Readonly => Kind::PermissionDenied,
        Stored::Newer | Stored::Closed => Kind::Unavailable,
        Stored::Invalid => Kind::Invalid,
        Stored::NotFound => Kind::NotFound,
        Stored::AlreadyExists => Kind::AlreadyExists,
        Stored::Corrupt | Stored::Io => Kind::System,
    };
    let engine = Error::new(kind, error.operation.clone(), error.message.clone());
    let engine = match &error.hint {
        Some(hint) => engine.with_hint(hint.clone()),
        None => engine,
    };
    engine.with_source(error)
}

/// An error in the API's words.
fn api_error(error: &Error) -> ApiError {
    ApiError {
        kind: error.kind.name().to_owned(),
        operation: error.operation.clone(),
        message: error.message.clone(),
        hint: error.hint.clone(),
        retry: match error.retry() {
            Retry::Never => "never",
            Retry::Safe => "safe",
            Retry::Unsafe => "unsafe",
        }
        .to_owned(),
    }
}

impl Inner {
    fn unfinished(&self) -> MutexGuard<'_, HashMap<String, Arc<Unfinished>>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Opens the state of a home and takes up what an earlier keeper left: environments are found again,
    /// processes followed on, and what died meanwhile is said.
    ///
    /// # Errors
    /// The state can't be opened.
    pub async fn open(options: Options) -> Result<Self> {
        let dir = options.home.join("farshell");
        make_private(&dir)?;
        let (store, warnings) = Store::open(&dir).await.map_err(from_store)?;
        let common = Arc::new(Common {
            store,
            alive: Alive::new(),
            timer: Default::default(),
            tasks: tasks::Tasks::new(),
        });
        let resolver = Arc::new(Resolver::new(options.backends, World::of_this_process(options.home)));
        let environments = Arc::new(Environments::new(Arc::clone(&common), Arc::clone(&resolver)));
        let inner = Arc::new(Inner {
            common,
            resolver,
            environments,
            unfinished: Mutex::default(),
            recent: Mutex::default(),
            turns: Mutex::default(),
            breaker: watch::Breaker::default(),
            gate: Gate::new(&dir),
            warnings,
        });
        let started = events::event(
            EventKind::ServerStarted,
            json!({ "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION") }),
        );
        inner.common.store.append(started).await.map_err(from_store)?;
        inner.recover().await?;
        inner.common.tasks.spawn(reaper::run(Arc::clone(&inner.environments)));
        let sweeping = Arc::clone(&inner);
        inner.common.tasks.spawn(async move { sweeping.sweep().await });
        Ok(Self { inner, by: Arc::default() })
    }

    /// What a person should know since the start: a database that was moved aside, say.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.warnings.iter().cloned().chain(self.inner.gate.audit.warning()).collect()
    }

    /// The same keeper, asked in somebody's name.
    #[must_use]
    pub fn on_behalf(&self, origin: Origin) -> Self {
        Self { inner: Arc::clone(&self.inner), by: Arc::new(origin) }
    }

    /// Leave for what is no command of the shell. If this is dropped while a person is asked, the question is
    /// withdrawn.
    ///
    /// # Errors
    /// The policy or a person does not allow it.
    pub async fn permit(&self, deed: Deed<'_>, observer: &dyn Observer) -> Result<Permit> {
        let _call = self.inner.common.alive.token();
        self.inner.permit(deed, &self.by, observer).await
    }

    /// What masks the secrets of a caller in what a model or a log sees.
    ///
    /// # Errors
    /// The settings can't be read.
    pub fn redactor(&self, target: &Target) -> Result<Arc<Redactor>> {
        Ok(Arc::clone(&self.inner.resolver.resolve(target)?.rules.redactor))
    }

    /// What waits for a person's answer.
    pub async fn approvals(&self, query: ApprovalQuery) -> Result<ApprovalList> {
        let _call = self.inner.common.alive.token();
        self.inner.gate.approvals.list(query).await
    }

    /// Answers. The first answer counts.
    pub async fn answer(&self, id: &str, request: AnswerRequest) -> Result<Answered> {
        let _call = self.inner.common.alive.token();
        self.inner.answer(id, request).await
    }

    /// Whatever waits for an answer has not run, and nothing more is asked: the server ends.
    pub fn stop_asking(&self) {
        self.inner.gate.approvals.close();
    }

    pub async fn audit(&self, query: AuditQuery) -> Result<AuditList> {
        let _call = self.inner.common.alive.token();
        self.inner.gate.audit.read(query).await
    }

    pub async fn verify_audit(&self) -> Result<AuditReport> {
        let _call = self.inner.common.alive.token();
        self.inner.gate.audit.verify().await
    }

    /// Work that goes on if its caller goes away.
    async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let call = self.inner.common.alive.token();
        let done = self.inner.common.tasks.spawn(async move {
            let _call = call;
            work.await
        });
        match done.await {
            Ok(Some(done)) => done,
            Ok(None) => Err(closed()),
            Err(error) => Err(Error::new(Kind::System, "serving a call", error.to_string())),
        }
    }

    /// A foreground command, to its end. If this is dropped, a command that has begun goes on.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult> {
        Box::pin(self.run_observed(request, &())).await
    }

    /// The same for somebody who wants to know what it waits for.
    pub async fn run_observed(&self, request: RunRequest, observer: &dyn Observer) -> Result<RunResult> {
        let _call = self.inner.common.alive.token();
        let run = Run::new(request)?;
        let cleared = self.inner.clear(&run.plan, &self.by, observer).await?;
        let inner = Arc::clone(&self.inner);
        self.detached(async move { inner.run(run, cleared).await }).await
    }

    /// A background process: returns when it is recorded and started.
    pub async fn start(&self, request: StartRequest) -> Result<Process> {
        self.start_observed(request, &()).await
    }

    /// The same for somebody who wants to know what it waits for.
    pub async fn start_observed(&self, request: StartRequest, observer: &dyn Observer) -> Result<Process> {
        let _call = self.inner.common.alive.token();
        let plan = Plan::new(request, Way::Background)?;
        if let Some(process) = self.inner.started_before(&plan).await? {
            return Ok(process);
        }
        let cleared = self.inner.clear(&plan, &self.by, observer).await?;
        let inner = Arc::clone(&self.inner);
        self.detached(async move { inner.start_background(plan, cleared, &|_| {}).await }).await
    }

    /// Opens a stream. `observer` is told what it waits for.
    pub async fn stream(&self, open: Open, observer: &dyn Observer) -> Result<Stream> {
        let _call = self.inner.common.alive.token();
        self.inner.stream(open, &self.by, observer).await
    }

    /// Opens the stream of a process that is what was permitted, and is not judged once more. It runs beside its session:
    /// from the state that the session has now, without changing it, and while other commands run there.
    pub async fn stream_permitted(
        &self,
        permit: Permit,
        start: StartRequest,
        observer: &dyn Observer,
    ) -> Result<Stream> {
        let _call = self.inner.common.alive.token();
        self.inner.stream_permitted(permit, start, observer).await
    }

    /// The files of an environment, which is made if it is not there. `progress` is told what takes long.
    pub async fn files(
        &self,
        target: &Target,
        session: &str,
        progress: &(dyn Fn(&News) + Send + Sync),
    ) -> Result<Files> {
        let _call = self.inner.common.alive.token();
        self.inner.files(target, session, progress).await
    }

    pub async fn process(&self, id: &str) -> Result<Process> {
        let _call = self.inner.common.alive.token();
        self.inner.process(id).await
    }

    pub async fn processes(&self, query: ProcessQuery) -> Result<Vec<Process>> {
        let _call = self.inner.common.alive.token();
        self.inner.processes(query).await
    }

    pub async fn log(&self, id: &str, query: LogQuery) -> Result<LogPiece> {
        let _call = self.inner.common.alive.token();
        self.inner.log(id, query).await
    }

    /// Returns when the process has ended or the time is up; the answer's state says which.
    pub async fn wait(&self, id: &str, request: WaitRequest) -> Result<Process> {
        let _call = self.inner.common.alive.token();
        self.inner.wait(id, request).await
    }

    pub async fn stdin(&self, id: &str, request: StdinRequest) -> Result<StdinResult> {
        let _call = self.inner.common.alive.token();
        self.inner.stdin(id, request).await
    }

    pub async fn kill(&self, id: &str, request: KillRequest) -> Result<KillResult> {
        let _call = self.inner.common.alive.token();
        self.inner.kill(id, request).await
    }

    pub async fn signal(&self, id: &str, request: SignalRequest) -> Result<()> {
        let _call = self.inner.common.alive.token();
        self.inner.signal(id, &request.signal).await
    }

    pub async fn resize(&self, id: &str, size: Size) -> Result<()> {
        let _call = self.inner.common.alive.token();
        self.inner.resize(id, size).await
    }

    pub async fn screen(&self, id: &str) -> Result<Screen> {
        let _call = self.inner.common.alive.token();
        self.inner.screen(id).await
    }

    pub async fn environments(&self) -> Result<Vec<Environment>> {
        let recorded = |slot: &Arc<slot::Slot>| slot.lock().recorded;
        Ok(self.inner.environments.slots().into_iter().filter(recorded).map(|slot| slot.shown()).collect())
    }

    /// By key or task.
    pub async fn environment(&self, name: &str) -> Result<Environment> {
        Ok(self.inner.environments.named(name)?.shown())
    }

    pub async fn remove(&self, request: RemoveRequest) -> Result<RemoveResult> {
        let inner = Arc::clone(&self.inner);
        self.detached(async move { inner.remove(request).await }).await
    }

    pub async fn gc(&self, request: GcRequest) -> Result<GcResult> {
        let inner = Arc::clone(&self.inner);
        self.detached(async move { inner.gc(request).await }).await
    }

    pub async fn events(&self, query: EventQuery) -> Result<EventList> {
        let _call = self.inner.common.alive.token();
        self.inner.events(query).await
    }

    pub async fn ack(&self, request: AckRequest) -> Result<()> {
        let _call = self.inner.common.alive.token();
        self.inner.ack(request).await
    }

    pub async fn counts(&self) -> Result<Counts> {
        let mut counts = Counts { last_event: self.inner.common.store.last_seq(), ..Counts::default() };
        for slot in self.inner.environments.slots() {
            let inner = slot.lock();
            counts.environments += u32::from(!matches!(inner.phase, slot::Phase::Absent(_)));
            counts.foreground += inner.foreground;
        }
        counts.background = u32::try_from(self.inner.unfinished().len()).unwrap_or(u32::MAX);
        Ok(counts)
    }

    /// Returns when nothing has been alive for so long: no environment, no process, no call.
    pub async fn idle_for(&self, time: Duration) {
        self.inner.common.alive.idle_for(time).await;
    }

    /// Lets go of everything in order: records are complete, environments live on (or are removed, if asked).
    ///
    /// # Errors
    /// What could not be removed or written.
    pub async fn close(&self, remove_environments: bool) -> Result<()> {
        let inner = &self.inner;
        let mut left = Vec::new();
        if remove_environments {
            let all = RemoveRequest { all: true, force: true, ..RemoveRequest::default() };
            left = self.remove(all).await?.failed;
        }
        self.stop_asking();
        inner.leave_nothing_behind().await;
        inner.gate.audit.close();
        inner.common.tasks.close().await;
        resting::note_at_last(inner.environments.slots()).await;
        for slot in inner.environments.slots() {
            let last_used_at = slot.live().map(|_| slot.lock().row.last_used_at);
            if let Some(at) = last_used_at {
                let _ = inner.common.store.touch(&slot.key, at).await;
            }
        }
        let stopped = events::event(EventKind::ServerStopped, json!({ "pid": std::process::id() }));
        let told = inner.common.store.append(stopped).await;
        inner.common.store.close().await.map_err(from_store)?;
        told.map_err(from_store)?;
        match left.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!("{}: {}", first.key, first.error.message);
                Err(Error::new(Kind::System, "removing environments", message))
            }
        }
    }
}

fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
        Error::io(format!("making {}", dir.display()), e)
            .with_hint("make its parent writable, or set HERMES_HOME to a directory that is")
    })
}
