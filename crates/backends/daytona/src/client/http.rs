//! Requests, and when they are made again.

use super::error::refused;
use super::{Access, ClientError, Fault, tls};
use bytes::{Bytes, BytesMut};
use farshell_engine::random::jitter;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;

/// The largest answer that is read.
pub const MOST: usize = 64 << 20;
/// The release of Daytona's own clients whose behaviour ours has: servers answer accordingly.
const LIKE: &str = "0.210.0";
/// How long a server that is away, or overrun, is asked again.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same for one that does not answer at all: more likely its name is wrong, or the network is down.
const NOT_SENT: Duration = Duration::from_secs(3);
/// The first pause between two attempts, and the longest.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Whether a request may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Twice is as good as once.
    Freely,
    /// Only if it never left.
    IfNotSent,
}

pub(crate) struct Http {
    pub(crate) base: Url,
    pub(crate) tls: Arc<ClientConfig>,
    /// With the key.
    pub(crate) headers: HeaderMap,
    client: reqwest::Client,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// An address that the key may go to.
pub(crate) fn address(text: &str) -> Result<Url, ClientError> {
    let wrong =
        |why: &str| ClientError::new("reading the address of Daytona", Fault::Forbidden(why.to_owned()));
    let url =
        Url::parse(text.trim_end_matches('/')).map_err(|e| wrong(&format!("{text:?} is no address: {e}")))?;
    let host = url.host_str().unwrap_or_default();
    if host.is_empty() {
        return Err(wrong(&format!("{text:?} names no host")));
    }
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let here = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("an address must not have a name or a password in it"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if here => Ok(url),
        "http" => {
            Err(wrong(&format!("{text} is not encrypted, and the key would be read on the way; use https")))
        }
        other => Err(wrong(&format!("{other} is not a way to reach Daytona; use https"))),
    }
}

/// Appends parts to an address, whatever characters they have.
pub(crate) fn join(base: &Url, parts: &[&str]) -> Result<Url, ClientError> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut path) => drop(path.pop_if_empty().extend(parts)),
        Err(()) => {
            return Err(ClientError::new(
                "reading the address of Daytona",
                Fault::Forbidden("it has no path".into()),
            ));
        }
    }
    Ok(url)
}

impl Http {
    pub(crate) fn new(access: &Access) -> Result<Self, ClientError> {
        let wrong =
            |why: &str| ClientError::new("preparing the Daytona client", Fault::Forbidden(why.to_owned()));
        let base = address(&access.url)?;
        let mut key = HeaderValue::from_str(&format!("Bearer {}", access.key))
            .map_err(|_| wrong("the key has characters that no key has"))?;
        key.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", key);
        headers.insert("accept", HeaderValue::from_static("application/json"));
        headers.insert("x-daytona-source", HeaderValue::from_static("farshell"));
        headers.insert("x-daytona-sdk-version", HeaderValue::from_static(LIKE));
        headers
            .insert("user-agent", HeaderValue::from_static(concat!("farshell/", env!("CARGO_PKG_VERSION"))));
        if let Some(organization) = &access.organization {
            let value =
                HeaderValue::from_str(organization).map_err(|_| wrong("the organisation's id is none"))?;
            headers.insert("x-daytona-organization-id", value);
        }
        let tls = tls::config()?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            // Servers close idle connections after 70 s, and what was sent into one that closes is lost.
            .pool_idle_timeout(Duration::from_secs(30))
            .tcp_keepalive(Duration::from_secs(30))
            .tcp_nodelay(true)
            .build()
            .map_err(|e| wrong(&e.to_string()))?;
        Ok(Self { base, tls: Arc::new(tls), headers, client })
    }

    pub(crate) fn api(&self, parts: &[&str]) -> Result<Url, ClientError> {
        join(&self.base, parts)
    }

    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        what: &str,
        method: Method,
        url: Url,
        body: Option<&Value>,
        again: Again,
        limit: Duration,
    ) -> Result<T, ClientError> {
        let bytes = self.send(what, method, url, body, again, limit).await?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::new(what, Fault::Malformed(e.to_string())))
    }

    pub(crate) async fn send(
        &self,
        what: &str,
        method: Method,
        url: Url,
        body: Option<&Value>,
        again: Again,
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let content = body.map(|body| ("application/json".to_owned(), Bytes::from(body.to_string())));
        self.send_bytes(what, method, url, content, again, limit).await
    }

    /// Sends a body of any kind.
    pub(crate) async fn send_bytes(
        &self,
        what: &str,
        method: Method,
        url: Url,
        content: Option<(String, Bytes)>,
        again: Again,
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let begun = Instant::now();
        let mut pause = PAUSE;
        loop {
            let (fault, wait) = match self.once(method.clone(), url.clone(), content.clone(), limit).await {
                Ok(bytes) => return Ok(bytes),
                Err(failed) => failed,
            };
            // Not before it is asked for, and not all at the same moment.
            let wait = wait.unwrap_or_default().min(PATIENCE) + jitter(pause);
            let patience = if matches!(fault, Fault::NotSent(_)) { NOT_SENT } else { PATIENCE };
            if !may_repeat(&fault, again) || begun.elapsed() + wait >= patience {
                return Err(ClientError::new(what, fault));
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    async fn once(
        &self,
        method: Method,
        url: Url,
        content: Option<(String, Bytes)>,
        limit: Duration,
    ) -> Result<Bytes, (Fault, Option<Duration>)> {
        let mut request = self.client.request(method, url).headers(self.headers.clone()).timeout(limit);
        if let Some((kind, body)) = content {
            request = request.header("content-type", kind).body(body);
        }
        let response = request.send().await.map_err(|e| (fault_of(e), None))?;
        let status = response.status();
        let wait = retry_after(response.headers());
        let redirected =
            response.headers().get("location").and_then(|to| to.to_str().ok()).map(str::to_owned);
        let bytes = read(response).await.map_err(|fault| (fault, None))?;
        if status.is_success() {
            return Ok(bytes);
        }
        if status.is_redirection() {
            let to = redirected.unwrap_or_else(|| "somewhere".into());
            let text = format!(
                "Daytona sends us to {to}, and the key does not go there; set DAYTONA_API_URL to the address that answers"
            );
            return Err((Fault::Forbidden(text), None));
        }
        Err((refused(status.as_u16(), &bytes), wait))
    }
}

async fn read(mut response: Response) -> Result<Bytes, Fault> {
    let mut all = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(fault_of)? {
        if all.len() + piece.len() > MOST {
            return Err(Fault::Malformed(format!("more than {MOST} bytes")));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

/// The address is left out: it says nothing that the reader does not know.
fn fault_of(error: reqwest::Error) -> Fault {
    let (connect, timeout) = (error.is_connect(), error.is_timeout());
    let error = error.without_url();
    let mut why = error.to_string();
    let mut inner = std::error::Error::source(&error);
    while let Some(cause) = inner {
        why = cause.to_string();
        inner = cause.source();
    }
    match (connect, timeout) {
        (true, _) => Fault::NotSent(why),
        (_, true) => Fault::TimedOut,
        _ => Fault::Lost(why),
    }
}

fn may_repeat(fault: &Fault, again: Again) -> bool {
    match fault {
        Fault::NotSent(_) => true,
        // It was turned away at the door.
        Fault::Refused { status: 429, .. } => true,
        // What a server does not do it does not do the next time either.
        Fault::Refused { status: 501, .. } => false,
        Fault::Refused { status: 500..=599, .. } | Fault::Lost(_) => again == Again::Freely,
        _ => false,
    }
}

/// `Retry-After`, or the same with the name of the limit that was reached. Seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let named = |name: &HeaderName| name.as_str().starts_with("retry-after");
    let seconds = headers
        .iter()
        .filter(|(name, _)| named(name))
        .filter_map(|(_, value)| value.to_str().ok()?.trim().parse().ok());
    seconds.max().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_to_encrypted_addresses_and_to_this_machine() {
        for good in
            ["https://app.daytona.io/api", "http://127.0.0.1:3000/api/", "http://[::1]:1", "http://localhost"]
        {
            address(good).unwrap();
        }
        for bad in [
            "http://app.daytona.io/api",
            "http://127.0.0.1.evil.example",
            "ftp://x",
            "x",
            "https://",
            "https://u:p@h/",
        ] {
            assert!(matches!(address(bad).unwrap_err().fault, Fault::Forbidden(_)), "{bad}");
        }
        let base = address("https://a.example/api/").unwrap();
        assert_eq!(
            join(&base, &["sandbox", "a/../b?c"]).unwrap().as_str(),
            "https://a.example/api/sandbox/a%2F..%2Fb%3Fc"
        );
    }

    #[test]
    fn a_command_is_never_sent_twice() {
        let refused = |status| Fault::Refused { status, code: None, message: String::new() };
        let all = [
            Fault::NotSent(String::new()),
            refused(429),
            refused(500),
            refused(502),
            refused(524),
            Fault::Lost(String::new()),
            Fault::TimedOut,
            refused(501),
            refused(409),
        ];
        let may = |again| all.iter().map(|fault| may_repeat(fault, again)).collect::<Vec<_>>();
        assert_eq!(may(Again::Freely), [true, true, true, true, true, true, false, false, false]);
        assert_eq!(may(Again::IfNotSent), [true, true, false, false, false, false, false, false, false]);
    }

    #[test]
    fn nothing_shows_the_key() {
        let access = Access { url: "https://a.example".into(), key: "dtn_secret".into(), organization: None };
        let http = Http::new(&access).unwrap();
        assert!(!format!("{http:?} {:?}", http.headers).contains("secret"));
        assert!(Http::new(&Access { key: "a\nb".into(), ..access }).is_err());
    }

    #[test]
    fn how_long_to_wait() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert("retry-after-sandbox-create", HeaderValue::from_static("7"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
    }
}
