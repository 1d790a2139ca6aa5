//! Connections: to the first of several servers that answers, encrypted, and kept.

use super::error::{ClientError, Fault, Result, root};
use super::tls;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint, Uri};

const WHAT: &str = "connecting to Modal";
/// How long one connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the servers before one are waited for until that is tried as well.
const STAGGER: Duration = Duration::from_secs(3);
/// As in Modal's own clients: a wide and long line is filled, and one that is dead is noticed.
const WINDOW: u32 = 64 << 20;
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    host: String,
    port: u16,
    encrypted: bool,
    /// On this machine: nobody listens in between.
    here: bool,
}

impl Server {
    /// An address that a token may go to: `https://host[:port]`, or on this machine also `http://`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| ClientError::new("reading the address of Modal", Fault::Forbidden(why));
        if text.contains('@') {
            return Err(wrong("an address must not have a name or a password in it".into()));
        }
        let uri: Uri =
            text.trim_end_matches('/').parse().map_err(|_| wrong(format!("{text:?} is no address")))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(format!("{text:?} names no host")));
        }
        let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if here => false,
            Some("http") => {
                return Err(wrong(format!(
                    "{text} is not encrypted, and the token would be read on the way; use https"
                )));
            }
            _ => return Err(wrong(format!("{text:?} is not a way to reach Modal; use https://"))),
        };
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        Ok(Self { host, port, encrypted, here })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    fn uri(&self, scheme: &str) -> String {
        match self.host.contains(':') {
            true => format!("{scheme}://[{}]:{}", self.host, self.port),
            false => format!("{scheme}://{}:{}", self.host, self.port),
        }
    }

    /// A connection that was made.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        let failed = |why: String| ClientError::new(WHAT, Fault::NotSent(why));
        let dial =
            Dial { server: self.clone(), tls: self.encrypted.then(|| tls::config(self.here)).transpose()? };
        // Encryption is the dial's affair; the address that requests name has it all the same.
        let origin: Uri = self
            .uri(if self.encrypted { "https" } else { "http" })
            .parse()
            .map_err(|_| failed("no address".into()))?;
        let endpoint = Endpoint::from_shared(self.uri("http"))
            .and_then(|endpoint| endpoint.user_agent(concat!("farshell/", env!("CARGO_PKG_VERSION"))))
            .map_err(|e| failed(root(&e)))?
            .origin(origin)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true);
        match tokio::time::timeout(CONNECT, endpoint.connect_with_connector(dial)).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(failed(format!("{}: {}", self.host, root(&error)))),
            Err(_) => Err(failed(format!("{} does not answer", self.host))),
        }
    }
}

/// Makes the connection below a channel, again when it broke.
struct Dial {
    server: Server,
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl tower_service::Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (server, tls) = (self.server.clone(), self.tls.clone());
        Box::pin(async move {
            let dialled = async {
                let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
                tcp.set_nodelay(true)?;
                let Some(tls) = tls else { return Ok(Box::new(tcp) as Box<dyn Stream>) };
                let name = ServerName::try_from(server.host.clone()).map_err(std::io::Error::other)?;
                Ok(Box::new(TlsConnector::from(tls).connect(name, tcp).await?) as Box<dyn Stream>)
            };
            match tokio::time::timeout(CONNECT, dialled).await {
                Ok(stream) => stream.map(TokioIo::new),
                Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
            }
        })
    }
}

/// Several servers of which one is connected to.
#[derive(Debug)]
pub(crate) struct Channels {
    servers: Vec<Server>,
    current: Mutex<(u64, Option<Channel>)>,
    /// Held by whoever connects.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, and which one it is.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    number: u64,
}

impl Channels {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self { servers, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    fn known(&self) -> Option<Line> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.1.clone().map(|channel| Line { channel, number: current.0 })
    }

    pub(crate) async fn line(&self) -> Result<Line> {
        if let Some(line) = self.known() {
            return Ok(line);
        }
        let _only_one = self.connecting.lock().await;
        if let Some(line) = self.known() {
            return Ok(line);
        }
        let channel = first(&self.servers).await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Some(channel.clone()));
        Ok(Line { channel, number: current.0 })
    }

    /// This one broke: the next is made anew, to whichever server answers then.
    pub(crate) fn broken(&self, line: &Line) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == line.number {
            current.1 = None;
        }
    }
}

/// The first that answers. One is tried when those before it have failed, or take long.
async fn first(servers: &[Server]) -> Result<Channel> {
    let mut attempts = JoinSet::new();
    let mut waiting = servers.iter().cloned();
    let mut failure = None;
    loop {
        let more = match waiting.next() {
            Some(server) => {
                attempts.spawn(async move { server.connect().await });
                true
            }
            None => false,
        };
        let pause = tokio::time::sleep(if more { STAGGER } else { CONNECT * 2 });
        tokio::select! {
            done = attempts.join_next() => match done {
                Some(Ok(Ok(channel))) => return Ok(channel),
                Some(Ok(Err(error))) => drop(failure.get_or_insert(error)),
                Some(Err(_)) => {}
                None => {
                    let none = || ClientError::new(WHAT, Fault::Forbidden("no server is named".into()));
                    return Err(failure.unwrap_or_else(none));
                }
            },
            () = pause => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_encrypted_addresses_and_to_this_machine() {
        for good in [
            "https://api.modal.com",
            "https://api.modal.com:443/",
            "http://127.0.0.1:3000",
            "http://[::1]:1",
            "http://localhost",
        ] {
            Server::parse(good).unwrap();
        }
        for bad in [
            "http://api.modal.com",
            "http://127.0.0.1.evil.example",
            "ftp://x",
            "x",
            "https://",
            "https://u:hunter2@h",
            "https://u:hunter2@h h",
            "unix:/x",
            "",
        ] {
            let error = Server::parse(bad).unwrap_err();
            assert!(matches!(error.fault, Fault::Forbidden(_)), "{bad}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let v6 = Server::parse("http://[::1]:7").unwrap();
        assert_eq!((v6.here, v6.uri("http").as_str()), (true, "http://[::1]:7"));
        assert!(!Server::parse("https://example.com").unwrap().here);
    }

    #[tokio::test]
    async fn nobody_anywhere_is_an_error_that_says_so() {
        let error = first(&[
            Server::parse("http://127.0.0.1:1").unwrap(),
            Server::parse("http://localhost:1").unwrap(),
        ])
        .await
        .unwrap_err();
        assert!(matches!(error.fault, Fault::NotSent(_)), "{error}");
        assert!(first(&[]).await.is_err());
    }
}
