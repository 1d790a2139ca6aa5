//! A home of its own for each test, and the end of everything in it.

use crate::hosts::{Hosts, Met};
use farshell_api::environment::{RemoveRequest, RemoveResult};
use farshell_api::event::{Event, EventKind, EventQuery};
use farshell_api::process::{Process, ProcessState, WaitRequest};
use farshell_api::run::{Caller, RunRequest, RunResult, StartRequest, Target, default_max_output};
use farshell_config::{Settings, settings};
use farshell_engine::backend::{
    BoxFuture, ByteStream, Capabilities, Finding, Found, Identity, Limit, News, Place, Progress, Spec,
    Support,
};
use farshell_engine::capture::Sink;
use farshell_engine::{Backend, Error, Kind, Result};
use farshell_keeper::{Asker, Backends, Keeper, Options, Stream};
use farshell_protocol::process::Chunk;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Long enough for a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Rig {
    dir: tempfile::TempDir,
    pub(crate) backends: Arc<Fake>,
}

/// The local backend under several names, counted.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) provisioned: Arc<AtomicUsize>,
    /// No place can be had.
    pub(crate) broken: Arc<AtomicBool>,
    /// No place can be connected to.
    pub(crate) unreachable: Arc<AtomicBool>,
    pub(crate) story: Arc<Story>,
}

/// What becomes of places, and what they say.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) suspended: AtomicUsize,
    pub(crate) destroyed: AtomicUsize,
    pub(crate) files_removed: AtomicUsize,
    /// Whatever was there is gone, until another one is made.
    pub(crate) gone: AtomicBool,
    /// What is found is put away.
    pub(crate) sleeps: AtomicBool,
    /// Why the outpost before is gone.
    pub(crate) epitaph: Mutex<Option<String>>,
    /// Told while a place is made, with a pause after each.
    pub(crate) news: Mutex<Vec<News>>,
    /// Files go with the place that they are in.
    pub(crate) files_go: AtomicBool,
    /// It was put away, with the files that it has: it can be found.
    asleep: AtomicBool,
    /// There is no room: whoever asks for a place waits in a queue.
    pub(crate) full: AtomicBool,
    /// How often nobody waited any more.
    pub(crate) given_up: AtomicUsize,
    /// How often somebody connected.
    pub(crate) connected: AtomicUsize,
    /// Of how many that had its name this is the last.
    pub(crate) generation: AtomicUsize,
    /// Where kept files are.
    pub(crate) files: Mutex<Option<String>>,
    /// A connection costs, and is closed when nobody has used it for this long.
    pub(crate) rests: Mutex<Option<Duration>>,
    /// Putting it away never ends, and may take this long.
    pub(crate) stuck: Mutex<Option<Duration>>,
    /// Said of what was kept.
    pub(crate) keepsake: Mutex<Option<String>>,
    pub(crate) hosts: Hosts,
}

#[derive(Debug)]
struct Reachable {
    place: Box<dyn Place>,
    host: Option<Met>,
    unreachable: Arc<AtomicBool>,
    story: Arc<Story>,
    found: bool,
}

impl Place for Reachable {
    fn identity(&self) -> Identity {
        let identity = self.place.identity();
        if let Some(met) = &self.host {
            return met.identity();
        }
        match self.story.generation.load(Ordering::SeqCst) {
            0 => identity,
            n => Identity { id: format!("{}-{n}", identity.id), ..identity },
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        self.story.connected.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if let Some(met) = &self.host {
                self.story.hosts.answers(&met.host)?;
                self.story.hosts.is_still(&met.host, &met.identity())?;
                return Ok(self.story.hosts.by_line(self.place.connect().await?));
            }
            match self.unreachable.load(Ordering::SeqCst) {
                true => Err(Error::new(Kind::Disconnected, "connecting", "it is out of reach")),
                false if self.story.gone.load(Ordering::SeqCst) => {
                    Err(Error::new(Kind::Unavailable, "connecting", "somebody has removed it"))
                }
                false => self.place.connect().await,
            }
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        self.story.destroyed.fetch_add(1, Ordering::SeqCst);
        self.story.asleep.store(false, Ordering::SeqCst);
        Box::pin(async move {
            if let Some(met) = &self.host {
                self.story.hosts.answers(&met.host)?;
                self.story.hosts.is_still(&met.host, &met.identity())?;
            }
            self.place.destroy().await
        })
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        self.story.suspended.fetch_add(1, Ordering::SeqCst);
        self.story.asleep.store(self.story.files_go.load(Ordering::SeqCst), Ordering::SeqCst);
        match self.story.stuck.lock().unwrap().is_some() {
            true => Box::pin(std::future::pending()),
            false => self.place.destroy(),
        }
    }

    fn suspend_limit(&self) -> Duration {
        self.story.stuck.lock().unwrap().unwrap_or(PATIENCE)
    }

    fn keepsake(&self) -> Option<String> {
        self.story.keepsake.lock().unwrap().clone()
    }

    fn limits(&self) -> Vec<Limit> {
        let note = Some("its disk has no quota".to_owned());
        vec![
            Limit { name: "cpu", value: "2 cores".into(), support: Support::Enforced, note: None },
            Limit { name: "disk", value: "5 MB".into(), support: Support::NotEnforced, note },
        ]
    }

    fn sleeps(&self) -> bool {
        let story = &self.story;
        self.found && (story.sleeps.load(Ordering::SeqCst) || story.asleep.load(Ordering::SeqCst))
    }

    fn rests_after(&self) -> Option<Duration> {
        *self.story.rests.lock().unwrap()
    }

    fn status(&self) -> Option<String> {
        Some("job 1 on n1".into())
    }

    fn epitaph(&self) -> Option<String> {
        self.story.epitaph.lock().unwrap().clone()
    }
}

#[derive(Debug)]
struct Counted {
    name: &'static str,
    host: Option<Met>,
    local: farshell_local::Local,
    provisioned: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
    unreachable: Arc<AtomicBool>,
    story: Arc<Story>,
}

impl Fake {
    fn counted(&self, name: &'static str, home: &Path) -> Arc<dyn Backend> {
        // Another name has another machine, so to speak.
        let home = if name == "local" { home.join("farshell") } else { home.join("farshell").join(name) };
        self.in_home(name, home, None)
    }

    fn in_home(&self, name: &'static str, home: PathBuf, host: Option<Met>) -> Arc<dyn Backend> {
        Arc::new(Counted {
            name,
            host,
            local: farshell_local::Local::new(farshell_local::Config { home }),
            provisioned: Arc::clone(&self.provisioned),
            broken: Arc::clone(&self.broken),
            unreachable: Arc::clone(&self.unreachable),
            story: Arc::clone(&self.story),
        })
    }
}

impl Backends for Fake {
    fn open(&self, settings: &Settings, asker: &Asker<'_>) -> Result<Arc<dyn Backend>> {
        match &settings.backend {
            settings::Backend::Local(_) => Ok(self.counted("local", asker.home)),
            settings::Backend::Daytona(_) => Ok(self.counted("daytona", asker.home)),
            settings::Backend::Docker(_) => Ok(self.counted("docker", asker.home)),
            settings::Backend::Ssh(ssh) => {
                let met = self.story.hosts.met(&ssh.host);
                let home = asker.home.join("farshell").join(format!("{}{}", met.host, met.machine));
                Ok(self.in_home("ssh", home, Some(met)))
            }
            _ => Err(Error::new(Kind::Unavailable, "choosing the backend", "not in this build")),
        }
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        ["local", "daytona", "docker"].map(|name| self.counted(name, home)).into()
    }
}

impl Counted {
    fn ask_host(&self) -> Result<()> {
        self.host.as_ref().map_or(Ok(()), |met| self.story.hosts.answers(&met.host))
    }

    fn is_still(&self, was: &Identity) -> Result<()> {
        self.host.as_ref().map_or(Ok(()), |met| self.story.hosts.is_still(&met.host, was))
    }

    fn reachable(&self, place: Box<dyn Place>, found: bool) -> Box<dyn Place> {
        let (unreachable, story) = (Arc::clone(&self.unreachable), Arc::clone(&self.story));
        Box::new(Reachable { place, host: self.host.clone(), unreachable, story, found })
    }
}

impl Backend for Counted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        let persists_files = !self.story.files_go.load(Ordering::SeqCst);
        Capabilities { persists_files, ..self.local.capabilities() }
    }

    fn can_be_cut_off(&self) -> bool {
        self.host.is_some()
    }

    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move {
            self.provisioned.fetch_add(1, Ordering::SeqCst);
            self.ask_host()?;
            if self.broken.load(Ordering::SeqCst) {
                return Err(Error::new(Kind::Unavailable, "provisioning", "it is broken"));
            }
            // Long enough for others to come meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let news = self.story.news.lock().unwrap().clone();
            for news in news {
                progress.say(&news);
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            if self.story.full.load(Ordering::SeqCst) {
                progress.say(&News { message: "in the queue".into(), part: None });
                progress.gone().await;
                self.story.given_up.fetch_add(1, Ordering::SeqCst);
                return Err(Error::new(Kind::NotStarted, "provisioning", "nobody waits any more"));
            }
            self.story.gone.store(false, Ordering::SeqCst);
            self.story.asleep.store(false, Ordering::SeqCst);
            Ok(self.reachable(self.local.provision(spec, progress).await?, false))
        })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            self.ask_host()?;
            if self.broken.load(Ordering::SeqCst) {
                return Err(Error::new(Kind::Unavailable, "looking for the place", "it is broken"));
            }
            if self.story.gone.load(Ordering::SeqCst) {
                return Ok(None);
            }
            let found = match self.story.asleep.load(Ordering::SeqCst) {
                true => Some(self.local.provision(spec, &()).await?),
                false => self.local.find(spec).await?,
            };
            Ok(found.map(|place| self.reachable(place, true)))
        })
    }

    fn find_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            self.ask_host()?;
            self.is_still(was)?;
            self.find(spec).await
        })
    }

    fn provision_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move {
            self.ask_host()?;
            self.is_still(was)?;
            self.provision(spec, progress).await
        })
    }

    fn kept_files<'a>(&'a self, _: &'a Spec) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { self.story.files.lock().unwrap().clone() })
    }

    fn remove_files<'a>(&'a self, _: &'a Spec) -> BoxFuture<'a, Result<()>> {
        self.story.files_removed.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        self.local.check()
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        self.local.survey()
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        self.local.remove_found(found)
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("farshell-keeper-").tempdir().unwrap();
        Self { dir, backends: Arc::default() }
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn run_dir(&self, task: &str) -> PathBuf {
        let task = farshell_engine::TaskName::new(task).unwrap();
        farshell_local::run_dir(&self.home().join("farshell"), &task)
    }

    /// Opens the keeper, as soon as the one before has let go.
    pub(crate) async fn open(&self) -> Keeper {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let options = Options { home: self.home().to_owned(), backends: self.backends.clone() };
            match Keeper::open(options).await {
                Ok(keeper) => return keeper,
                Err(error) if error.kind == Kind::Busy && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn config(&self, text: &str) {
        std::fs::write(self.home().join("config.yaml"), text).unwrap();
    }

    pub(crate) fn gate(&self, name: &str) -> Gate {
        Gate(self.home().join(name))
    }

    /// A caller that stands in the home, with these variables besides.
    pub(crate) fn caller(&self, variables: &[(&str, &str)]) -> Caller {
        let home = self.home().to_str().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut env: BTreeMap<String, farshell_api::Text> =
            [("HOME", home), ("PATH", path.as_str())].map(|(n, v)| (n.to_owned(), v.into())).into();
        env.extend(variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).into())));
        Caller { cwd: Some(home.into()), env: Some(env) }
    }

    pub(crate) fn target(&self, task: &str) -> Target {
        self.target_with(task, &[])
    }

    pub(crate) fn target_with(&self, task: &str, variables: &[(&str, &str)]) -> Target {
        Target { task: task.into(), caller: Some(self.caller(variables)), ..Target::default() }
    }

    pub(crate) fn command(&self, command: &str) -> StartRequest {
        StartRequest { target: self.target("default"), ..StartRequest::new(command) }
    }

    pub(crate) fn request(&self, command: &str) -> RunRequest {
        whole(self.command(command))
    }

    pub(crate) async fn run(&self, keeper: &Keeper, command: &str) -> RunResult {
        keeper.run(self.request(command)).await.unwrap()
    }

    /// What a command prints, which must succeed.
    pub(crate) async fn says(&self, keeper: &Keeper, command: &str) -> String {
        let result = self.run(keeper, command).await;
        assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}");
        result.stdout
    }

    /// Removes every environment, closes the keeper, and looks that nothing is left.
    pub(crate) async fn end(self, keeper: Keeper) {
        let removed = remove_all(&keeper).await;
        assert_eq!(removed.failed, []);
        keeper.close(false).await.unwrap();
        self.nothing_left();
    }

    pub(crate) fn nothing_left(&self) {
        // An outpost's directory goes a moment before its process does.
        let deadline = Instant::now() + PATIENCE;
        while !self.outposts().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.outposts(), Vec::<u32>::new(), "outposts are left");
        let run = std::fs::read_dir(self.home().join("farshell/run")).into_iter().flatten().flatten();
        let left: Vec<_> =
            run.map(|e| e.file_name()).filter(|n| !n.to_string_lossy().starts_with('.')).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The daemons of this home.
    pub(crate) fn outposts(&self) -> Vec<u32> {
        let home = self.home().to_str().unwrap();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let daemons: Vec<u32> = pids
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line);
                line.contains(home) && line.contains("\0daemon\0")
            })
            .collect();
        // A child that has not become another program yet looks like its parent.
        let own = |pid: &u32| parent(*pid).is_some_and(|parent| !daemons.contains(&parent));
        daemons.iter().copied().filter(own).collect()
    }

    /// What they run is left to whoever comes to their places next.
    pub(crate) fn kill_outposts(&self) {
        for pid in self.outposts() {
            signal(pid, rustix::process::Signal::KILL);
        }
    }

    /// With all that they run.
    pub(crate) fn end_outposts(&self) {
        for pid in self.outposts() {
            signal(pid, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for Rig {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut quiet = 0;
        // A keeper that still runs may start another one.
        while quiet < 10 && Instant::now() < deadline {
            let outposts = self.outposts();
            quiet = if outposts.is_empty() { quiet + 1 } else { 0 };
            self.end_outposts();
            std::thread::sleep(Duration::from_millis(if std::thread::panicking() { 30 } else { 1 }));
        }
    }
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub(crate) fn whole(start: StartRequest) -> RunRequest {
    RunRequest { start, input: None, max_output: default_max_output() }
}

pub(crate) async fn remove_all(keeper: &Keeper) -> RemoveResult {
    keeper.remove(RemoveRequest { all: true, force: true, ..RemoveRequest::default() }).await.unwrap()
}

/// Waits for the end of a process.
pub(crate) async fn ended(keeper: &Keeper, id: &str) -> Process {
    let process = keeper.wait(id, WaitRequest { timeout: Some(PATIENCE.as_secs_f64()) }).await.unwrap();
    assert!(
        !matches!(process.state, ProcessState::Starting | ProcessState::Queued | ProcessState::Running),
        "it goes on: {process:?}"
    );
    process
}

pub(crate) async fn all_events(keeper: &Keeper) -> Vec<Event> {
    keeper.events(EventQuery { limit: Some(10_000), ..EventQuery::default() }).await.unwrap().events
}

pub(crate) async fn events_of(keeper: &Keeper, kind: EventKind) -> Vec<Event> {
    let mut events = all_events(keeper).await;
    events.retain(|event| event.kind == kind);
    events
}

/// Waits until something is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !so().await {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Output that can be looked at while it comes.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Sink for Shared {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.0.lock().unwrap().extend_from_slice(chunk.bytes);
    }
}

impl Shared {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Follows a stream until this has come, and leaves it.
pub(crate) async fn leave_at(text: &str, stream: Stream) {
    let sink = Shared::default();
    let mut output = sink.clone();
    tokio::select! {
        end = stream.follow(&mut output) => panic!("{end:?} after {:?}", sink.text()),
        () = until("the output", || async { sink.text() == text }) => {}
    }
}

/// A file that commands wait for.
#[derive(Debug)]
pub(crate) struct Gate(PathBuf);

impl Gate {
    /// What waits in a shell.
    pub(crate) fn wait(&self) -> String {
        format!("while ! [ -e {} ]; do sleep 0.02; done", self.0.display())
    }

    pub(crate) fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

/// One life of a keeper. A runtime that is dropped stops every task where it stands, and nothing is closed or flushed:
/// for the records and the outposts that is what `kill -9` is.
pub(crate) struct Life {
    runtime: Runtime,
    pub(crate) keeper: Keeper,
}

impl Life {
    pub(crate) fn begin(rig: &Rig) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let keeper = runtime.block_on(rig.open());
        Self { runtime, keeper }
    }

    pub(crate) fn on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn die(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }

    pub(crate) fn end(self, rig: Rig) {
        self.runtime.block_on(rig.end(self.keeper));
    }
}
