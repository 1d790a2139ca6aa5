//! The way of MCP clients to the tools: `/mcp` for those who speak HTTP, and `/v1/mcp`, a connection that becomes a
//! stream of JSON-RPC messages, for those who speak through pipes (`farshell mcp`).
//!
//! A stream that is open is no reason for a server to go on: its other end finds the next one. A call is.

use crate::app::App;
use crate::input::{Body as Json, Query, Shape, read};
use crate::life::{Life, Phase};
use crate::refusal::Refusal;
use crate::route::{Described, Route};
use axum::body::Body;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use farshell_api::mcp::{MCP_UPGRADE, McpOpen, McpQuery};
use farshell_engine::Kind;
use farshell_engine::backend::BoxFuture;
use farshell_mcp::House;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::sync::Arc;

/// Where MCP clients look for a server.
pub(crate) const PATH: &str = "/mcp";

/// The server, as the protocol's side of it knows it.
#[derive(Debug)]
pub(crate) struct Home(pub(crate) Arc<Life>);

impl House for Home {
    fn busy(&self) -> Box<dyn Send + Sync> {
        Box::new(self.0.enter())
    }

    fn stopping(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.reached(Phase::Stopping))
    }
}

/// `/mcp`, with every method.
pub(crate) async fn http(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let uri = Request::builder().uri(request.uri()).body(Body::empty()).unwrap_or_default();
    match read::<Query<McpQuery>>(uri).await {
        Ok(Query(query)) => app.mcp.http(request, query.into()).await,
        Err(refusal) => refusal.response(),
    }
}

pub(crate) fn route((path, name): (&'static str, &'static str), summary: &'static str) -> Route {
    Route {
        method: Method::POST,
        path,
        name,
        summary,
        errors: &[],
        status: StatusCode::SWITCHING_PROTOCOLS,
        takes: Some("McpOpen".into()),
        gives: "a stream of JSON-RPC messages".into(),
        describe: |schemas| Described {
            input: Shape {
                body: Some(schemas.subschema_for::<McpOpen>().to_value()),
                name: Some("McpOpen".into()),
                ..Shape::default()
            },
            output: None,
            more: vec![(
                "description",
                json!(
                    "With `Connection: upgrade` and `Upgrade: mcp`. The connection then carries MCP messages in both directions, one a line."
                ),
            )],
        },
        handler: Arc::new(|app, request| Box::pin(upgrade(app, request))),
    }
}

async fn upgrade(app: Arc<App>, mut request: Request<Body>) -> Response<Body> {
    let wanted = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if !wanted.is_some_and(|value| value.eq_ignore_ascii_case(MCP_UPGRADE)) {
        return Refusal::new(Kind::Invalid, "opening an MCP stream", "the request asks for no stream")
            .with_status(StatusCode::UPGRADE_REQUIRED)
            .with_hint(format!(
                "send `Connection: upgrade` and `Upgrade: {MCP_UPGRADE}`; clients that speak HTTP use {PATH}"
            ))
            .response();
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let open = match read::<Json<McpOpen>>(request).await {
        Ok(Json(open)) => open,
        Err(refusal) => return refusal.response(),
    };
    tokio::spawn(async move {
        if let Ok(io) = upgraded.await {
            app.mcp.serve(TokioIo::new(io), open).await;
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(MCP_UPGRADE));
    response
}
