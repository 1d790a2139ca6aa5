//! A home of its own for each test, a directory to work in, and the end of everything in it.

use farshell_api::environment::RemoveRequest;
use farshell_api::run::{Caller, Target};
use farshell_config::Settings;
use farshell_engine::{Backend, Kind, Result};
use farshell_keeper::{Asker, Backends, Keeper, Options, Origin};
use farshell_tools::{Answer, Call, CancellationToken, Nobody, Observer, Tools};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Long enough for a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct LocalOnly;

impl LocalOnly {
    fn local(home: &Path) -> Arc<dyn Backend> {
        Arc::new(farshell_local::Local::new(farshell_local::Config { home: home.join("farshell") }))
    }
}

impl Backends for LocalOnly {
    fn open(&self, _: &Settings, asker: &Asker<'_>) -> Result<Arc<dyn Backend>> {
        Ok(Self::local(asker.home))
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        vec![Self::local(home)]
    }
}

/// A world with its tools. Commands run in `work`; the user's home is `user`.
pub(crate) struct Rig {
    dir: tempfile::TempDir,
    pub(crate) keeper: Keeper,
    pub(crate) tools: Tools,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        // No question is put: what is risky in a test is meant.
        Self::with("approvals:\n  mode: auto\n").await
    }

    pub(crate) async fn with(config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("farshell-tools-").tempdir().unwrap();
        for name in ["hermes", "user", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("hermes/config.yaml"), config).unwrap();
        let keeper = open(&dir.path().join("hermes")).await;
        let tools = Tools::new(keeper.clone());
        Self { dir, keeper, tools }
    }

    pub(crate) fn hermes(&self) -> PathBuf {
        self.dir.path().join("hermes")
    }

    pub(crate) fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    /// A path in the directory where commands begin.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    pub(crate) fn target(&self, task: &str) -> Target {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let path = std::env::var("PATH").unwrap();
        let env: BTreeMap<String, farshell_api::Text> = [("HOME", text(&self.user())), ("PATH", path)]
            .map(|(n, v)| (n.to_owned(), v.as_str().into()))
            .into();
        let cwd = text(&self.at(""));
        let caller = Caller { cwd: Some(cwd.trim_end_matches('/').into()), env: Some(env) };
        Target { task: task.into(), caller: Some(caller), ..Target::default() }
    }

    pub(crate) fn circumstances<'a>(&self, task: &str, observer: &'a dyn Observer) -> Call<'a> {
        Call {
            target: self.target(task),
            session: "default".into(),
            origin: Origin::default(),
            cancel: CancellationToken::new(),
            observer,
        }
    }

    pub(crate) async fn call_as(&self, task: &str, name: &str, arguments: Value) -> Answer {
        let call = self.circumstances(task, &Nobody);
        let answer = tokio::time::timeout(PATIENCE, self.tools.call(name, arguments, call)).await.unwrap();
        fits_schema(name, &answer);
        answer
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Answer {
        self.call_as("default", name, arguments).await
    }

    /// A call that does what it is asked to.
    pub(crate) async fn done(&self, name: &str, arguments: Value) -> Value {
        let answer = self.call(name, arguments).await;
        assert!(!answer.failed, "{}", answer.result);
        answer.result
    }

    /// Why a call can't.
    pub(crate) async fn refused(&self, name: &str, arguments: Value) -> String {
        let answer = self.call(name, arguments).await;
        assert!(answer.failed, "{}", answer.result);
        answer.result["error"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn run(&self, command: &str) -> Value {
        self.done("terminal", json!({"command": command})).await
    }

    pub(crate) async fn end(self) {
        let all = RemoveRequest { all: true, force: true, ..RemoveRequest::default() };
        assert_eq!(self.keeper.remove(all).await.unwrap().failed, []);
        self.keeper.close(false).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !self.outposts().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.outposts(), Vec::<u32>::new(), "outposts are left");
    }

    /// The daemons of this home.
    pub(crate) fn outposts(&self) -> Vec<u32> {
        daemons(self.dir.path().to_str().unwrap())
    }

    pub(crate) fn kill_outposts(&self) {
        self.outposts().into_iter().for_each(kill);
    }
}

impl Drop for Rig {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.outposts().is_empty() && Instant::now() < deadline {
            self.kill_outposts();
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub(crate) async fn open(home: &Path) -> Keeper {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Keeper::open(Options { home: home.to_owned(), backends: Arc::new(LocalOnly) }).await {
            Ok(keeper) => return keeper,
            Err(error) if error.kind == Kind::Busy && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn kill(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn daemons(below: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_daemon = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(below) && line.contains("\0daemon\0")
    };
    pids.filter(is_daemon).collect()
}

/// Whether a process of this number runs.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a call prints, as it is seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Seen(pub(crate) Mutex<Vec<(u64, String)>>);

impl Observer for Seen {
    fn output(&self, bytes_so_far: u64, last_line: &str) {
        self.0.lock().unwrap().push((bytes_so_far, last_line.to_owned()));
    }
}

impl Seen {
    pub(crate) fn something(&self) -> bool {
        !self.0.lock().unwrap().is_empty()
    }
}

/// Every field of a result is in the published schema, with a type that it allows.
fn fits_schema(name: &str, answer: &Answer) {
    let Some(tool) = farshell_tools::catalogue().iter().find(|tool| tool.name == name) else { return };
    for (field, value) in answer.result.as_object().unwrap() {
        let property = &tool.output["properties"][field];
        assert!(property.is_object(), "{name} gave a field {field:?} that its schema does not have");
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let text = property.to_string();
        let fits = property.as_object().unwrap().contains_key("$ref")
            || text.contains(&format!("\"{kind}\""))
            || (kind == "integer" && text.contains("\"number\""));
        assert!(fits, "{name}: {field} is {value}, and its schema says {property}");
    }
}
