//! An emulator of its own for a test, and a client that says little.

use farshell_modal_proto::MAX_MESSAGE;
use farshell_modal_proto::client::modal_client_client::ModalClientClient;
use farshell_modal_proto::client::{self as proto, *};
use farshell_modal_proto::router::task_command_router_client::TaskCommandRouterClient;
use farshell_modal_proto::router::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

pub(crate) const TAG: &str = "debian:bookworm-slim";
/// No wait of a test is longer.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Emulator {
    pub(crate) child: Child,
    life: Option<ChildStdin>,
    pub(crate) url: String,
    pub(crate) switches: String,
    pub(crate) dir: tempfile::TempDir,
}

impl Emulator {
    /// `None`, in sight, for whoever can't make sandboxes.
    pub(crate) fn start(more: &[&str]) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "sandboxes are made by root");
            eprintln!("skipped: sandboxes are made by root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_farshell-modal-emulator"))
            .arg("--dir")
            .arg(dir.path().join("emulator"))
            .args(["--image", &format!("{TAG}=host")])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let life = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        let (url, switches) = (next(), next());
        Some(Self { child, life, url, switches, dir })
    }

    pub(crate) fn http(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.switches.strip_prefix("http://").unwrap()).unwrap();
        write!(
            stream,
            "{method} /emulator/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        body.to_owned()
    }

    pub(crate) fn arm(&self, faults: &str) {
        self.http("POST", "faults", faults);
    }

    /// How often that was called.
    pub(crate) fn count(&self, rpc: &str) -> u64 {
        let all: serde_json::Value = serde_json::from_str(&self.http("GET", "requests", "")).unwrap();
        all["calls"][rpc].as_u64().unwrap_or(0)
    }

    /// As it should end.
    pub(crate) fn end(&mut self) {
        drop(self.life.take());
        self.child.wait().unwrap();
    }

    pub(crate) async fn client(&self) -> Modal {
        let mut client =
            ModalClientClient::new(connect(&self.url).await).max_decoding_message_size(MAX_MESSAGE);
        let mut modal =
            Modal { client: client.clone(), auth: String::new(), app: String::new(), image: String::new() };
        modal.auth =
            client.auth_token_get(modal.ask(AuthTokenGetRequest {})).await.unwrap().into_inner().token;
        let wish = AppGetOrCreateRequest {
            app_name: "test".into(),
            object_creation_type: ObjectCreationType::CreateIfMissing as i32,
            ..Default::default()
        };
        modal.app = client.app_get_or_create(modal.ask(wish)).await.unwrap().into_inner().app_id;
        modal.image = modal.build(&[&format!("FROM {TAG}")]).await.unwrap();
        modal
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) async fn connect(url: &str) -> Channel {
    // It stands behind TLS as well; that is what Modal's own clients use.
    Endpoint::new(url.replace("https://", "http://")).unwrap().connect().await.unwrap()
}

pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Asks the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Modal {
    pub(crate) client: ModalClientClient<Channel>,
    pub(crate) auth: String,
    pub(crate) app: String,
    pub(crate) image: String,
}

impl Modal {
    pub(crate) fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let headers = request.metadata_mut();
        headers.insert("x-modal-token-id", "ak-test".parse().unwrap());
        headers.insert("x-modal-token-secret", "as-test".parse().unwrap());
        if !self.auth.is_empty() {
            headers.insert("x-modal-auth-token", self.auth.parse().unwrap());
        }
        request
    }

    /// The image, or why there is none.
    pub(crate) async fn build(&self, lines: &[&str]) -> Result<String, String> {
        let mut client = self.client.clone();
        let image = Image {
            dockerfile_commands: lines.iter().map(|line| (*line).to_owned()).collect(),
            ..Default::default()
        };
        let wish = ImageGetOrCreateRequest { image: Some(image), ..Default::default() };
        let made = client.image_get_or_create(self.ask(wish)).await.unwrap().into_inner();
        let wish = ImageJoinStreamingRequest {
            image_id: made.image_id.clone(),
            timeout: 55.0,
            ..Default::default()
        };
        let mut stream = client.image_join_streaming(self.ask(wish)).await.unwrap().into_inner();
        while let Some(message) = stream.message().await.unwrap() {
            match message.result {
                Some(result) if result.status() == generic_result::GenericStatus::Success => {
                    return Ok(made.image_id);
                }
                Some(result) => return Err(result.exception),
                None => {}
            }
        }
        Err("it broke off".into())
    }

    pub(crate) fn definition(&self, entrypoint: &[&str]) -> proto::Sandbox {
        proto::Sandbox {
            entrypoint_args: entrypoint.iter().map(|word| (*word).to_owned()).collect(),
            image_id: self.image.clone(),
            timeout_secs: 86_400,
            ..Default::default()
        }
    }

    pub(crate) async fn try_create(&self, definition: proto::Sandbox) -> Result<Sandbox, Status> {
        let wish = SandboxCreateV2Request {
            app_id: self.app.clone(),
            definition: Some(definition),
            ..Default::default()
        };
        let made = self.client.clone().sandbox_create_v2(self.ask(wish)).await?.into_inner();
        let access = made.command_router_access.unwrap();
        Ok(Sandbox::new(self, made.sandbox_id, made.task_id, &access.url, access.jwt).await)
    }

    pub(crate) async fn create(&self, definition: proto::Sandbox) -> Sandbox {
        self.try_create(definition).await.unwrap()
    }

    /// One that just stays.
    pub(crate) async fn sandbox(&self) -> Sandbox {
        self.create(self.definition(&[])).await
    }

    /// Of the first kind.
    pub(crate) async fn first_kind(&self, definition: proto::Sandbox) -> Sandbox {
        let mut client = self.client.clone();
        let wish = SandboxCreateRequest {
            app_id: self.app.clone(),
            definition: Some(definition),
            ..Default::default()
        };
        let sandbox_id = client.sandbox_create(self.ask(wish)).await.unwrap().into_inner().sandbox_id;
        let wish = SandboxGetTaskIdRequest {
            sandbox_id: sandbox_id.clone(),
            timeout: Some(30.0),
            ..Default::default()
        };
        let task_id = client.sandbox_get_task_id(self.ask(wish)).await.unwrap().into_inner().task_id.unwrap();
        let wish = TaskGetCommandRouterAccessRequest { task_id: task_id.clone() };
        let access = client.task_get_command_router_access(self.ask(wish)).await.unwrap().into_inner();
        Sandbox::new(self, sandbox_id, task_id, &access.url, access.jwt).await
    }

    /// `None` while it runs.
    pub(crate) async fn wait(&self, id: &str, timeout: f32) -> Option<GenericResult> {
        let wish = SandboxWaitRequest { sandbox_id: id.into(), timeout };
        self.client.clone().sandbox_wait_v2(self.ask(wish)).await.unwrap().into_inner().result
    }

    pub(crate) async fn terminate(&self, id: &str) {
        let wish = SandboxTerminateRequest { sandbox_id: id.into() };
        self.client.clone().sandbox_terminate_v2(self.ask(wish)).await.unwrap();
    }
}

/// A sandbox, and the way to its router.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) modal: Modal,
    pub(crate) id: String,
    pub(crate) task: String,
    pub(crate) jwt: String,
    pub(crate) router: TaskCommandRouterClient<Channel>,
}

/// How a process ended, and what it said on both streams.
pub(crate) type Ran = (i32, String, String);

impl Sandbox {
    async fn new(modal: &Modal, id: String, task: String, url: &str, jwt: String) -> Self {
        let router = TaskCommandRouterClient::new(connect(url).await).max_decoding_message_size(MAX_MESSAGE);
        Self { modal: modal.clone(), id, task, jwt, router }
    }

    pub(crate) fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.jwt).parse().unwrap());
        request
    }

    pub(crate) fn wish(&self, args: &[&str]) -> TaskExecStartRequest {
        TaskExecStartRequest {
            task_id: self.task.clone(),
            exec_id: unique(),
            command_args: args.iter().map(|word| (*word).to_owned()).collect(),
            stdout_config: TaskExecStdoutConfig::Pipe as i32,
            stderr_config: TaskExecStderrConfig::Pipe as i32,
            ..Default::default()
        }
    }

    pub(crate) fn shell(&self, command: &str) -> TaskExecStartRequest {
        self.wish(&["sh", "-c", command])
    }

    /// Its id.
    pub(crate) async fn start(&self, wish: TaskExecStartRequest) -> String {
        let id = wish.exec_id.clone();
        self.router.clone().task_exec_start(self.ask(wish)).await.unwrap();
        id
    }

    pub(crate) async fn read(
        &self,
        exec: &str,
        offset: u64,
        stderr: bool,
    ) -> Result<Vec<u8>, (Vec<u8>, Status)> {
        let descriptor = match stderr {
            true => TaskExecStdioFileDescriptor::Stderr,
            false => TaskExecStdioFileDescriptor::Stdout,
        };
        let wish = TaskExecStdioReadRequest {
            task_id: self.task.clone(),
            exec_id: exec.into(),
            offset,
            file_descriptor: descriptor as i32,
        };
        let mut all = Vec::new();
        let mut stream = match self.router.clone().task_exec_stdio_read(self.ask(wish)).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return Err((all, status)),
        };
        loop {
            match stream.message().await {
                Ok(Some(message)) => {
                    assert!(!message.data.is_empty(), "clients take no empty data");
                    all.extend_from_slice(&message.data);
                }
                Ok(None) => return Ok(all),
                Err(status) => return Err((all, status)),
            }
        }
    }

    /// 128 and the signal for one that was killed.
    pub(crate) async fn wait(&self, exec: &str) -> Result<i32, Status> {
        use task_exec_wait_response::ExitStatus;
        let wish = TaskExecWaitRequest { task_id: self.task.clone(), exec_id: exec.into() };
        Ok(
            match self.router.clone().task_exec_wait(self.ask(wish)).await?.into_inner().exit_status.unwrap()
            {
                ExitStatus::Code(code) => code,
                ExitStatus::Signal(signal) => 128 + signal,
            },
        )
    }

    pub(crate) async fn ran(&self, wish: TaskExecStartRequest) -> Ran {
        let id = self.start(wish).await;
        let text = |bytes: Result<Vec<u8>, _>| {
            String::from_utf8(bytes.map_err(|(_, error): (_, Status)| error).unwrap()).unwrap()
        };
        let (out, err) = (text(self.read(&id, 0, false).await), text(self.read(&id, 0, true).await));
        (self.wait(&id).await.unwrap(), out, err)
    }

    /// What a command says.
    pub(crate) async fn sh(&self, command: &str) -> String {
        let (code, out, err) = self.ran(self.shell(command)).await;
        assert_eq!((code, err.as_str()), (0, ""), "{command}: {out}");
        out
    }

    pub(crate) async fn write(&self, exec: &str, offset: u64, data: &[u8], eof: bool) -> Result<(), Status> {
        let wish = TaskExecStdinWriteRequest {
            task_id: self.task.clone(),
            exec_id: exec.into(),
            offset,
            data: data.to_vec().into(),
            eof,
        };
        self.router.clone().task_exec_stdin_write(self.ask(wish)).await.map(|_| ())
    }

    pub(crate) async fn snapshot(&self, ttl: i64) -> Result<String, Status> {
        self.snapshot_as(&unique(), Some(ttl)).await
    }

    pub(crate) async fn snapshot_as(&self, id: &str, ttl: Option<i64>) -> Result<String, Status> {
        let wish = TaskSnapshotFilesystemRequest {
            task_id: self.task.clone(),
            snapshot_id: id.into(),
            ttl_seconds: ttl,
            ..Default::default()
        };
        Ok(self.router.clone().task_snapshot_filesystem(self.ask(wish)).await?.into_inner().image_id)
    }

    /// Once it has ended.
    pub(crate) async fn result(&self) -> GenericResult {
        loop {
            if let Some(result) = self.modal.wait(&self.id, 10.0).await {
                return result;
            }
        }
    }

    pub(crate) async fn exit_snapshot(&self) -> Result<sandbox_get_exit_snapshot_response::Outcome, Status> {
        let wish = SandboxGetExitSnapshotRequest { sandbox_id: self.id.clone(), timeout: 10.0 };
        let answer = self.modal.client.clone().sandbox_get_exit_snapshot_v2(self.modal.ask(wish)).await?;
        Ok(answer.into_inner().outcome.unwrap())
    }
}
