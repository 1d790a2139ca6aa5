//! Who may ask, and in which version.
//!
//! The Unix socket is open to its owner (and root), whom the kernel names. Over TCP the token decides. Browsers are a
//! way round both: a page from anywhere can make them send requests to this machine. So `Host` must be a name of
//! this address (a page whose name was made to point here keeps its own), and `Origin` must be this server.

use crate::app::App;
use crate::refusal::Refusal;
use crate::token::Token;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Request, StatusCode};
use farshell_api::{API_VERSION, VERSION_HEADER};
use farshell_engine::Kind;
use std::net::SocketAddr;
use std::sync::Arc;

const WHAT: &str = "letting the request in";

/// By which way a request came.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    Unix,
    Tcp(Arc<TcpDoor>),
}

/// An address that is listened on.
#[derive(Debug)]
pub(crate) struct TcpDoor {
    pub(crate) address: SocketAddr,
    /// Names are checked by the certificate then: one that only points here has none.
    pub(crate) tls: bool,
    pub(crate) token: Arc<Token>,
}

impl Door {
    /// # Errors
    /// The request is not to be served.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        match self {
            Self::Unix => match headers.get(ORIGIN) {
                // No program of ours sends one.
                Some(_) => Err(denied("requests from web pages are not served here")),
                None => Ok(()),
            },
            Self::Tcp(door) => {
                let host = one(headers, &HOST)?
                    .ok_or_else(|| Refusal::new(Kind::Invalid, WHAT, "the request has no Host"))?;
                let target = request.uri().authority().map(|authority| authority.as_str());
                for name in [Some(host), target].into_iter().flatten() {
                    if !door.is_called(name) {
                        let message = format!("this server is not {name}");
                        return Err(denied(message).with_hint(format!("use {}", door.address)));
                    }
                }
                let scheme = if door.tls { "https" } else { "http" };
                if let Some(origin) = one(headers, &ORIGIN)?
                    && !origin.eq_ignore_ascii_case(&format!("{scheme}://{host}"))
                {
                    return Err(denied("requests from pages of other servers are not served"));
                }
                let shown = one(headers, &AUTHORIZATION)?.and_then(bearer).unwrap_or_default();
                if door.token.is(shown.as_bytes()) {
                    return Ok(());
                }
                let message = if shown.is_empty() { "a token is needed here" } else { "the token is wrong" };
                Err(denied(message).with_status(StatusCode::UNAUTHORIZED).with_hint(
                    "send `Authorization: Bearer TOKEN`; it is in farshell/server/token in the server's home",
                ))
            }
        }
    }
}

impl TcpDoor {
    /// Is this a name of the address, with its port?
    fn is_called(&self, host: &str) -> bool {
        if self.tls && !self.address.ip().is_loopback() {
            return true;
        }
        let port = self.address.port();
        let usual = if self.tls { 443 } else { 80 };
        let own = match self.address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        ["localhost", "127.0.0.1", "[::1]", &own].iter().any(|name| {
            host.eq_ignore_ascii_case(&format!("{name}:{port}"))
                || (port == usual && host.eq_ignore_ascii_case(name))
        })
    }
}

/// A client of another API version is told so before anything happens.
pub(crate) fn same_version<B>(app: &App, request: &Request<B>) -> Result<(), Refusal> {
    let Some(theirs) = request.headers().get(VERSION_HEADER) else { return Ok(()) };
    let theirs = theirs.to_str().unwrap_or("?").trim();
    if theirs == API_VERSION.to_string() {
        return Ok(());
    }
    let (pid, version) = (std::process::id(), &app.about.version);
    let message =
        format!("the server (pid {pid}, version {version}) speaks API {API_VERSION}, this client {theirs}");
    Err(Refusal::new(Kind::Protocol, "comparing API versions", message)
        .with_status(StatusCode::CONFLICT)
        .with_hint(
            "stop it with `farshell server stop`; the next one is started by the client that needs it",
        ))
}

fn denied(message: impl Into<String>) -> Refusal {
    Refusal::new(Kind::PermissionDenied, WHAT, message)
}

/// A header that may come once. Two of them may be read differently by two readers.
fn one<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::new(Kind::Invalid, WHAT, format!("the request has more than one {name}")));
    }
    match first.map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(Refusal::new(Kind::Invalid, WHAT, format!("the request's {name} is no text"))),
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Lock;
    use crate::paths::Directory;

    async fn door(address: &str, tls: bool) -> (Door, String) {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let lock = Lock::take(&directory).await.unwrap();
        let token = Arc::new(Token::open(&directory, &lock).unwrap());
        let text = std::fs::read_to_string(&directory.paths.token).unwrap().trim().to_owned();
        (Door::Tcp(Arc::new(TcpDoor { address: address.parse().unwrap(), tls, token })), text)
    }

    fn status(door: &Door, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        door.admit(&request.body(()).unwrap()).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn hosts() {
        let (door, token) = door("127.0.0.1:8080", false).await;
        let auth = format!("Bearer {token}");
        let ask = |host: &str| status(&door, "/v1/server", &[("host", host), ("authorization", &auth)]);
        for host in ["127.0.0.1:8080", "localhost:8080", "LocalHost:8080", "[::1]:8080"] {
            assert_eq!(ask(host), 200, "{host}");
        }
        for host in
            ["127.0.0.1", "localhost", "localhost:80", "evil.test:8080", "127.0.0.1.evil.test:8080", ""]
        {
            assert_eq!(ask(host), 403, "{host}");
        }
        assert_eq!(status(&door, "/", &[("authorization", &auth)]), 400);
        let twice = [("host", "localhost:8080"), ("host", "evil.test"), ("authorization", &auth)];
        assert_eq!(status(&door, "/", &twice), 400);
        let absolute = [("host", "localhost:8080"), ("authorization", auth.as_str())];
        assert_eq!(status(&door, "http://evil.test/", &absolute), 403);
        assert_eq!(status(&door, "http://localhost:8080/", &absolute), 200);
    }

    #[tokio::test]
    async fn other_addresses() {
        let ask = async |address: &str, tls, host: &str| {
            let (door, token) = door(address, tls).await;
            status(&door, "/", &[("host", host), ("authorization", &format!("bearer {token}"))])
        };
        assert_eq!(ask("[::1]:80", false, "[::1]").await, 200);
        assert_eq!(ask("127.0.0.9:81", false, "127.0.0.9:81").await, 200);
        assert_eq!(ask("127.0.0.1:443", true, "localhost").await, 200);
        assert_eq!(ask("127.0.0.1:443", true, "evil.test").await, 403);
        assert_eq!(ask("0.0.0.0:443", true, "build.example").await, 200);
    }

    #[tokio::test]
    async fn tokens() {
        let (door, token) = door("127.0.0.1:8080", false).await;
        let ask = |value: &str| status(&door, "/", &[("host", "localhost:8080"), ("authorization", value)]);
        assert_eq!(ask(&format!("Bearer {token}")), 200);
        assert_eq!(ask(&format!("Basic {token}")), 401);
        assert_eq!(ask(&format!("Bearer {}", token.to_uppercase() + "0")), 401);
        assert_eq!(ask("Bearer "), 401);
        assert_eq!(ask(&token), 401);
        assert_eq!(status(&door, "/", &[("host", "localhost:8080")]), 401);
        // Not in the query either, where logs would keep it.
        assert_eq!(status(&door, &format!("/?token={token}"), &[("host", "localhost:8080")]), 401);
    }

    #[tokio::test]
    async fn origins() {
        let (door, token) = door("127.0.0.1:8080", false).await;
        let auth = format!("Bearer {token}");
        let ask = |origin: &str| {
            let headers = [("host", "localhost:8080"), ("authorization", auth.as_str()), ("origin", origin)];
            status(&door, "/v1/stream", &headers)
        };
        assert_eq!(ask("http://localhost:8080"), 200);
        for origin in ["http://localhost", "https://localhost:8080", "http://evil.test", "null", ""] {
            assert_eq!(ask(origin), 403, "{origin}");
        }
        assert_eq!(status(&Door::Unix, "/", &[]), 200);
        assert_eq!(status(&Door::Unix, "/", &[("host", "whatever")]), 200);
        assert_eq!(status(&Door::Unix, "/", &[("origin", "http://localhost")]), 403);
    }
}
