//! One connection, from its first request to its end.

use crate::app::App;
use crate::gate::{self, Door};
use crate::life::{Guard, Life, Phase};
use crate::refusal::Refusal;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use farshell_api::{API_VERSION, VERSION_HEADER};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

/// A caller over TCP who is slower than this with the head of a request is given up, as is one who has nothing more
/// to say. On the Unix socket everybody may take their time.
const HEAD: Duration = Duration::from_secs(60);
/// When the server stops: time for a caller who has only just connected to send what he came for.
const FIRST: Duration = Duration::from_millis(300);
/// When everything is dropped: time to say so.
const LAST: Duration = Duration::from_millis(200);

/// What requests know of their connection. It counts for as long as one of these lives.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) door: Door,
    _counted: Arc<Guard>,
}

impl Peer {
    pub(crate) fn new(door: Door, life: &Arc<Life>) -> Self {
        Self { door, _counted: Arc::new(life.enter()) }
    }
}

/// Serves all requests of a connection.
pub(crate) async fn serve<I>(io: I, app: Arc<App>, router: Router, peer: Peer)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    if matches!(peer.door, Door::Tcp(_)) {
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    }
    let life = Arc::clone(&app.life);
    let asked = Arc::new(AtomicBool::new(false));
    let service = {
        let asked = Arc::clone(&asked);
        service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let (app, router, peer) = (Arc::clone(&app), router.clone(), peer.clone());
            async move { Ok::<_, Infallible>(answer(&app, router, peer, request).await) }
        })
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service).with_upgrades());
    tokio::select! {
        _ = connection.as_mut() => return,
        () = life.reached(Phase::Stopping) => {}
    }
    // One that has not asked anything yet would be closed with its request unread.
    if !asked.load(Ordering::Relaxed) && tokio::time::timeout(FIRST, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = connection.as_mut() => return,
        () = life.reached(Phase::Closed) => {}
    }
    let _ = tokio::time::timeout(LAST, connection).await;
}

async fn answer(app: &Arc<App>, router: Router, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let admitted = peer.door.admit(&request).and_then(|()| gate::same_version(app, &request));
    let stopping = app.life.phase() >= Phase::Stopping;
    let mut response = match admitted {
        Err(refusal) => refusal.response(),
        Ok(()) if stopping => Refusal::stopping().response(),
        Ok(()) => {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            route(router, request).await
        }
    };
    finish(&mut response, app.life.phase() >= Phase::Stopping);
    response
}

/// A fault in one request is the end of that request, not of the server.
async fn route(mut router: Router, request: Request<Body>) -> Response<Body> {
    match AssertUnwindSafe(router.call(request)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Err(_) => Refusal::panicked().response(),
    }
}

fn finish(response: &mut Response<Body>, last: bool) {
    let headers = response.headers_mut();
    let version = HeaderValue::from(API_VERSION);
    headers.insert(HeaderName::from_static(VERSION_HEADER), version);
    if last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Manner, perform};
    use axum::routing::get;
    use farshell_api::error::ErrorBody;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let apart = || async {
            let work = async { if true { panic!("in a task") } else { Ok(()) } };
            perform(&Life::new(), Manner::Finish, work)
                .await
                .map_or_else(Refusal::response, |()| Response::new(Body::empty()))
        };
        let router = Router::new()
            .route("/here", get(|| async { panic!("in a handler") as Response<Body> }))
            .route("/apart", get(apart))
            .route("/fine", get(|| async { "fine" }));
        for path in ["/here", "/apart"] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let response = route(router.clone(), request).await;
            assert_eq!(response.status(), 500);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: ErrorBody = serde_json::from_slice(&body).unwrap();
            assert_eq!((body.error.kind.as_str(), body.error.retry.as_str()), ("system", "unsafe"));
        }
        let request = Request::builder().uri("/fine").body(Body::empty()).unwrap();
        assert_eq!(route(router, request).await.status(), 200);
    }
}
