//! A private world for each test: its own home, a server in a process of its own, and nothing left behind.

use bytes::Bytes;
use farshell_api::process::Process;
use farshell_api::server::ServerStatus;
use farshell_api::stream::{OUTPUT_HEADER, ServerMessage};
use farshell_config::Settings;
use farshell_engine::{Backend, Result as EngineResult};
use farshell_keeper::{Asker, Backends};
use farshell_server::{Paths, ServeOptions, Tls};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const SPEC: &str = "FARSHELL_TEST_SERVER";

#[derive(Debug)]
pub(crate) struct LocalOnly;

impl LocalOnly {
    fn local(home: &Path) -> Arc<dyn Backend> {
        Arc::new(farshell_local::Local::new(farshell_local::Config { home: home.join("farshell") }))
    }
}

impl Backends for LocalOnly {
    fn open(&self, _: &Settings, asker: &Asker<'_>) -> EngineResult<Arc<dyn Backend>> {
        Ok(Self::local(asker.home))
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        vec![Self::local(home)]
    }
}

/// Not a test: the process that the tests talk to.
#[test]
#[ignore = "is started by the other tests"]
fn be_the_server() {
    let Ok(spec) = std::env::var(SPEC) else { return };
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let path = |value: &Value| PathBuf::from(value.as_str().unwrap());
    let options = ServeOptions {
        home: path(&spec["home"]),
        backends: Arc::new(LocalOnly),
        listen: spec["listen"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a.as_str().unwrap().parse().unwrap())
            .collect(),
        idle: spec["idle"].as_f64().map(Duration::from_secs_f64),
        tls: spec["cert"].is_string().then(|| Tls { cert: path(&spec["cert"]), key: path(&spec["key"]) }),
        version: "0.0.test".into(),
    };
    let runtime = farshell_server::runtime().unwrap();
    let served = runtime.block_on(farshell_server::serve(options, |status| {
        println!("\nREADY {}", serde_json::to_string(status).unwrap());
    }));
    if let Err(error) = served {
        println!(
            "\nFAILED {}",
            json!({"kind": error.kind.name(), "text": error.to_string(), "hint": error.hint})
        );
        std::process::exit(3);
    }
    std::process::exit(0);
}

/// A server's process.
pub(crate) struct Server {
    child: Child,
    pub(crate) status: ServerStatus,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its exit code.
    pub(crate) async fn ended(&mut self) -> i32 {
        let mut code = None;
        eventually("the server ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        })
        .await;
        code.and_then(|status| status.code()).unwrap_or(-1)
    }

    /// A value of `/proc/<pid>/status`, in KiB.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What an unsuccessful start says.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: String,
    pub(crate) text: String,
}

pub(crate) struct World {
    root: tempfile::TempDir,
    spec: Value,
}

impl World {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let spec = json!({"home": home, "listen": [], "idle": null, "cert": null, "key": null});
        Self { root, spec }
    }

    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.spec[name] = value;
        self
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.spec[name] = value;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn paths(&self) -> Paths {
        farshell_server::paths(&self.path("home"))
    }

    pub(crate) fn start(&self) -> Server {
        self.try_start().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    pub(crate) fn try_start(&self) -> Result<Server, Failure> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rig::be_the_server", "--ignored", "--nocapture"])
            .env(SPEC, self.spec.to_string())
            .env("HERMES_HOME", self.path("home"))
            .env("HOME", self.root.path())
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The harness has lines of its own.
        let said = lines
            .map_while(Result::ok)
            .find(|line| line.starts_with("READY ") || line.starts_with("FAILED "));
        match said.as_deref().and_then(|line| line.split_once(' ')) {
            Some(("READY", status)) => Ok(Server { child, status: serde_json::from_str(status).unwrap() }),
            said => {
                child.wait().unwrap();
                let value: Value = serde_json::from_str(said.expect("it ended without a word").1).unwrap();
                let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
                Err(Failure { kind: field("kind"), text: field("text") })
            }
        }
    }

    fn log(&self) -> std::fs::File {
        std::fs::File::options().append(true).create(true).open(self.path("log")).unwrap()
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.paths().socket).await.unwrap()
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        ask_on(self.connect().await, request(method, path, &[], body)).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, Some(body)).await
    }

    /// Runs a command and gives its result.
    pub(crate) async fn run(&self, command: &str) -> Value {
        self.post("/v1/run", json!({"start": {"command": command}})).await.ok()
    }

    /// The server's counts, when it has noticed who is connected and who has gone.
    pub(crate) async fn counts(&self, connections: u32) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counts = self.get("/v1/server").await.ok()["counts"].take();
            if counts["connections"] == connections {
                return counts;
            }
            assert!(Instant::now() < deadline, "{counts}");
        }
    }

    pub(crate) async fn stream(&self, open: Value) -> Stream<UnixStream> {
        Stream::open(self.connect().await, open).await
    }

    /// Bytes as they are, and everything that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = std::os::unix::net::UnixStream::connect(self.paths().socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may have heard enough before everything is said.
        let _ = socket.write_all(bytes);
        let mut text = Vec::new();
        let _ = socket.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.path("home/farshell/run").exists() {
            return;
        }
        // Whoever serves now, or one that is started for it, removes all that was made here.
        let stop = json!({"remove_environments": true}).to_string();
        let stop = format!(
            "POST /v1/server/stop HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{stop}",
            stop.len()
        );
        let send = |socket: &Path| {
            let mut socket = std::os::unix::net::UnixStream::connect(socket).ok()?;
            socket.write_all(stop.as_bytes()).ok()?;
            let mut text = String::new();
            socket.read_to_string(&mut text).ok()?;
            text.starts_with("HTTP/1.1 200").then_some(())
        };
        if send(&self.paths().socket).is_some() {
            return;
        }
        if let Ok(mut server) = self.try_start() {
            let _ = send(&self.paths().socket);
            let deadline = Instant::now() + PATIENCE;
            while !server.has_ended() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a success.
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// Status, kind and message of a failure.
    pub(crate) fn refused(self) -> (u16, String, String) {
        assert!(!self.status.is_success(), "{self:?}");
        let field = |name: &str| {
            let value = &self.body["error"][name];
            value.as_str().unwrap_or_else(|| panic!("no {name} in {self:?}")).to_owned()
        };
        assert!(["never", "safe", "unsafe"].contains(&field("retry").as_str()));
        (self.status.as_u16(), field("kind"), field("message"))
    }
}

pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

pub(crate) async fn ask_on<S>(stream: S, request: Request<Full<Bytes>>) -> hyper::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let asked = async {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await.expect("no answer in time");
    connection.abort();
    let _ = connection.await;
    answer
}

/// A WebSocket as a client has it.
pub(crate) struct Stream<S> {
    pub(crate) socket: WebSocketStream<S>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Output(u8, u64, Vec<u8>),
    Said(ServerMessage),
    /// The code, or `None` if the connection broke without a word.
    Closed(Option<u16>),
}

/// A stream that was followed to its end.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Of the next byte.
    pub(crate) offset: u64,
    pub(crate) messages: Vec<ServerMessage>,
    pub(crate) code: Option<u16>,
}

impl Followed {
    pub(crate) fn ended(&self) -> &Process {
        match self.messages.last() {
            Some(ServerMessage::Ended { process }) => process,
            other => panic!("ended with {other:?}"),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    pub(crate) async fn open(stream: S, open: Value) -> Self {
        let (socket, response) =
            tokio_tungstenite::client_async("ws://localhost/v1/stream", stream).await.unwrap();
        assert_eq!(response.headers()["farshell-api-version"], "1");
        let mut stream = Self { socket };
        stream.say(open).await;
        stream
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.socket.send(Message::Text(message.to_string().into())).await.unwrap();
    }

    pub(crate) async fn input(&mut self, offset: u64, bytes: &[u8]) {
        let message = [&offset.to_le_bytes()[..], bytes].concat();
        self.socket.send(Message::Binary(message.into())).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("silence");
            return match message {
                Some(Ok(Message::Text(text))) => Heard::Said(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Binary(bytes))) => {
                    let (head, bytes) = bytes.split_at(OUTPUT_HEADER);
                    Heard::Output(head[0], u64::from_le_bytes(head[1..].try_into().unwrap()), bytes.to_vec())
                }
                Some(Ok(Message::Close(frame))) => Heard::Closed(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => Heard::Closed(None),
            };
        }
    }

    /// The first message must be this, but for news of what takes long.
    pub(crate) async fn opened(&mut self) -> Process {
        loop {
            match self.next().await {
                Heard::Said(ServerMessage::Opened { process, .. }) => return *process,
                Heard::Said(ServerMessage::Progress { .. }) => {}
                other => panic!("{other:?} where it should have opened"),
            }
        }
    }

    /// Reads until so much text of standard output has come.
    pub(crate) async fn until(&mut self, followed: &mut Followed, text: &str) {
        while !followed.text().contains(text) {
            let heard = self.next().await;
            assert!(take(followed, heard), "closed before {text:?} came: {followed:?}");
        }
    }

    /// To the end, from this offset.
    pub(crate) async fn follow(&mut self, mut followed: Followed) -> Followed {
        loop {
            let heard = self.next().await;
            if !take(&mut followed, heard) {
                return followed;
            }
        }
    }
}

/// False at the end.
fn take(followed: &mut Followed, heard: Heard) -> bool {
    match heard {
        Heard::Output(stream, offset, bytes) => {
            assert_eq!(offset, followed.offset, "a byte is missing, or there twice");
            followed.offset += bytes.len() as u64;
            match stream {
                1 => followed.stdout.extend(bytes),
                2 => followed.stderr.extend(bytes),
                other => panic!("stream {other}"),
            }
        }
        Heard::Said(message) => followed.messages.push(message),
        Heard::Closed(code) => {
            followed.code = code;
            return false;
        }
    }
    true
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn start(command: &str) -> Value {
    json!({"start": {"command": command}})
}
