//! Requests by HTTP.

use crate::handler::Handler;
use crate::presence::Present;
use crate::{MAX_MESSAGE, Mcp, Shared};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use farshell_api::mcp::McpOpen;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

const SESSION: &str = "mcp-session-id";
/// A session that nobody has used for so long is forgotten. Its client is told, and begins another one.
const FORGOTTEN: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// Who may ask, and under which names, is decided before a request comes here.
pub(crate) fn service(shared: &Arc<Shared>) -> Service {
    let mut session = SessionConfig::default();
    session.keep_alive = Some(FORGOTTEN);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = session;
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_MESSAGE)
        .with_cancellation_token(shared.closing.clone());
    let shared = Arc::clone(shared);
    let handler = move || Ok(Handler::of_http(Arc::clone(&shared)));
    StreamableHttpService::new(handler, Arc::new(sessions), config)
}

/// The session of a request.
pub(crate) fn session(parts: &Parts) -> Option<String> {
    Some(parts.headers.get(SESSION)?.to_str().ok()?.to_owned())
}

impl Mcp {
    /// Answers a request from somebody who stands where `open` says.
    pub async fn http(&self, request: Request<Body>, open: McpOpen) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Arc::new(open));
        let here = session(&parts).map(|session| self.shared.presence.enter(&session));
        let (parts, body) = self.http.handle(Request::from_parts(parts, body)).await.into_parts();
        let body = match here {
            Some(here) => Body::new(Present::new(body, here)),
            None => Body::new(body),
        };
        Response::from_parts(parts, body)
    }
}
