//! One sandbox, of either kind, as the control plane and the router know it.

use crate::cgroup::Cgroup;
use crate::images::Image;
use crate::process::Process;
use crate::refuse;
use crate::root::Root;
use crate::wire::{Status as Ended, Tree};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::{self as proto, GenericResult};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, watch};
use tonic::Status;

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) task: String,
    /// Of the second kind.
    pub(crate) second: bool,
    pub(crate) app: String,
    pub(crate) definition: proto::Sandbox,
    /// Until it has ended: an image that was deleted goes with the last sandbox that stands on it.
    image: Mutex<Option<Arc<Image>>>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) created: f64,
    /// What it writes, and its logs.
    pub(crate) dir: PathBuf,
    pub(crate) phase: watch::Sender<Phase>,
    /// Set once it runs.
    pub(crate) place: OnceLock<Place>,
    pub(crate) exit_snapshot: watch::Sender<ExitSnapshot>,
    /// The first that says how it is to end is heard.
    pub(crate) wanted: watch::Sender<Option<GenericResult>>,
    /// All of it is over, its exit snapshot as well.
    pub(crate) done: watch::Sender<bool>,
    /// How often somebody called who had the token that was given out with it.
    pub(crate) by_token: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Starting,
    Running,
    Ended(GenericResult),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExitSnapshot {
    Off,
    Pending,
    Taken(String),
    Failed(String),
}

/// Where its processes are.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) root: Arc<Root>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) cgroup: Cgroup,
    /// The entrypoint; without one a sandbox just stays.
    pub(crate) main: Option<Arc<Process>>,
}

#[derive(Debug)]
struct Book {
    tags: Vec<proto::SandboxTag>,
    execs: HashMap<String, Arc<OnceCell<Arc<Process>>>>,
    touched: Instant,
    started: f64,
    finished: f64,
}

impl Sandbox {
    #[expect(clippy::too_many_arguments, reason = "each is a part of it, named where it is made")]
    pub(crate) fn new(
        second: bool,
        app: String,
        definition: proto::Sandbox,
        image: Arc<Image>,
        env: Vec<(String, String)>,
        tags: Vec<proto::SandboxTag>,
        created: f64,
        dir: &std::path::Path,
    ) -> Self {
        let (id, task) = match second {
            true => (crate::ids::long("sb"), format!("{}V", crate::ids::long("ta"))),
            false => (crate::ids::short("sb"), crate::ids::long("ta")),
        };
        let on = definition
            .experimental_options_v2
            .get("enable_exit_snapshot")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || definition.experimental_options.get("enable_exit_snapshot") == Some(&true);
        Self {
            dir: dir.join("sandboxes").join(&id),
            id,
            task,
            second,
            app,
            definition,
            image: Mutex::new(Some(image)),
            env,
            created,
            phase: watch::Sender::new(Phase::Starting),
            place: OnceLock::new(),
            exit_snapshot: watch::Sender::new(if on { ExitSnapshot::Pending } else { ExitSnapshot::Off }),
            wanted: watch::Sender::new(None),
            done: watch::Sender::new(false),
            by_token: AtomicU64::new(0),
            book: Mutex::new(Book {
                tags,
                execs: HashMap::new(),
                touched: Instant::now(),
                started: 0.0,
                finished: 0.0,
            }),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn result(&self) -> Option<GenericResult> {
        match &*self.phase.borrow() {
            Phase::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Someone used it.
    pub(crate) fn touch(&self) {
        self.book().touched = Instant::now();
    }

    pub(crate) fn started(&self) {
        let mut book = self.book();
        book.touched = Instant::now();
        book.started = crate::world::now();
    }

    pub(crate) fn finished(&self) {
        self.book().finished = crate::world::now();
    }

    /// For how long no process was running but the entrypoint, and nothing was written to one.
    pub(crate) fn idle(&self) -> Duration {
        let book = self.book();
        let mut since = book.touched;
        for process in book.execs.values() {
            // One that is being started counts as well.
            match process.get().map(|process| process.ended()) {
                Some(Some(ended)) => since = since.max(ended),
                _ => return Duration::ZERO,
            }
        }
        since.elapsed()
    }

    pub(crate) fn tags(&self) -> Vec<proto::SandboxTag> {
        self.book().tags.clone()
    }

    pub(crate) fn set_tags(&self, tags: Vec<proto::SandboxTag>) {
        self.book().tags = tags;
    }

    /// Says how it is to end, unless that is said already.
    pub(crate) fn want(&self, result: GenericResult) {
        self.wanted.send_if_modified(|wanted| wanted.is_none() && wanted.replace(result).is_none());
    }

    /// Where its processes are, once it runs.
    pub(crate) async fn place(&self) -> Result<&Place, Status> {
        let mut phase = self.phase.subscribe();
        let running = phase.wait_for(|phase| *phase != Phase::Starting).await;
        match running.as_deref() {
            Ok(Phase::Running) => self.place.get().ok_or_else(|| refuse::no_task(&self.task)),
            _ => Err(refuse::no_task(&self.task)),
        }
    }

    /// The cell of that id: whoever fills it starts the process.
    pub(crate) fn exec_cell(&self, id: &str) -> Arc<OnceCell<Arc<Process>>> {
        Arc::clone(self.book().execs.entry(id.into()).or_default())
    }

    /// A start that failed leaves nothing that would keep the sandbox from being idle.
    pub(crate) fn forget_exec(&self, id: &str) {
        let mut book = self.book();
        if book.execs.get(id).is_some_and(|cell| !cell.initialized()) {
            book.execs.remove(id);
        }
    }

    /// Nobody can ask for them any more; their logs are open files.
    pub(crate) fn forget_execs(&self) {
        self.book().execs.clear();
    }

    pub(crate) fn image(&self) -> Option<Arc<Image>> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn release_image(&self) {
        *self.image.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn exec(&self, id: &str) -> Result<Arc<Process>, Status> {
        if self.result().is_some() {
            return Err(refuse::no_task(&self.task));
        }
        let cell = self.book().execs.get(id).cloned();
        cell.and_then(|cell| cell.get().cloned()).ok_or_else(|| refuse::no_exec(id))
    }

    pub(crate) fn metadata(&self) -> proto::SandboxHandleMetadata {
        proto::SandboxHandleMetadata { result: self.result(), app_id: self.app.clone() }
    }

    /// What a list says of it.
    pub(crate) fn info(&self) -> proto::SandboxInfo {
        let book = self.book();
        let wish = self.definition.resources.clone().unwrap_or_default();
        let value = |asked: u32, usual: u32| proto::resource_info::ResourceValue {
            value: if asked == 0 { usual } else { asked },
            is_default: asked == 0,
        };
        proto::SandboxInfo {
            id: self.id.clone(),
            created_at: self.created,
            task_info: Some(proto::TaskInfo {
                id: self.task.clone(),
                started_at: book.started,
                finished_at: book.finished,
                result: self.result(),
                enqueued_at: self.created,
                sandbox_id: self.id.clone(),
            }),
            app_id: self.app.clone(),
            tags: book.tags.clone(),
            name: self.definition.name.clone().unwrap_or_default(),
            image_id: self.definition.image_id.clone(),
            resource_info: Some(proto::ResourceInfo {
                memory_mb: Some(value(wish.memory_mb, 128)),
                milli_cpu: Some(value(wish.milli_cpu, 125)),
                gpu_type: wish.gpu_config.map(|gpu| gpu.gpu_type).unwrap_or_default(),
                memory_mb_max: wish.memory_mb_max,
                ephemeral_disk_mb: 0,
                milli_cpu_max: wish.milli_cpu_max,
            }),
            regions: Vec::new(),
            timeout_secs: self.definition.timeout_secs,
            idle_timeout_secs: self.definition.idle_timeout_secs,
            ready_at: None,
            metadata: Some(self.metadata()),
        }
    }
}

pub(crate) fn result(status: GenericStatus, exitcode: i32, exception: &str) -> GenericResult {
    GenericResult { status: status as i32, exception: exception.into(), exitcode }
}

/// What the end of the entrypoint makes of the sandbox.
pub(crate) fn result_of(status: Ended) -> GenericResult {
    match status {
        Ended::Code(0) => result(GenericStatus::Success, 0, ""),
        Ended::Code(code) => result(GenericStatus::Failure, code, &format!("exit code {code}")),
        Ended::Signal(signal) => {
            result(GenericStatus::Failure, 128 + signal, &format!("killed by signal {signal}"))
        }
    }
}
