//! A Modal of a test's own, a home, and environments in it.

use farshell_config::choice::ModalMode;
use farshell_config::settings::{ContainerSettings, ModalSettings};
use farshell_engine::backend::{Backend, News, Place, Progress, Spec, TaskName};
use farshell_engine::capture::Capture;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, RunOptions};
use farshell_modal::client::{Access, Client, Listed};
use farshell_modal::{Config, Modal};
use farshell_protocol::SessionName;
use farshell_protocol::process::Status;
use farshell_protocol::session::Mode;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Rig {
    /// Everything of the test, until its end.
    home: TempDir,
    pub(crate) config: Config,
    /// Of its switches.
    switches: String,
    emulator: Child,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It ends with its input, and takes its sandboxes along.
        drop(self.emulator.stdin.take());
        let _ = self.emulator.wait();
    }
}

impl Rig {
    pub(crate) fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// With further options of the emulator.
    pub(crate) fn with(options: &[&str]) -> Option<Self> {
        let program = farshell_testing::var("FARSHELL_TEST_MODAL_BIN", "modal")?;
        let home = tempfile::tempdir().unwrap();
        let mut emulator = Command::new(program)
            .arg("--dir")
            .arg(home.path().join("s"))
            .args(["--image", "debian:12=host"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(emulator.stdout.take().unwrap()).lines();
        let mut line = || said.next().unwrap().unwrap().trim().to_owned();
        let (url, switches) = (line(), line());
        let environment = [
            ("MODAL_SERVER_URL", url.as_str()),
            ("MODAL_TOKEN_ID", "ak-test"),
            ("MODAL_TOKEN_SECRET", "as-test"),
        ];
        let mut config = Config::new(
            home.path().join("h"),
            ModalSettings {
                image: "debian:12".into(),
                mode: ModalMode::Auto,
                gpu: None,
                region: None,
                timeout: Duration::from_secs(3600),
                idle_timeout: Duration::from_secs(300),
                network: true,
                network_allow: Vec::new(),
                managed_connect_timeout: Duration::from_secs(1),
                managed_poll_read_timeout: Duration::from_secs(5),
                managed_cancel_read_timeout: Duration::from_secs(5),
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(1024),
                    disk_mb: Some(3072),
                    persistent: true,
                },
            },
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            BTreeMap::new(),
        );
        config.rest = Duration::from_millis(200);
        let switches = switches.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Some(Self { home, config, switches, emulator })
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// With another home, of this name.
    pub(crate) fn at_home(mut self, name: &str) -> Self {
        let home = self.home.path().join(name);
        (self.config.home, self.config.hermes_home) = (home.join("farshell"), home);
        self
    }

    pub(crate) fn backend(&self) -> Modal {
        Modal::new(self.config.clone())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&Access::load(&self.config.environment, &self.config.files).unwrap()).unwrap()
    }

    pub(crate) fn spec(&self) -> Spec {
        let settings = BTreeMap::from([("modal_image".to_owned(), self.config.settings.image.clone())]);
        Spec { task: TaskName::new("default").unwrap(), lease: Duration::from_secs(60), settings }
    }

    pub(crate) async fn place(&self) -> Box<dyn Place> {
        self.backend().provision(&self.spec(), &()).await.unwrap()
    }

    pub(crate) async fn open(&self) -> Env {
        let defaults = SessionDefaults::plain(Mode::Live);
        Env(Environment::open(&self.backend(), &self.spec(), defaults).await.unwrap())
    }

    /// All sandboxes that run.
    pub(crate) async fn running(&self) -> Vec<Listed> {
        let client = self.client();
        let app = client.app("hermes-agent").await.unwrap();
        client.list(&app, &BTreeMap::new(), false).await.unwrap()
    }

    /// Hermes' record of snapshots.
    pub(crate) fn snapshots(&self) -> serde_json::Value {
        match std::fs::read_to_string(self.config.hermes_home.join("modal_snapshots.json")) {
            Ok(text) => serde_json::from_str(&text).unwrap(),
            Err(_) => serde_json::json!({}),
        }
    }

    pub(crate) fn snapshot(&self) -> String {
        self.snapshots()["direct:default"].as_str().unwrap().to_owned()
    }

    /// Where it is written what is known of the task.
    pub(crate) fn record(&self) -> PathBuf {
        self.config.home.join("run/modal/default.json")
    }

    /// Writes these into it, by hand.
    pub(crate) fn write_record(&self, changes: &[(&str, serde_json::Value)]) {
        let text = std::fs::read_to_string(self.record()).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (name, value) in changes {
            record[*name] = value.clone();
        }
        std::fs::write(self.record(), record.to_string()).unwrap();
    }

    /// The sandboxes of all times, as the emulator knows them.
    pub(crate) fn sandboxes(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.ask("GET", "/emulator/sandboxes", "")).unwrap()
    }

    /// The ids of all snapshots that there are.
    pub(crate) fn images(&self) -> Vec<String> {
        serde_json::from_str(&self.ask("GET", "/emulator/snapshots", "")).unwrap()
    }

    pub(crate) fn write_snapshots(&self, all: &serde_json::Value) {
        std::fs::create_dir_all(&self.config.hermes_home).unwrap();
        std::fs::write(self.config.hermes_home.join("modal_snapshots.json"), all.to_string()).unwrap();
    }

    pub(crate) fn faults(&self, faults: &str) {
        self.post("/emulator/faults", faults);
    }

    /// How many calls it has had.
    pub(crate) fn calls(&self) -> u64 {
        let calls: serde_json::Value =
            serde_json::from_str(&self.ask("GET", "/emulator/requests", "")).unwrap();
        calls["total"].as_u64().unwrap()
    }

    /// Something that only an emulator does.
    pub(crate) fn post(&self, path: &str, body: &str) {
        self.ask("POST", path, body);
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.switches).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

/// Waits until something is so. Whoever calls it has a limit of its own.
pub(crate) async fn until(mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
}

#[derive(Debug)]
pub(crate) struct Env(pub(crate) Environment);

impl Env {
    pub(crate) async fn run(&self, command: &str) -> (Status, String) {
        let options = RunOptions::new(SessionName::new("main").unwrap(), command);
        let mut capture = Capture::unlimited();
        let status = self.0.run(&options, &mut capture).await.unwrap();
        (status, String::from_utf8_lossy(&capture.stdout.to_bytes()).trim_end().to_owned())
    }

    pub(crate) async fn out(&self, command: &str) -> String {
        self.run(command).await.1
    }

    pub(crate) fn id(&self) -> String {
        self.0.identity().id
    }
}

/// Remembers what was said.
#[derive(Debug, Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<String>>);

impl Progress for Heard {
    fn say(&self, news: &News) {
        self.0.lock().unwrap().push(news.message.clone());
    }
}
