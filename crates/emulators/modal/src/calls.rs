//! What all calls have in common: who may, what was answered before, what goes wrong, and how many there were.

use crate::client::Client;
use crate::refuse;
use crate::router::Router;
use crate::world::World;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use farshell_modal_proto::client::modal_client_server::ModalClientServer;
use farshell_modal_proto::router::task_command_router_server::TaskCommandRouterServer;
use farshell_modal_proto::{DESCRIPTORS, MAX_MESSAGE};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// Which of the two someone is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    Control,
    Router,
}

impl Plane {
    fn service(self) -> &'static str {
        match self {
            Self::Control => "/modal.client.ModalClient/",
            Self::Router => "/modal.task_command_router.TaskCommandRouter/",
        }
    }
}

/// Drops the connection that a call came on.
#[derive(Clone, Debug)]
pub(crate) struct Kill(pub(crate) Arc<Notify>);

/// How many answers are kept for those who ask again.
const KEPT: usize = 4096;
/// How long a snapshot may take if its caller does not say.
const SNAPSHOT: Duration = Duration::from_secs(55);
/// They only wait for something: nobody has to finish them for a caller who is gone.
const WAITING: &[&str] = &["TaskExecWait", "SandboxWait", "SandboxGetTaskId", "SandboxGetExitSnapshot"];

/// Somebody of another workspace, in which there is nothing: whatever is asked for by an id or a name is not found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stranger;

const STRANGER: (&str, &str) = ("ak-stranger", "as-stranger");
/// What strangers are answered.
const OF_NOBODY: &[&str] = &["ClientHello", "WorkspaceNameLookup", "AuthTokenGet", "EnvironmentGetOrCreate"];

#[derive(Debug)]
pub(crate) struct Calls {
    world: Arc<World>,
    client: ModalClientServer<Client>,
    router: TaskCommandRouterServer<Router>,
    /// Path of each call that is served, and whether it is one question and one answer.
    served: HashMap<String, bool>,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    by_key: HashMap<String, Arc<tokio::sync::Mutex<Option<Answer>>>>,
    order: VecDeque<String>,
}

/// A whole answer of a call.
#[derive(Clone, Debug)]
struct Answer {
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Answer {
    /// Only these are kept: what was refused may be asked again.
    fn is_good(&self) -> bool {
        self.trailers.as_ref().and_then(|all| all.get("grpc-status")).is_some_and(|status| status == "0")
    }

    /// As Modal's servers write it.
    fn with_warning(mut self, text: &str) -> Self {
        let text: String = text
            .bytes()
            .map(|byte| match byte.is_ascii_alphanumeric() {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect();
        if let Ok(value) = HeaderValue::try_from(text) {
            // A refusal without a body has all of it among the headers.
            let all = self.trailers.as_mut().unwrap_or(&mut self.headers);
            all.append("x-modal-warning", value);
        }
        self
    }

    fn into_response(self) -> Response<Body> {
        let Self { headers, body, trailers } = self;
        let body = Full::new(body).with_trailers(async move { trailers.map(Ok) });
        let mut response = Response::new(Body::new(body));
        *response.headers_mut() = headers;
        response
    }
}

impl Calls {
    pub(crate) fn new(world: &Arc<World>) -> Result<Arc<Self>, prost::DecodeError> {
        let files = prost_types::FileDescriptorSet::decode(DESCRIPTORS)?;
        let mut served = HashMap::new();
        for file in &files.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    served.insert(path, !method.client_streaming() && !method.server_streaming());
                }
            }
        }
        let client = ModalClientServer::new(Client(Arc::clone(world)))
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let router = TaskCommandRouterServer::new(Router(Arc::clone(world)))
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Ok(Arc::new(Self { world: Arc::clone(world), client, router, served, answers: Mutex::default() }))
    }

    pub(crate) async fn answer(
        self: Arc<Self>,
        plane: Plane,
        kill: Kill,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let limit = limit(&request);
        let answer = tokio::time::timeout(limit, self.try_answer(plane, kill, request)).await;
        let over = |_| Err(Status::deadline_exceeded(format!("it took longer than {limit:?}")));
        Ok(match answer.unwrap_or_else(over) {
            Ok(response) => response,
            Err(status) => status.into_http(),
        })
    }

    async fn try_answer(
        self: Arc<Self>,
        plane: Plane,
        kill: Kill,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Status> {
        let path = request.uri().path().to_owned();
        let rpc = path.rsplit('/').next().unwrap_or_default().to_owned();
        *self.world.book().calls.entry(rpc.clone()).or_default() += 1;
        let alone = match self.served.get(&path).filter(|_| path.starts_with(plane.service())) {
            Some(alone) => *alone,
            None => return Err(refuse::not_served(path.trim_start_matches('/'))),
        };
        self.admit(plane, &rpc, &mut request)?;
        if request.extensions().get::<Stranger>().is_some() && !OF_NOBODY.contains(&rpc.as_str()) {
            return Err(Status::not_found(format!("{rpc}: there is no such thing in this workspace")));
        }
        self.before(&rpc, &kill).await?;
        request.extensions_mut().insert(kill.clone());
        if !alone {
            let response = self.call(plane, request).await;
            self.after(&rpc, &kill).await?;
            return Ok(response);
        }
        let key = request.headers().get("x-idempotency-key").and_then(|key| key.to_str().ok());
        let cell = key.map(|key| self.cell(format!("{rpc} {key}"))).unwrap_or_default();
        let work = {
            let calls = Arc::clone(&self);
            async move {
                let mut kept = cell.lock_owned().await;
                if let Some(answer) = &*kept {
                    return Ok(answer.clone());
                }
                let answer = whole(calls.call(plane, request).await).await?;
                if answer.is_good() {
                    *kept = Some(answer.clone());
                }
                Ok::<_, Status>(answer)
            }
        };
        let answer = if WAITING.iter().any(|name| rpc.starts_with(name)) {
            work.await?
        } else {
            // What has begun is finished, also for a caller who is gone: so it is with a server far away.
            tokio::spawn(work).await.map_err(|error| Status::internal(error.to_string()))??
        };
        self.after(&rpc, &kill).await?;
        let warning = self.world.faults.take(&["warning"], &rpc);
        Ok(match warning {
            Some(fault) => answer.with_warning(&fault.text).into_response(),
            None => answer.into_response(),
        })
    }

    async fn call(&self, plane: Plane, request: Request<Incoming>) -> Response<Body> {
        let done = match plane {
            Plane::Control => self.client.clone().call(request).await,
            Plane::Router => self.router.clone().call(request).await,
        };
        match done {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn cell(&self, key: String) -> Arc<tokio::sync::Mutex<Option<Answer>>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = answers.by_key.get(&key) {
            return Arc::clone(known);
        }
        if answers.order.len() >= KEPT
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.by_key.remove(&oldest);
        }
        answers.order.push_back(key.clone());
        Arc::clone(answers.by_key.entry(key).or_default())
    }

    /// The tokens, and on the router what they are for.
    fn admit(&self, plane: Plane, rpc: &str, request: &mut Request<Incoming>) -> Result<(), Status> {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let options = &self.world.options;
        match plane {
            Plane::Control => {
                let (id, secret) = (header("x-modal-token-id"), header("x-modal-token-secret"));
                if id.is_none() || secret.is_none() {
                    return Err(Status::unauthenticated("Token missing. Could not authenticate client."));
                }
                let stranger = (id, secret) == (Some(STRANGER.0), Some(STRANGER.1));
                if !stranger && (id != Some(&options.token_id) || secret != Some(&options.token_secret)) {
                    return Err(Status::unauthenticated("Token ID or secret is invalid."));
                }
                if rpc.ends_with("V2") || rpc == "SandboxGetCommandRouterAccess" {
                    let token = header("x-modal-auth-token")
                        .ok_or_else(|| Status::unauthenticated("x-modal-auth-token is missing"))?;
                    let claims = self.world.signer.check(token).map_err(Status::unauthenticated)?;
                    if claims.sub != "auth" || self.world.faults.take(&["refused-token"], rpc).is_some() {
                        return Err(Status::unauthenticated("that is no auth token"));
                    }
                    if let Some(token) = header("x-modal-sandbox-token") {
                        let claims = self.world.signer.check(token).map_err(Status::unauthenticated)?;
                        let made = self.world.sandbox(&claims.sub, true);
                        let made = made.map_err(|_| Status::unauthenticated("that is no sandbox's token"))?;
                        made.by_token.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if stranger {
                    request.extensions_mut().insert(Stranger);
                }
            }
            Plane::Router => {
                let token = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
                let token = token.ok_or_else(|| Status::unauthenticated("no bearer token"))?;
                let claims = self.world.signer.check(token).map_err(Status::unauthenticated)?;
                request.extensions_mut().insert(claims);
            }
        }
        Ok(())
    }

    async fn before(&self, rpc: &str, kill: &Kill) -> Result<(), Status> {
        let faults = &self.world.faults;
        let slow = faults.delay("slow", rpc);
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        let Some(fault) = faults.take(&["unavailable-before", "reset-before", "throttle"], rpc) else {
            return Ok(());
        };
        match fault.kind.as_str() {
            "throttle" => Err(refuse::throttle(Duration::from_millis(fault.ms).as_secs_f32())),
            "reset-before" => reset(kill).await,
            _ => Err(Status::unavailable("the service is unavailable")),
        }
    }

    async fn after(&self, rpc: &str, kill: &Kill) -> Result<(), Status> {
        let Some(fault) = self.world.faults.take(&["unavailable-after", "reset-after"], rpc) else {
            return Ok(());
        };
        match fault.kind.as_str() {
            "reset-after" => reset(kill).await,
            _ => Err(Status::unavailable("the service is unavailable")),
        }
    }
}

/// How long a call may take before it is answered: what its caller says. What is not said is taken to be as Modal's own clients
/// have it for a snapshot, and nothing else ends here.
fn limit(request: &Request<Incoming>) -> Duration {
    let said = request.headers().get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(told);
    said.unwrap_or(match request.uri().path().ends_with("/TaskSnapshotFilesystem") {
        true => SNAPSHOT,
        false => Duration::MAX,
    })
}

/// A duration as calls have it: at most eight digits and a unit.
fn told(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Never answers: the connection goes first.
async fn reset(kill: &Kill) -> Result<(), Status> {
    kill.0.notify_one();
    std::future::pending().await
}

async fn whole(response: Response<Body>) -> Result<Answer, Status> {
    let (parts, body) = response.into_parts();
    let all = body.collect().await?;
    let trailers = all.trailers().cloned();
    let body = all.to_bytes();
    // A refusal without a body has its status among the headers.
    Ok(Answer { headers: parts.headers, body, trailers })
}
