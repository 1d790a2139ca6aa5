//! TCP: only with the token, only under its own name, and elsewhere only with TLS.

use crate::rig::{Answer, Followed, Stream, World, ask_on, request, start};
use serde_json::json;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

struct Tcp {
    address: SocketAddr,
    token: String,
}

fn listening() -> World {
    World::new().with("listen", json!(["127.0.0.1:0"]))
}

impl Tcp {
    fn of(world: &World, listen: &[String]) -> Self {
        let token = std::fs::read_to_string(world.paths().token).unwrap().trim().to_owned();
        Self { address: listen[0].parse().unwrap(), token }
    }

    async fn ask(&self, headers: &[(&str, &str)]) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask_on(stream, request("GET", "/v1/server", headers, "")).await.unwrap()
    }
}

#[tokio::test]
async fn the_token_opens() {
    let world = listening();
    let server = world.start();
    let tcp = Tcp::of(&world, &server.status.listen);
    let host = tcp.address.to_string();
    let mode = std::fs::metadata(world.paths().token).unwrap().permissions().mode();
    assert_eq!((mode & 0o7777, tcp.token.len()), (0o600, 64));

    let answer = tcp.ask(&[("host", &host)]).await;
    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"farshell\"");
    assert_eq!(answer.refused().0, 401);
    let wrong = format!("Bearer {}", "0".repeat(64));
    assert_eq!(tcp.ask(&[("host", &host), ("authorization", &wrong)]).await.refused().0, 401);
    let right = format!("Bearer {}", tcp.token);
    let status = tcp.ask(&[("host", &host), ("authorization", &right)]).await.ok();
    assert_eq!(status["listen"], json!([host]));
    // No token on the socket.
    world.get("/v1/server").await.ok();

    // A page whose name was made to point here, and a page from elsewhere.
    let rebound = format!("evil.test:{}", tcp.address.port());
    assert_eq!(tcp.ask(&[("host", &rebound), ("authorization", &right)]).await.refused().0, 403);
    let headers = [("host", host.as_str()), ("authorization", &right), ("origin", "http://evil.test")];
    assert_eq!(tcp.ask(&headers).await.refused().0, 403);
    // One who may not come in does not even learn which version is here.
    let answer = tcp.ask(&[("host", &host), ("farshell-api-version", "9")]).await;
    assert_eq!(answer.refused().0, 401);
    assert!(!world.said().contains(&tcp.token));
}

#[tokio::test]
async fn the_token_stays_the_same() {
    let world = listening();
    let server = world.start();
    let first = Tcp::of(&world, &server.status.listen).token;
    drop(server);
    let server = world.start();
    assert_eq!(Tcp::of(&world, &server.status.listen).token, first);
}

#[tokio::test]
async fn a_stream_over_tcp() {
    let world = listening();
    let server = world.start();
    let tcp = Tcp::of(&world, &server.status.listen);
    let url = format!("ws://{}/v1/stream", tcp.address);
    let open = |token: String, origin: Option<String>| {
        let mut request = url.as_str().into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        async move {
            let stream = TcpStream::connect(tcp.address).await.unwrap();
            tokio_tungstenite::client_async(request, stream).await
        }
    };
    assert!(open("wrong".into(), None).await.is_err());
    assert!(open(tcp.token.clone(), Some("http://evil.test".into())).await.is_err());
    for origin in [None, Some(format!("http://{}", tcp.address))] {
        let (socket, _) = open(tcp.token.clone(), origin).await.unwrap();
        let mut stream = Stream { socket };
        stream.say(start("echo over tcp")).await;
        stream.opened().await;
        assert_eq!(stream.follow(Followed::default()).await.text(), "over tcp\n");
    }
}

#[test]
fn other_machines_need_tls() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let world = World::new().with("listen", json!([address]));
        let failure = world.try_start().err().unwrap();
        assert_eq!(failure.kind, "invalid");
        assert!(failure.text.contains("TLS is not set up"), "{failure:?}");
        // Nothing was touched.
        assert!(!world.paths().dir.exists());
    }
}

#[tokio::test]
async fn tls() {
    let mut world = World::new().with("listen", json!(["0.0.0.0:0"]));
    let made = rcgen::generate_simple_self_signed(["build.example".to_owned()]).unwrap();
    for (name, text) in [("cert", made.cert.pem()), ("key", made.signing_key.serialize_pem())] {
        std::fs::write(world.path(name), text).unwrap();
        let path = world.path(name);
        world.set(name, json!(path));
    }
    let server = world.start();
    let tcp = Tcp::of(&world, &server.status.listen);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let connect = || async {
        let stream = TcpStream::connect(("127.0.0.1", tcp.address.port())).await.unwrap();
        connector.connect(ServerName::try_from("build.example").unwrap(), stream).await.unwrap()
    };
    let auth = format!("Bearer {}", tcp.token);
    let headers = [("host", "build.example"), ("authorization", auth.as_str())];
    ask_on(connect().await, request("GET", "/v1/server", &headers, "")).await.unwrap().ok();
    let headers = [("host", "build.example")];
    let answer = ask_on(connect().await, request("GET", "/v1/server", &headers, "")).await.unwrap();
    assert_eq!(answer.refused().0, 401);
    // Without TLS there is no answer.
    let stream = TcpStream::connect(("127.0.0.1", tcp.address.port())).await.unwrap();
    assert!(ask_on(stream, request("GET", "/v1/server", &[("authorization", &auth)], "")).await.is_err());
}

#[test]
fn a_certificate_that_is_none_is_told() {
    let mut world = World::new().with("listen", json!(["127.0.0.1:0"]));
    for name in ["cert", "key"] {
        std::fs::write(world.path(name), "nothing").unwrap();
        let path = world.path(name);
        world.set(name, json!(path));
    }
    let failure = world.try_start().err().unwrap();
    assert_eq!(failure.kind, "invalid");
    assert!(failure.text.contains("cert"), "{failure:?}");
}
