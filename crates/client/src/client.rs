//! The handle on a server, and the HTTP call.

use crate::body::Out;
use crate::connect::{self, crowded, nobody};
use crate::error::{Result, TALKING, disconnected, error, protocol, unknown, with_hint};
use crate::home::Files;
use crate::start::{Started, Starter, late};
use bytes::Bytes;
use farshell_api::error::ErrorBody;
use farshell_api::{API_VERSION, ApiError, VERSION_HEADER};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::HeaderMap;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long it may take until a server that was started answers.
pub const START: Duration = Duration::from_secs(30);
/// How long a server may take to answer what needs no work.
pub const ANSWER: Duration = Duration::from_secs(10);
/// A silence after which the server is asked for a sign of life. What it works on may take as long as it needs.
pub const QUIET: Duration = Duration::from_secs(5);
/// The same once it has given one. A stream is never silent for so long while its server is well.
pub const STILL_QUIET: Duration = Duration::from_secs(45);
/// Servers that one attempt to connect may start.
const STARTS: u32 = 5;
/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a call is made that may be repeated, with twice the pause each time.
const CALLS: u32 = 8;

/// How this program calls itself, see [`farshell_api::CLIENT_NAME`].
pub(crate) const NAME: &str = concat!("farshell/", env!("CARGO_PKG_VERSION"));

type Sender = SendRequest<Out>;

/// Connections that are kept for the next calls.
const KEPT: usize = 64;

/// A handle on the server of one home. It survives the server.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    files: Files,
    /// Absent if no server is to be started.
    starter: Option<Starter>,
    /// A connection that nobody has used yet.
    fresh: Mutex<Option<UnixStream>>,
    /// Those that are kept for the next calls.
    kept: Mutex<Vec<Sender>>,
}

/// May a call be made again if its answer was lost?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) repeat: Repeat,
    /// Servers of another version are no hindrance.
    pub(crate) any_version: bool,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, repeat: Repeat::Safe, any_version: false }
    }

    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize, repeat: Repeat) -> Result<Self> {
        let body = serde_json::to_vec(body).map_err(|e| protocol(e.to_string()))?;
        Ok(Self {
            method: Method::POST,
            path: path.into(),
            body: Some(body.into()),
            repeat,
            any_version: false,
        })
    }
}

/// Why one attempt gave no answer.
enum Lost {
    /// The request did not reach anybody.
    Unsent(String),
    /// It may have.
    Maybe(String),
    /// The server said so, or it makes no sense to try again.
    Final(ApiError),
}

impl Client {
    /// Connects to the home's server; starts one if there is none.
    ///
    /// # Errors
    /// It does not start, or not in time: the error has its last words.
    pub async fn connect_or_start(home: &Path, starter: Starter) -> Result<Self> {
        Self::new(home, Some(starter)).connected().await
    }

    /// Connects to the home's server, which must be running.
    ///
    /// # Errors
    /// None runs: kind `not_found`.
    pub async fn connect(home: &Path) -> Result<Self> {
        Self::new(home, None).connected().await
    }

    /// Connects with the first call.
    #[must_use]
    pub fn at(home: &Path, starter: Starter) -> Self {
        Self::new(home, Some(starter))
    }

    fn new(home: &Path, starter: Option<Starter>) -> Self {
        let (fresh, kept) = (Mutex::new(None), Mutex::default());
        Self { inner: Arc::new(Inner { files: Files::of(home), starter, fresh, kept }) }
    }

    async fn connected(self) -> Result<Self> {
        let stream = self.reach().await?;
        *lock(&self.inner.fresh) = Some(stream);
        Ok(self)
    }

    #[must_use]
    pub fn files(&self) -> &Files {
        &self.inner.files
    }

    /// A connection, to a server that is started if need be.
    pub(crate) async fn reach(&self) -> Result<UnixStream> {
        if let Some(stream) = lock(&self.inner.fresh).take() {
            return Ok(stream);
        }
        let files = &self.inner.files;
        let deadline = Instant::now() + START;
        let mut starts = 0;
        loop {
            match connect::socket(files).await {
                Ok(stream) => return Ok(stream),
                Err(e) if nobody(&e) => {
                    let Some(starter) = &self.inner.starter else { return Err(not_running(files)) };
                    if starts == STARTS {
                        return Err(late(files));
                    }
                    if starter.start(files, deadline).await? == Started::Ready {
                        starts += 1;
                        continue;
                    }
                }
                Err(e) if crowded(&e) => {}
                Err(e) => {
                    let kind = if e.kind() == std::io::ErrorKind::PermissionDenied {
                        "permission_denied"
                    } else {
                        "system"
                    };
                    let what = format!("{}: {e}", files.socket().display());
                    return Err(error(kind, "connecting to the server", what));
                }
            }
            if Instant::now() >= deadline {
                return Err(late(files));
            }
            sleep(PAUSE).await;
        }
    }

    /// Makes a call and understands its answer.
    pub(crate) async fn call<R: DeserializeOwned>(&self, call: Call) -> Result<R> {
        let body = self.exchange(&call).await?;
        serde_json::from_slice(&body).map_err(|e| {
            protocol(format!("the answer to {} {} is not understood: {e}", call.method, call.path))
        })
    }

    async fn exchange(&self, call: &Call) -> Result<Bytes> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let lost = match self.attempt(call).await {
                Ok(body) => return Ok(body),
                Err(lost) => lost,
            };
            // Somebody who must not start a server has no other one to ask.
            let again = attempts < CALLS && self.inner.starter.is_some();
            match lost {
                Lost::Final(error) => return Err(error),
                Lost::Unsent(_) if again => {}
                Lost::Maybe(_) if again && call.repeat == Repeat::Safe => {}
                Lost::Unsent(why) => return Err(disconnected(why)),
                Lost::Maybe(why) if call.repeat == Repeat::Safe => return Err(disconnected(why)),
                Lost::Maybe(why) => return Err(unknown(TALKING, &why)),
            }
            sleep(PAUSE * (1 << attempts)).await;
        }
    }

    async fn attempt(&self, call: &Call) -> std::result::Result<Bytes, Lost> {
        let mut sender = self.sender().await.map_err(Lost::Final)?;
        let mut request = Request::builder()
            .method(&call.method)
            .uri(&call.path)
            .header("host", "localhost")
            .header("user-agent", NAME)
            .header("content-type", "application/json");
        // Without it a server of any version answers.
        if !call.any_version {
            request = request.header(VERSION_HEADER, API_VERSION);
        }
        let body = Out::whole(call.body.clone().unwrap_or_default());
        let request = request.body(body).map_err(|e| Lost::Final(protocol(format!("{}: {e}", call.path))))?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|e| {
                let why = format!("the connection was lost: {e}");
                if e.is_canceled() { Lost::Unsent(why) } else { Lost::Maybe(why) }
            })?;
            let (head, body) = response.into_parts();
            if !call.any_version
                && let Some(other) = other_version(&head.headers)
            {
                return Err(Lost::Final(self.skew(other).await));
            }
            let body =
                body.collect().await.map_err(|e| Lost::Maybe(format!("the answer is cut off: {e}")))?;
            Ok((head.status, body.to_bytes()))
        };
        let (status, body) = tokio::select! {
            biased;
            answered = answered => answered?,
            error = self.dead(QUIET) => return Err(Lost::Final(error)),
        };
        self.keep(sender);
        if status.is_success() {
            return Ok(body);
        }
        let error = refused(status, &body);
        Err(match stopping(&error) {
            true if error.retry == "safe" => Lost::Unsent(error.message),
            true => Lost::Maybe(error.message),
            false => Lost::Final(error),
        })
    }

    /// One call whose body or answer may be large, made once. The answer's head is waited for, its body is not.
    pub(crate) async fn respond(&self, method: &Method, path: &str, body: Out) -> Result<Response<Incoming>> {
        let mut sender = self.sender().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/octet-stream")
            .header(VERSION_HEADER, API_VERSION)
            .body(body)
            .map_err(|e| protocol(format!("{path}: {e}")))?;
        let lost = |e: hyper::Error| disconnected(format!("the connection was lost: {e}"));
        let response = sender.send_request(request).await.map_err(lost)?;
        if let Some(other) = other_version(response.headers()) {
            return Err(self.skew(other).await);
        }
        self.keep(sender);
        Ok(response)
    }

    /// For the next call. Whether it can be used is seen then.
    fn keep(&self, sender: Sender) {
        let mut kept = lock(&self.inner.kept);
        if kept.len() < KEPT {
            kept.push(sender);
        }
    }

    /// A connection for one call.
    async fn sender(&self) -> Result<Sender> {
        {
            let mut kept = lock(&self.inner.kept);
            kept.retain(|sender| !sender.is_closed());
            // One whose last answer is still being read is left alone.
            if let Some(at) = kept.iter().rposition(SendRequest::is_ready) {
                return Ok(kept.swap_remove(at));
            }
        }
        let stream = self.reach().await?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|e| disconnected(e.to_string()))?;
        tokio::spawn(async move {
            // Whoever waits for an answer hears of its end.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Returns when the server gives no sign of life any more. It is asked for one after so much silence.
    pub(crate) async fn dead(&self, mut quiet: Duration) -> ApiError {
        loop {
            sleep(quiet).await;
            if let Err(error) = self.alive().await {
                return error;
            }
            quiet = STILL_QUIET;
        }
    }

    /// Asks for a sign of life, on a connection of its own.
    async fn alive(&self) -> Result<()> {
        let deadline = Instant::now() + ANSWER;
        let ask = async {
            loop {
                match connect::socket(&self.inner.files).await {
                    Ok(stream) => break Ok(stream),
                    Err(e) if crowded(&e) => sleep(PAUSE).await,
                    Err(e) => break Err(disconnected(e.to_string())),
                }
            }
        };
        let silent = || silent(&self.inner.files);
        let stream = timeout_at(deadline, ask).await.map_err(|_| silent())??;
        match timeout_at(deadline, ask_status(stream)).await {
            Ok(answer) => answer.map(drop).map_err(disconnected),
            Err(_) => Err(silent()),
        }
    }

    /// What a server of another version is told to the user as.
    pub(crate) async fn skew(&self, theirs: String) -> ApiError {
        let about = async {
            let stream = connect::socket(&self.inner.files).await.ok()?;
            let body = ask_status(stream).await.ok()?;
            let status: serde_json::Value = serde_json::from_slice(&body).ok()?;
            Some(format!("pid {}, version {}", status.get("pid")?, status.get("version")?.as_str()?))
        };
        let about = timeout(ANSWER, about).await.ok().flatten().or_else(|| {
            let pid = self.inner.files.pid()?;
            Some(format!("pid {pid}"))
        });
        let server = about.map_or_else(|| "the server".into(), |about| format!("the server ({about})"));
        with_hint(
            protocol(format!("{server} speaks API {theirs}, this client {API_VERSION}")),
            "stop it with `farshell server stop`: what runs goes on, and the next call starts a server of this version",
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version of an answer, if it is not ours.
pub(crate) fn other_version(headers: &HeaderMap) -> Option<String> {
    match headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or("?")) {
        Some(theirs) if theirs == API_VERSION.to_string() => None,
        Some(theirs) => Some(theirs.to_owned()),
        None => Some("of no known version".into()),
    }
}

/// `GET /v1/server` from whoever is at the other end.
async fn ask_status(stream: UnixStream) -> std::result::Result<Bytes, String> {
    let (mut sender, connection) =
        handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let request = Request::get("/v1/server")
        .header("host", "localhost")
        .body(Full::default())
        .map_err(|e| e.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        response.into_body().collect().await
    };
    tokio::select! {
        answer = answer => Ok(answer.map_err(|e| e.to_string())?.to_bytes()),
        Err(e) = connection => Err(e.to_string()),
    }
}

/// An answer that is no success.
pub(crate) fn refused(status: StatusCode, body: &[u8]) -> ApiError {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => {
            let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
            protocol(format!("the server answered {status}: {text}"))
        }
    }
}

/// The server is about to end, and the next one can be asked.
pub(crate) fn stopping(error: &ApiError) -> bool {
    error.kind == "disconnected"
}

fn not_running(files: &Files) -> ApiError {
    error("not_found", "connecting to the server", format!("no server runs for {}", files.home.display()))
}

pub(crate) fn silent(files: &Files) -> ApiError {
    let pid = files.pid();
    let who = pid.map_or_else(|| "the server".into(), |pid| format!("the server (pid {pid})"));
    let seconds = ANSWER.as_secs();
    with_hint(
        error("timed_out", TALKING, format!("{who} does not answer within {seconds} s")),
        "`farshell server stop --force` ends it; what runs goes on, and the next call starts another",
    )
}
