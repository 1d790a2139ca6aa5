//! A sandbox's own server, on the machine where it runs. Where that is, and a token for it, Modal says.
//!
//! The token expires, and the server may move: then Modal is asked again, by one for all.

use super::call::{Attempt, Made as Answered, Patience, repeat};
use super::channel::Server;
use super::error::{ClientError, Fault, Result};
use super::sandbox::Begun;
use super::{Client, Code, Made, key};
use farshell_modal_proto::MAX_MESSAGE;
use farshell_modal_proto::client::CommandRouterAccess;
use farshell_modal_proto::router::TaskSnapshotFilesystemRequest;
use farshell_modal_proto::router::task_command_router_client::TaskCommandRouterClient;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// How long most answers may take.
pub(crate) const USUAL: Duration = Duration::from_secs(20);
/// A snapshot of many gigabytes takes minutes.
pub(crate) const SNAPSHOT: Duration = Duration::from_secs(600);
/// As in Modal's own clients.
const PATIENCE: Patience = Patience {
    limit: USUAL,
    retries: 10,
    pause: Duration::from_millis(10),
    longest: Duration::from_secs(1),
    throttle: None,
};

pub(crate) type Wire = TaskCommandRouterClient<Channel>;

/// The way to processes of one sandbox. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    sandbox: String,
    task: String,
    way: Mutex<Way>,
    /// Held by whoever looks for the way.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Way {
    number: u64,
    access: Option<CommandRouterAccess>,
    channel: Option<Channel>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("sandbox", &self.inner.sandbox).finish_non_exhaustive()
    }
}

/// A connection with its token, and which one it is.
#[derive(Clone)]
struct Line {
    channel: Channel,
    jwt: String,
    number: u64,
}

impl Router {
    /// Of a sandbox that was just made.
    #[must_use]
    pub fn of(client: &Client, made: &Made) -> Self {
        let way = Way { access: made.access.clone(), ..Way::default() };
        Self {
            inner: Arc::new(Inner {
                client: client.clone(),
                sandbox: made.id.clone(),
                task: made.task.clone(),
                way: Mutex::new(way),
                looking: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Of a sandbox that is there.
    ///
    /// # Errors
    /// It does not run.
    pub async fn find(client: &Client, id: &str) -> Result<Self> {
        let lost = |why: &str| ClientError::new("looking for the sandbox's task", Fault::Lost(why.into()));
        match client.task(id).await? {
            Begun::Task(task) => Ok(Self::of(client, &Made { id: id.to_owned(), task, access: None })),
            Begun::NotYet => Err(lost("it does not run yet")),
            Begun::Never(_) => Err(lost("it does not run")),
        }
    }

    pub(crate) fn task(&self) -> &str {
        &self.inner.task
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.inner.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Option<Line> {
        let way = self.way();
        let (channel, access) = (way.channel.clone()?, way.access.as_ref()?);
        Some(Line { channel, jwt: access.jwt.clone(), number: way.number })
    }

    async fn line(&self) -> Result<Line> {
        if let Some(line) = self.known() {
            return Ok(line);
        }
        let _only_one = self.inner.looking.lock().await;
        if let Some(line) = self.known() {
            return Ok(line);
        }
        let known = self.way().access.clone();
        let access = match known {
            Some(access) => access,
            None => self.inner.client.router_access(&self.inner.sandbox, &self.inner.task).await?,
        };
        let connected = Server::parse(&access.url)?.connect().await;
        let mut way = self.way();
        match connected {
            Ok(channel) => {
                way.number += 1;
                way.access = Some(access.clone());
                way.channel = Some(channel.clone());
                Ok(Line { channel, jwt: access.jwt, number: way.number })
            }
            Err(error) => {
                // It may be somewhere else by now.
                way.access = None;
                Err(error)
            }
        }
    }

    /// What a failure says about the way. True if it was the token: another may do.
    fn noted(&self, line: &Line, status: &Status) -> bool {
        let refused = status.code() == Code::Unauthenticated;
        let broken = std::error::Error::source(status).is_some();
        if refused || broken {
            let mut way = self.way();
            if way.number == line.number {
                way.channel = None;
                if refused {
                    way.access = None;
                }
            }
        }
        refused
    }

    /// One attempt, of which the server is told how long it may take, or none that has a limit; with another token if the first
    /// was refused.
    async fn once<Q, R, F>(
        &self,
        attempt: Option<Attempt>,
        request: Q,
        send: impl Fn(Wire, Request<Q>) -> F,
    ) -> Result<Answered<R>>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let mut again = true;
        loop {
            let line = self.line().await?;
            let mut request = Request::new(request.clone());
            if let Ok(mut value) = AsciiMetadataValue::try_from(format!("Bearer {}", line.jwt)) {
                value.set_sensitive(true);
                request.metadata_mut().insert("authorization", value);
            }
            if let Some(attempt) = attempt {
                attempt.limit(&mut request);
            }
            let wire = TaskCommandRouterClient::new(line.channel.clone())
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE);
            let answer = send(wire, request).await;
            if let Err(status) = &answer
                && self.noted(&line, status)
                && std::mem::take(&mut again)
            {
                continue;
            }
            return Ok(Answered::of(answer));
        }
    }

    /// One call, with retries. `limit` is for each attempt.
    pub(crate) async fn call<Q, R, F>(
        &self,
        what: &str,
        limit: Duration,
        request: Q,
        send: impl Fn(Wire, Request<Q>) -> F,
    ) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let patience = Patience { limit, throttle: self.inner.client.throttle(), ..PATIENCE };
        repeat(what, patience, |attempt| self.once(Some(attempt), request.clone(), &send)).await
    }

    /// For answers that come in pieces; no retries.
    pub(crate) async fn stream<Q, R, F>(
        &self,
        what: &str,
        request: Q,
        send: impl Fn(Wire, Request<Q>) -> F,
    ) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let patience = Patience { retries: 0, throttle: self.inner.client.throttle(), ..PATIENCE };
        repeat(what, patience, |_| self.once(None, request.clone(), &send)).await
    }

    /// Takes a snapshot of all files, which never expires. Gives the image's id. What runs goes on.
    ///
    /// # Errors
    /// There may be one all the same.
    pub async fn snapshot(&self) -> Result<String> {
        self.snapshot_named(&key()).await
    }

    /// The same, once for each `name`: whoever asks again gets the same one.
    ///
    /// # Errors
    /// There may be one all the same.
    pub async fn snapshot_named(&self, name: &str) -> Result<String> {
        let what = "taking a snapshot of the sandbox";
        let request = TaskSnapshotFilesystemRequest {
            task_id: self.inner.task.clone(),
            snapshot_id: name.to_owned(),
            ttl_seconds: Some(-1),
            ..TaskSnapshotFilesystemRequest::default()
        };
        let answer = self
            .call(what, SNAPSHOT, request, |mut wire, request| async move {
                wire.task_snapshot_filesystem(request).await
            })
            .await?;
        match answer.image_id.is_empty() {
            false => Ok(answer.image_id),
            true => Err(ClientError::new(what, Fault::Malformed("the snapshot has no id".into()))),
        }
    }
}
