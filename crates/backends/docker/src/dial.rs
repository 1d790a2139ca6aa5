//! Ways to an engine: a Unix socket, TCP with or without TLS, or `docker system dial-stdio` on an SSH host.

use crate::endpoint::{Address, Endpoint};
use crate::tls;
use bollard::BollardRequest;
use bytes::Bytes;
use futures_util::Stream;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// The newest version that is asked for, which is what the types are made for.
const NEWEST: Version = Version { major: 1, minor: 53 };

/// A version of the Engine API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: usize,
    pub(crate) minor: usize,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A path without the version that whoever made it may have put in front.
fn without_version(path: &str) -> &str {
    let rest = path.strip_prefix("/v").and_then(|rest| rest.find('/').map(|end| rest.split_at(end)));
    match rest {
        Some((version, rest)) if Version::parse(version).is_some() => rest,
        _ => path,
    }
}

/// What bollard's requests carry.
pub(crate) type Body =
    Either<Full<Bytes>, StreamBody<Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>>>;

/// A connection of any kind.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How long a connection may take to come about. An engine on another continent answers in less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a line may be silent before it is asked for a sign of life.
const ALIVE: Duration = Duration::from_secs(8);
/// Connections that are kept for the next request.
const IDLE: usize = 4;
/// How much of what ssh complains about is kept.
const COMPLAINT: u64 = 4096;

/// No connection came about. Marks the errors that say something about the way, not about a request.
#[derive(Debug)]
pub(crate) struct NoConnection(pub(crate) io::Error);

impl std::fmt::Display for NoConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NoConnection {}

/// Requests to one engine.
#[derive(Debug)]
pub(crate) struct Transport {
    endpoint: Endpoint,
    environment: BTreeMap<String, String>,
    /// What is agreed upon with the engine, once it is.
    version: Mutex<Option<Version>>,
    /// Connections without a request at the moment.
    idle: Mutex<Vec<SendRequest<Body>>>,
}

impl Transport {
    pub(crate) fn new(endpoint: Endpoint, environment: BTreeMap<String, String>) -> Self {
        Self { endpoint, environment, version: Mutex::default(), idle: Mutex::default() }
    }

    /// The version of requests from now on, if the engine says of which it is. Each of its answers does.
    pub(crate) fn agree(&self, answer: &Response<Incoming>) -> Option<Version> {
        let theirs = Version::parse(answer.headers().get("api-version")?.to_str().ok()?)?;
        let version = theirs.min(NEWEST);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        Some(version)
    }

    fn agreed(&self) -> Option<Version> {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request as it goes over one connection: the path alone, with the version, and the host as a header.
    fn relative(&self, mut request: Request<Body>) -> Result<Request<Body>, bollard::errors::Error> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = match self.agreed() {
            Some(version) => format!("/v{version}{}", without_version(path)).parse()?,
            None => path.parse()?,
        };
        request.headers_mut().insert(HOST, HeaderValue::from_static("docker"));
        Ok(request)
    }

    /// Sends a request. An engine that was replaced by one of another version refuses what was agreed upon with the
    /// one before, and has done nothing then.
    pub(crate) async fn request(
        &self,
        request: BollardRequest,
    ) -> Result<Response<Incoming>, bollard::errors::Error> {
        let (parts, body) = request.into_parts();
        let again = match &body {
            Body::Left(whole) => Some((parts.clone(), whole.clone())),
            Body::Right(_) => None,
        };
        let before = self.agreed();
        let answer = self.send(self.relative(Request::from_parts(parts, body))?).await?;
        let now = before.and_then(|_| self.agree(&answer));
        match again {
            Some((parts, body)) if now != before && answer.status() == StatusCode::BAD_REQUEST => {
                self.send(self.relative(Request::from_parts(parts, Body::Left(body)))?).await
            }
            _ => Ok(answer),
        }
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, bollard::errors::Error> {
        while let Some(mut sender) = self.take_idle() {
            let again = repeatable(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answered(sender, response)),
                // The engine closed a connection that lay idle, or its line had died meanwhile.
                Err(mut error) => match error.take_message().or(again) {
                    Some(unanswered) => request = unanswered,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let (sender, response) = self.first(request).await?;
        Ok(self.answered(sender, response))
    }

    /// Sends a request that turns its connection into a stream of bytes.
    pub(crate) async fn upgrade(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, bollard::errors::Error> {
        let request = self.relative(request)?;
        Ok(self.first(request).await?.1)
    }

    /// Sends the first request of a new connection.
    async fn first(
        &self,
        request: Request<Body>,
    ) -> Result<(SendRequest<Body>, Response<Incoming>), bollard::errors::Error> {
        let (mut sender, complaint) = self.connect().await?;
        match sender.send_request(request).await {
            Ok(response) => Ok((sender, response)),
            Err(error) => Err(why(complaint).await.map_or_else(|| error.into(), Into::into)),
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let position = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(position))
    }

    fn answered(&self, sender: SendRequest<Body>, response: Response<Incoming>) -> Response<Incoming> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE && !response.status().is_informational() {
            idle.push(sender);
        }
        response
    }

    async fn connect(&self) -> Result<(SendRequest<Body>, Option<Complaint>), bollard::errors::Error> {
        let (io, complaint) = match tokio::time::timeout(PATIENCE, self.dial()).await {
            Ok(Ok(dialled)) => dialled,
            Ok(Err(error)) => return Err(no_connection(error).into()),
            Err(_) => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
                return Err(no_connection(error).into());
            }
        };
        let (sender, connection) = handshake(TokioIo::new(io)).await?;
        // Ends with the connection, which ends with the last sender or response.
        tokio::spawn(connection.with_upgrades());
        Ok((sender, complaint))
    }

    async fn dial(&self) -> io::Result<(Box<dyn Io>, Option<Complaint>)> {
        match &self.endpoint.address {
            Address::Unix(path) => Ok((Box::new(UnixStream::connect(path).await?), None)),
            Address::Tcp { host, port, tls } => {
                let tcp = TcpStream::connect((host.as_str(), *port)).await?;
                tcp.set_nodelay(true)?;
                notice_silence(&tcp)?;
                match tls {
                    None => Ok((Box::new(tcp), None)),
                    Some(files) => Ok((Box::new(tls::wrap(tcp, host, files).await?), None)),
                }
            }
            Address::Ssh { user, host, port } => {
                let (ssh, complaint) = Ssh::start(user.as_deref(), host, *port, &self.environment)?;
                Ok((Box::new(ssh), Some(complaint)))
            }
        }
    }
}

/// The same request once more, if an engine that has done it already does nothing but say so.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let Body::Left(body) = request.body() else { return None };
    let mut copy = Request::new(Body::Left(body.clone()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    request.method().is_idempotent().then_some(copy)
}

/// A connection whose other end is gone without a word breaks after a while.
fn notice_silence(tcp: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, ALIVE)?;
    sockopt::set_tcp_keepintvl(tcp, ALIVE)?;
    sockopt::set_tcp_keepcnt(tcp, 2)?;
    // The same for one on which something was sent.
    let most = u32::try_from(3 * ALIVE.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(tcp, most)?)
}

/// What ssh complained about, once it has ended.
type Complaint = JoinHandle<String>;

/// Why a connection by way of ssh did not last until the first answer.
async fn why(complaint: Option<Complaint>) -> Option<io::Error> {
    let said = tokio::time::timeout(Duration::from_secs(1), complaint?).await.ok()?.ok()?;
    let said = if said.is_empty() { "ssh ended without a word".into() } else { said };
    Some(no_connection(io::Error::new(io::ErrorKind::ConnectionAborted, said)))
}

fn no_connection(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), NoConnection(error))
}

/// The standard input and output of an ssh that runs `docker system dial-stdio`.
struct Ssh {
    input: ChildStdin,
    output: ChildStdout,
    /// Killed when the stream is dropped.
    _child: Child,
}

impl Ssh {
    fn start(
        user: Option<&str>,
        host: &str,
        port: Option<u16>,
        environment: &BTreeMap<String, String>,
    ) -> io::Result<(Self, Complaint)> {
        let mut command = Command::new("ssh");
        command.env_clear().envs(environment);
        // There is nobody to ask for a password.
        command.args(["-T", "-oBatchMode=yes", "-oConnectTimeout=20"]);
        // Nor anybody who would notice that a line is dead.
        command.args([&format!("-oServerAliveInterval={}", ALIVE.as_secs()), "-oServerAliveCountMax=2"]);
        if let Some(user) = user {
            command.args(["-l", user]);
        }
        if let Some(port) = port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["--", host, "docker system dial-stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|e| io::Error::new(e.kind(), format!("starting ssh: {e}")))?;
        let (Some(input), Some(output), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("ssh has no standard descriptors"));
        };
        let complaint = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = (&mut errors).take(COMPLAINT).read_to_end(&mut text).await;
            // The rest is read as well, or ssh would stand still.
            let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        Ok((Self { input, output, _child: child }, complaint))
    }
}

impl AsyncRead for Ssh {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buf)
    }
}

impl AsyncWrite for Ssh {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;

    /// One line for each request that an engine gets whose connections break at their second request.
    async fn breaks_at_the_second(listener: UnixListener, heard: tokio::sync::mpsc::UnboundedSender<String>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            for nth in 0..2 {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"\r\n\r\n")
                    && let Ok(byte) = stream.read_u8().await
                {
                    bytes.push(byte);
                }
                if bytes.is_empty() {
                    break;
                }
                heard
                    .send(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().into())
                    .unwrap();
                if nth == 0 {
                    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                }
            }
        }
    }

    #[tokio::test]
    async fn what_does_no_harm_is_asked_again_when_an_old_connection_breaks() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let (heard, mut requests) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(breaks_at_the_second(UnixListener::bind(&socket).unwrap(), heard));
        let endpoint = Endpoint { address: Address::Unix(socket), source: "a test".into() };
        for (method, asked_again) in [("GET", true), ("DELETE", true), ("POST", false)] {
            let transport = Transport::new(endpoint.clone(), BTreeMap::new());
            let ask = || {
                let request = Request::builder().method(method).uri("/x");
                transport.send(request.body(Body::Left(Full::new(Bytes::new()))).unwrap())
            };
            assert_eq!(ask().await.unwrap().status(), 204);
            // Until the answer is dealt with, the connection is not for others.
            while !transport.idle.lock().unwrap()[0].is_ready() {
                tokio::task::yield_now().await;
            }
            assert_eq!(ask().await.is_ok(), asked_again, "{method}");
            drop(transport);
            let mut lines = Vec::new();
            while let Ok(line) = requests.try_recv() {
                lines.push(line);
            }
            let times = if asked_again { 3 } else { 2 };
            assert_eq!(lines, vec![format!("{method} /x HTTP/1.1"); times]);
        }
    }

    #[test]
    fn a_path_has_one_version_at_most() {
        for (path, expected) in [
            ("/v1.41/containers/json?all=true", "/containers/json?all=true"),
            ("/containers/json", "/containers/json"),
            ("/volumes/v1.2/x", "/volumes/v1.2/x"),
            ("/version", "/version"),
            ("/volumes", "/volumes"),
            ("/v1.x/y", "/v1.x/y"),
        ] {
            assert_eq!(without_version(path), expected);
        }
    }
}
