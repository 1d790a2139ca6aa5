//! The least that a Docker engine costs: its API by hand, one connection a request, and nothing of ours in between.
//!
//! Hijacked streams are read as the engine sends them: a head of eight bytes, then as many as it says.

use serde_json::{Value, json};
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// As in the limits of this machine: runs its argument, then says status and directory.
const PROLOGUE: &[u8] = b"__run() { eval \"$1\" </dev/null; printf '\\001%d %s\\001\\n' $? \"$PWD\"; }\n";
const MARKER: u8 = 1;
const HEAD: usize = 8;
const BUFFER: usize = 256 << 10;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An engine's address.
#[derive(Clone, Debug)]
pub struct Engine {
    address: String,
}

impl Engine {
    /// `unix://PATH`, or `tcp://HOST:PORT` without TLS.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>> {
        if let Some(path) = self.address.strip_prefix("unix://") {
            return Ok(Box::new(UnixStream::connect(path).await?));
        }
        let host = self.address.strip_prefix("tcp://").ok_or("neither unix:// nor tcp://")?;
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    /// One request, and the body of its answer.
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = self.connect().await?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} /v1.41{path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        if !head.starts_with("HTTP/1.1 2") {
            return Err(format!("{method} {path}: {answer}").into());
        }
        // An answer in pieces has their lengths in between; what is asked here fits into one.
        let body = body.find('{').map_or("", |at| &body[at..]);
        let end = body.rfind('}').map_or(0, |at| at + 1);
        if end == 0 { Ok(Value::Null) } else { Ok(serde_json::from_str(&body[..end])?) }
    }

    /// Makes and starts a container that sleeps, restricted as ours are.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn container(&self, image: &str) -> Result<Container> {
        let body = json!({
            "Image": image, "Cmd": ["sleep", "100000"], "Entrypoint": [],
            "HostConfig": {
                "Init": true, "PidsLimit": 256, "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"],
                "Tmpfs": { "/tmp": "rw,nosuid,size=512m", "/var/tmp": "rw,noexec,nosuid,size=256m",
                           "/run": "rw,noexec,nosuid,size=64m" },
            },
        });
        let made = self.ask("POST", "/containers/create", Some(&body)).await?;
        let id = made["Id"].as_str().ok_or("no id")?.to_owned();
        let container = Container { engine: self.clone(), id };
        self.ask("POST", &format!("/containers/{}/start", container.id), None).await?;
        Ok(container)
    }

    /// A container that somebody else made.
    #[must_use]
    pub fn known(&self, id: &str) -> Container {
        Container { engine: self.clone(), id: id.to_owned() }
    }
}

/// A container.
#[derive(Debug)]
pub struct Container {
    engine: Engine,
    id: String,
}

impl Container {
    async fn new_exec(&self, command: &[&str], attach: bool) -> Result<String> {
        let body =
            json!({ "Cmd": command, "AttachStdin": attach, "AttachStdout": attach, "AttachStderr": attach });
        let made = self.engine.ask("POST", &format!("/containers/{}/exec", self.id), Some(&body)).await?;
        Ok(made["Id"].as_str().ok_or("no id")?.to_owned())
    }

    /// A program with its standard streams at the other end of a connection.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn exec(&self, command: &[&str]) -> Result<Hijacked> {
        let id = self.new_exec(command, true).await?;
        let mut stream = self.engine.connect().await?;
        let body = r#"{"Detach":false,"Tty":false}"#;
        let head = format!(
            "POST /v1.41/exec/{id}/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
        }
        if !answer.starts_with(b"HTTP/1.1 101") {
            return Err(format!("exec: {}", String::from_utf8_lossy(&answer)).into());
        }
        Ok(Hijacked { stream, buffer: vec![0; BUFFER], held: 0..0, frame: 0 })
    }

    /// A program that runs by itself, as `docker exec -d` starts it.
    ///
    /// # Errors
    /// The engine can't.
    pub async fn detached(&self, command: &[&str]) -> Result<Duration> {
        let begin = Instant::now();
        let id = self.new_exec(command, false).await?;
        self.engine.ask("POST", &format!("/exec/{id}/start"), Some(&json!({ "Detach": true }))).await?;
        Ok(begin.elapsed())
    }

    /// # Errors
    /// The engine can't.
    pub async fn remove(self) -> Result<Duration> {
        let begin = Instant::now();
        self.engine.ask("DELETE", &format!("/containers/{}?force=true&v=true", self.id), None).await?;
        Ok(begin.elapsed())
    }
}

/// An exec's streams.
pub struct Hijacked {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    /// What has arrived and was not looked at.
    held: std::ops::Range<usize>,
    /// What is still to come of the frame that is being read.
    frame: usize,
}

impl std::fmt::Debug for Hijacked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hijacked").finish_non_exhaustive()
    }
}

impl Hijacked {
    /// Some bytes that the program printed; none at its end.
    async fn read(&mut self) -> Result<&[u8]> {
        while self.frame == 0 {
            while self.held.len() < HEAD {
                self.buffer.copy_within(self.held.clone(), 0);
                self.held = 0..self.held.len();
                let n = self.stream.read(&mut self.buffer[self.held.end..]).await?;
                if n == 0 {
                    return Ok(&[]);
                }
                self.held.end += n;
            }
            let head = &self.buffer[self.held.start..][..HEAD];
            self.frame = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
            self.held.start += HEAD;
        }
        if self.held.is_empty() {
            let n = self.stream.read(&mut self.buffer).await?;
            self.held = 0..n;
        }
        let n = self.held.len().min(self.frame);
        let start = self.held.start;
        self.held.start += n;
        self.frame -= n;
        Ok(&self.buffer[start..start + n])
    }

    /// Reads to the end: how many bytes there were.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn drain(&mut self) -> Result<u64> {
        let mut total = 0;
        loop {
            match self.read().await?.len() {
                0 => return Ok(total),
                n => total += n as u64,
            }
        }
    }

    /// # Errors
    /// The connection broke.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }
}

/// A bash that lasts at the end of an exec's streams: what anybody gets who keeps one open.
#[derive(Debug)]
pub struct Shell {
    streams: Hijacked,
}

impl Shell {
    /// # Errors
    /// There is no bash, or it does not answer.
    pub async fn start(container: &Container) -> Result<Self> {
        let mut shell = Self { streams: container.exec(&["bash", "--norc", "--noprofile"]).await? };
        shell.streams.write(PROLOGUE).await?;
        shell.run("true").await?;
        Ok(shell)
    }

    /// One command that must succeed.
    ///
    /// # Errors
    /// It failed, or the shell is gone.
    pub async fn run(&mut self, command: &str) -> Result<Duration> {
        let line = format!("__run '{}'\n", command.replace('\'', r"'\''"));
        let begin = Instant::now();
        self.streams.write(line.as_bytes()).await?;
        let mut reply = Vec::new();
        while !reply.ends_with(&[MARKER, b'\n']) {
            match self.streams.read().await? {
                [] => return Err(format!("bash ended: {:?}", String::from_utf8_lossy(&reply)).into()),
                some => reply.extend_from_slice(some),
            }
        }
        let took = begin.elapsed();
        let status = reply.iter().position(|&byte| byte == MARKER).map(|at| &reply[at + 1..]);
        if !status.is_some_and(|status| status.starts_with(b"0 /")) {
            return Err(format!("bash said {:?}", String::from_utf8_lossy(&reply)).into());
        }
        Ok(took)
    }
}
