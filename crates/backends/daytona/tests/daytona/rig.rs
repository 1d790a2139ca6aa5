//! A Daytona of a test's own, a home, and environments in it.

use farshell_config::settings::{ContainerSettings, DaytonaSettings};
use farshell_daytona::client::{Access, Client, Sandbox};
use farshell_daytona::{Config, Daytona};
use farshell_engine::backend::{Backend, News, Place, Progress, Spec, TaskName};
pub(crate) use farshell_testing::Env;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Rig {
    /// Everything of the test, until its end.
    _home: TempDir,
    pub(crate) config: Config,
    pub(crate) url: String,
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
        let program = farshell_testing::var("FARSHELL_TEST_DAYTONA_BIN", "daytona")?;
        let home = tempfile::tempdir().unwrap();
        let mut emulator = Command::new(program)
            .arg("--dir")
            .arg(home.path().join("s"))
            .args(["--delay-ms", "20"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(emulator.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        let environment = [("DAYTONA_API_URL", url.as_str()), ("DAYTONA_API_KEY", "dtn_test")];
        let config = Config {
            home: home.path().join("h"),
            settings: DaytonaSettings {
                image: "debian:12".into(),
                target: None,
                auto_stop_minutes: 15,
                auto_archive_minutes: 10_080,
                auto_delete_minutes: 0,
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(1024),
                    disk_mb: Some(3072),
                    persistent: true,
                },
            },
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            files: BTreeMap::new(),
        };
        Some(Self { _home: home, config, url, emulator })
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn backend(&self) -> Daytona {
        Daytona::new(self.config.clone())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&Access { url: self.url.clone(), key: "dtn_test".into(), organization: None }).unwrap()
    }

    pub(crate) fn spec(&self) -> Spec {
        let settings = BTreeMap::from([("daytona_image".to_owned(), self.config.settings.image.clone())]);
        Spec { task: TaskName::new("default").unwrap(), lease: Duration::from_secs(60), settings }
    }

    pub(crate) async fn place(&self) -> Box<dyn Place> {
        self.backend().provision(&self.spec(), &()).await.unwrap()
    }

    pub(crate) async fn open(&self) -> Env {
        Env::open(&self.backend(), &self.spec()).await
    }

    /// All sandboxes that there are, also those that no list shows yet.
    pub(crate) async fn sandboxes(&self) -> Vec<Sandbox> {
        self.client().list(&BTreeMap::new(), None).await.unwrap()
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        self.client().get("hermes-default").await.unwrap().unwrap()
    }

    pub(crate) fn faults(&self, faults: &str) {
        self.post("/emulator/faults", faults);
    }

    /// Where the emulator listens.
    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").trim_end_matches("/api").to_owned()
    }

    /// How many requests it has had.
    pub(crate) fn requests(&self) -> u64 {
        self.ask("GET", "/emulator/requests", "").parse().unwrap()
    }

    /// Something that only an emulator does.
    pub(crate) fn post(&self, path: &str, body: &str) {
        self.ask("POST", path, body);
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
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

/// Remembers what was said.
#[derive(Debug, Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<String>>);

impl Progress for Heard {
    fn say(&self, news: &News) {
        self.0.lock().unwrap().push(news.message.clone());
    }
}
