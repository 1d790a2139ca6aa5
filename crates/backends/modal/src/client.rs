//! A client of Modal, of use without the rest: the control plane here, a sandbox's processes in [`Router`].
//!
//! # What it promises
//! - The token goes to the servers that the caller named, encrypted or on this machine, and nowhere else. A sandbox's own
//!   server gets a token of its own, made by Modal for that sandbox.
//! - A call that may be lost is made again under the same key, by which Modal knows it: nothing is made twice. What a
//!   server asks to be waited for is waited for, within bounds.
//! - Every wait ends.
//!
//! # What can't be known
//! When a connection breaks for good after a call was sent, whether that was carried out: [`Fault::Lost`].
//!
//! | file | owns |
//! |---|---|
//! | `access.rs` | where Modal is, and who asks |
//! | `channel.rs`, `tls.rs` | connections, to the first server that answers |
//! | `call.rs`, `token.rs` | calls, when they are made again, and the tokens that they carry |
//! | `error.rs`, `warnings.rs` | what went wrong, and what Modal wants people to be told |
//! | `image.rs` | images and snapshots |
//! | `sandbox.rs` | sandboxes: made, found, looked at, ended |
//! | `router.rs`, `exec.rs` | a sandbox's own server, and processes in it |

mod access;
mod call;
mod channel;
mod error;
mod exec;
mod image;
mod router;
mod sandbox;
mod tls;
mod token;
mod warnings;

pub use access::Access;
pub(crate) use call::key;
pub use error::{ClientError, Code, Fault};
pub use exec::{End, Exec, Output, Ran};
pub use router::Router;
pub(crate) use router::SNAPSHOT;
pub(crate) use sandbox::Begun;
pub use sandbox::{Ended, ExitSnapshot, Listed, Made};

use call::{Attempt, Made as Answered, Patience, repeat};
use channel::{Channels, Line, Server};
pub(crate) use error::Result;
use farshell_modal_proto::MAX_MESSAGE;
use farshell_modal_proto::client::modal_client_client::ModalClientClient;
use farshell_modal_proto::client::{
    AppGetOrCreateRequest, AuthTokenGetRequest, EnvironmentGetOrCreateRequest, ObjectCreationType,
};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use token::{SandboxTokens, Token};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use warnings::Warnings;

/// The release of Modal's own client whose behaviour ours has: servers answer accordingly.
const LIKE: &str = "1.6.3";
/// How long the control plane may take for most things.
const USUAL: Duration = Duration::from_secs(30);
/// The same for a token.
const TOKEN: Duration = Duration::from_secs(5);
/// The control plane's retries, as in Modal's own clients.
const PATIENCE: Patience = Patience {
    limit: USUAL,
    retries: 3,
    pause: Duration::from_millis(100),
    longest: Duration::from_secs(1),
    throttle: None,
};

pub(crate) type Wire = ModalClientClient<Channel>;

/// Modal, as one user. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    channels: Channels,
    /// With the token.
    headers: MetadataMap,
    environment: String,
    throttle: Option<Duration>,
    token: Token,
    sandbox_tokens: SandboxTokens,
    builder: OnceLock<String>,
    workspace: OnceLock<String>,
    warnings: Warnings,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("channels", &self.channels).finish_non_exhaustive()
    }
}

/// What a call carries beside who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With<'a> {
    /// The short-lived token.
    Token,
    /// The same, and what Modal gave out with that sandbox.
    Sandbox(&'a str),
    Nothing,
}

impl Client {
    /// # Errors
    /// An address or a token can't be one.
    pub fn new(access: &Access) -> Result<Self> {
        let what = "preparing the Modal client";
        let servers: Vec<Server> =
            access.servers.iter().map(|url| Server::parse(url)).collect::<Result<_>>()?;
        let secret = |name: &str, text: &str| -> Result<AsciiMetadataValue> {
            let mut value = AsciiMetadataValue::try_from(text).map_err(|_| {
                ClientError::new(
                    what,
                    Fault::Forbidden(format!("the {name} has characters that no token has")),
                )
            })?;
            value.set_sensitive(true);
            Ok(value)
        };
        let mut headers = MetadataMap::new();
        headers.insert("x-modal-client-type", AsciiMetadataValue::from_static("1"));
        headers.insert("x-modal-client-version", AsciiMetadataValue::from_static(LIKE));
        headers.insert("x-modal-python-version", AsciiMetadataValue::from_static("3.11.0"));
        headers.insert(
            "x-modal-libmodal-version",
            AsciiMetadataValue::from_static(concat!("farshell/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert("x-modal-token-id", secret("token id", &access.token_id)?);
        headers.insert("x-modal-token-secret", secret("token secret", &access.token_secret)?);
        if let Some(host) =
            servers.first().and_then(|server| AsciiMetadataValue::try_from(server.host()).ok())
        {
            headers.insert("x-modal-host", host);
        }
        let builder = OnceLock::new();
        if let Some(version) = &access.image_builder_version {
            let _ = builder.set(version.clone());
        }
        Ok(Self {
            inner: Arc::new(Inner {
                channels: Channels::new(servers),
                headers,
                environment: access.environment.clone(),
                throttle: access.max_throttle_wait,
                token: Token::default(),
                sandbox_tokens: SandboxTokens::default(),
                builder,
                workspace: OnceLock::new(),
                warnings: Warnings::default(),
            }),
        })
    }

    /// The hosts that are asked, for people.
    #[must_use]
    pub fn hosts(&self) -> String {
        self.inner.channels.servers().iter().map(Server::host).collect::<Vec<_>>().join(", ")
    }

    /// How long a server may make us wait when it throttles.
    pub(crate) fn throttle(&self) -> Option<Duration> {
        self.inner.throttle
    }

    /// What Modal gave out with sandboxes that this client made.
    pub(crate) fn sandbox_tokens(&self) -> &SandboxTokens {
        &self.inner.sandbox_tokens
    }

    pub(crate) fn environment(&self) -> &str {
        &self.inner.environment
    }

    /// One call, with retries. `limit` is for each attempt.
    pub(crate) async fn call<Q, R, F>(
        &self,
        what: &str,
        limit: Duration,
        with: With<'_>,
        request: Q,
        send: impl Fn(Wire, Request<Q>) -> F,
    ) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        self.call_named(what, limit, with, &key(), request, send).await
    }

    /// The same, under a key of the caller's: Modal carries out one call of a key only.
    pub(crate) async fn call_named<Q, R, F>(
        &self,
        what: &str,
        limit: Duration,
        with: With<'_>,
        key: &str,
        request: Q,
        send: impl Fn(Wire, Request<Q>) -> F,
    ) -> Result<R>
    where
        Q: Clone,
        F: Future<Output = std::result::Result<Response<R>, Status>>,
    {
        let patience = Patience { limit, throttle: self.inner.throttle, ..PATIENCE };
        repeat(what, patience, |attempt| {
            let request = request.clone();
            let send = &send;
            async move {
                let mut again = true;
                loop {
                    let token = match with {
                        With::Token | With::Sandbox(_) => Some(self.token().await?),
                        With::Nothing => None,
                    };
                    let line = self.inner.channels.line().await?;
                    let mut request = Request::new(request.clone());
                    *request.metadata_mut() = self.headers(Some((attempt, key)), token.as_deref());
                    if let With::Sandbox(id) = with {
                        self.inner.sandbox_tokens.put(id, request.metadata_mut());
                    }
                    attempt.limit(&mut request);
                    let answer = send(wire(&line), request).await;
                    self.heard(&answer);
                    if let Err(status) = &answer
                        && self.noted(&line, token.as_deref(), status)
                        && std::mem::take(&mut again)
                    {
                        // It may have been the sandbox's, which nobody needs.
                        if let With::Sandbox(id) = with {
                            self.inner.sandbox_tokens.forget(id);
                        }
                        continue;
                    }
                    return Ok(Answered::of(answer));
                }
            }
        })
        .await
    }

    /// What a failure says about the connection, and about the token. True if it was the short-lived one, which expires on
    /// the server's clock and not on ours: another may do.
    fn noted(&self, line: &Line, token: Option<&str>, status: &Status) -> bool {
        if std::error::Error::source(status).is_some() {
            self.inner.channels.broken(line);
        }
        match token {
            Some(token) if status.code() == Code::Unauthenticated => {
                self.inner.token.refused(token);
                true
            }
            _ => false,
        }
    }

    /// Keeps what Modal wants people to be told.
    fn heard<R>(&self, answer: &std::result::Result<Response<R>, Status>) {
        let metadata = match answer {
            Ok(answer) => answer.metadata(),
            Err(status) => status.metadata(),
        };
        self.inner.warnings.hear(metadata);
    }

    /// What Modal wants people to be told: each text once in the life of this client.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.warnings.take()
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
        let patience = Patience { retries: 0, throttle: self.inner.throttle, ..PATIENCE };
        repeat(what, patience, |_| {
            let request = request.clone();
            let send = &send;
            async move {
                let line = self.inner.channels.line().await?;
                let mut request = Request::new(request);
                *request.metadata_mut() = self.headers(None, None);
                let answer = send(wire(&line), request).await;
                self.heard(&answer);
                if let Err(status) = &answer {
                    self.noted(&line, None, status);
                }
                Ok(Answered::of(answer))
            }
        })
        .await
    }

    fn headers(&self, attempt: Option<(Attempt, &str)>, token: Option<&str>) -> MetadataMap {
        let mut headers = self.inner.headers.clone();
        let mut put = |name: &'static str, value: String| {
            if let Ok(value) = AsciiMetadataValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        if let Some((attempt, key)) = attempt {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            put("x-modal-timestamp", format!("{:.3}", now.as_secs_f64()));
            put("x-idempotency-key", key.to_owned());
            put("x-retry-attempt", attempt.number.to_string());
            put("x-throttle-retry-attempt", attempt.throttled.to_string());
            if !attempt.since.is_zero() {
                put("x-retry-delay", format!("{:.3}", attempt.since.as_secs_f64()));
            }
            if !attempt.throttled_since.is_zero() {
                put("x-throttle-retry-delay", format!("{:.3}", attempt.throttled_since.as_secs_f64()));
            }
        }
        if let Some(mut value) = token.and_then(|token| AsciiMetadataValue::try_from(token).ok()) {
            value.set_sensitive(true);
            headers.insert("x-modal-auth-token", value);
        }
        headers
    }

    async fn token(&self) -> Result<String> {
        let fetch = || async {
            let what = "asking Modal for a token";
            let patience = Patience { limit: TOKEN, retries: 2, throttle: self.inner.throttle, ..PATIENCE };
            let key = &key();
            let answer = repeat(what, patience, |attempt| async move {
                let line = self.inner.channels.line().await?;
                let mut request = Request::new(AuthTokenGetRequest {});
                *request.metadata_mut() = self.headers(Some((attempt, key)), None);
                attempt.limit(&mut request);
                let answer = wire(&line).auth_token_get(request).await;
                self.heard(&answer);
                if let Err(status) = &answer {
                    self.noted(&line, None, status);
                }
                Ok(Answered::of(answer))
            });
            Ok(answer.await?.token)
        };
        self.inner.token.get(fetch).await
    }

    /// Does Modal answer, and is the token right? Gives what it wants to be said to people.
    ///
    /// # Errors
    /// As any call.
    pub async fn hello(&self) -> Result<Vec<String>> {
        let answer = self
            .call("greeting Modal", USUAL, With::Nothing, (), |mut wire, request| async move {
                wire.client_hello(request).await
            })
            .await?;
        let warnings = answer.server_warnings.into_iter().map(|warning| warning.message);
        Ok(warnings.chain([answer.warning]).filter(|text| !text.is_empty()).collect())
    }

    /// The name of the workspace whose token this is: ids of another one's are unknown here.
    ///
    /// # Errors
    /// As any call.
    pub async fn workspace(&self) -> Result<String> {
        if let Some(name) = self.inner.workspace.get() {
            return Ok(name.clone());
        }
        let answer = self
            .call("asking whose token it is", USUAL, With::Nothing, (), |mut wire, request| async move {
                wire.workspace_name_lookup(request).await
            })
            .await?;
        let name = [answer.workspace_name, answer.username].into_iter().find(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            ClientError::new("asking whose token it is", Fault::Malformed("there is no name".into()))
        })?;
        Ok(self.inner.workspace.get_or_init(|| name).clone())
    }

    /// The id of an app, which is made if there is none.
    ///
    /// # Errors
    /// As any call.
    pub async fn app(&self, name: &str) -> Result<String> {
        self.app_by(name, ObjectCreationType::CreateIfMissing).await
    }

    /// The id of an app, if there is one.
    ///
    /// # Errors
    /// It can't be told.
    pub async fn find_app(&self, name: &str) -> Result<Option<String>> {
        match self.app_by(name, ObjectCreationType::Unspecified).await {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn app_by(&self, name: &str, creation: ObjectCreationType) -> Result<String> {
        let request = AppGetOrCreateRequest {
            app_name: name.to_owned(),
            environment_name: self.inner.environment.clone(),
            object_creation_type: creation.into(),
        };
        let answer = self
            .call("looking for the app", USUAL, With::Nothing, request, |mut wire, request| async move {
                wire.app_get_or_create(request).await
            })
            .await?;
        Ok(answer.app_id)
    }

    /// The release of the image builder that the environment uses.
    async fn builder(&self) -> Result<String> {
        if let Some(version) = self.inner.builder.get() {
            return Ok(version.clone());
        }
        let request = EnvironmentGetOrCreateRequest {
            deployment_name: self.inner.environment.clone(),
            object_creation_type: ObjectCreationType::Unspecified.into(),
        };
        let answer = self
            .call(
                "looking at the environment",
                USUAL,
                With::Nothing,
                request,
                |mut wire, request| async move { wire.environment_get_or_create(request).await },
            )
            .await?;
        let settings = answer.metadata.and_then(|metadata| metadata.settings).unwrap_or_default();
        Ok(self.inner.builder.get_or_init(|| settings.image_builder_version).clone())
    }
}

fn wire(line: &Line) -> Wire {
    ModalClientClient::new(line.channel.clone())
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}
