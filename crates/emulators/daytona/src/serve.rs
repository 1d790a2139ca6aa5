//! Connections, and faults before and after a request is answered.

use crate::faults::Fault;
use crate::options::Options;
use crate::reply::{Refusal, answer, empty};
use crate::world::World;
use crate::{control, timers};
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;
use tower_service::Service;

/// Serves until standard input ends.
///
/// # Errors
/// It can't listen.
pub fn run(options: Options) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let served = runtime.block_on(serve(options));
    // A thread still waits for input, which may never come.
    runtime.shutdown_background();
    served
}

async fn serve(options: Options) -> io::Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    let listener = tokio::net::TcpListener::bind(&options.listen).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let told = options.origin.clone().unwrap_or_else(|| origin.clone());
    let world = World::new(options);
    let _ = world.origin.set(told);
    let router = control::router(Arc::clone(&world));
    tokio::spawn(timers::run(Arc::clone(&world)));
    {
        let mut out = io::stdout().lock();
        writeln!(out, "{origin}/api")?;
        out.flush()?;
    }
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            let (world, router) = (Arc::clone(&world), router.clone());
            tokio::spawn(async move {
                let service =
                    hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let (world, router) = (Arc::clone(&world), router.clone());
                        async move { handle(&world, router, request.map(Body::new)).await }
                    });
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    };
    let mut stdin = tokio::io::stdin();
    let mut rest = [0; 64];
    let ending = async { while stdin.read(&mut rest).await.is_ok_and(|n| n > 0) {} };
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = accepting => {}
        () = ending => {}
        _ = term.recv() => {}
    }
    world.end().await;
    Ok(())
}

/// An error closes the connection without an answer.
async fn handle(world: &World, mut router: axum::Router, request: Request) -> Result<Response, io::Error> {
    const BEFORE: &[&str] =
        &["403", "404", "429", "500", "501", "502", "503", "520", "reset-before", "redirect"];
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let method = request.method().to_string();
    let ours = path.starts_with("/emulator/");
    let upgrade = request.headers().contains_key("upgrade");
    if !ours {
        world.requests.fetch_add(1, Ordering::SeqCst);
    }
    let take = |kinds: &[&str]| if ours { None } else { world.faults.take_any(kinds, &method, &path) };
    if let Some(fault) = take(BEFORE) {
        return refuse(&fault);
    }
    if upgrade && take(&["ws-refuse"]).is_some() {
        return Ok(empty(502));
    }
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if take(&["reset-after"]).is_some() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok(response)
}

fn refuse(fault: &Fault) -> Result<Response, io::Error> {
    Ok(match fault.kind.as_str() {
        "502" => empty(502),
        kind @ ("403" | "404" | "500" | "501" | "520") => {
            Refusal::new(kind.parse().unwrap_or(500), "it was made to fail").into_response()
        }
        "503" => Refusal::new(503, "Daytona is under maintenance").into_response(),
        "429" => {
            let body =
                json!({ "statusCode": 429, "message": "Rate limit exceeded", "error": "Too Many Requests" });
            let mut response = answer(429, &body);
            let headers = response.headers_mut();
            headers.insert("retry-after-sandbox-lifecycle", HeaderValue::from_static("1"));
            headers.insert("x-ratelimit-limit-sandbox-lifecycle", HeaderValue::from_static("10000"));
            headers.insert("x-ratelimit-remaining-sandbox-lifecycle", HeaderValue::from_static("0"));
            headers.insert("x-ratelimit-reset-sandbox-lifecycle", HeaderValue::from_static("1"));
            response
        }
        "redirect" => {
            let mut response = empty(307);
            if let Ok(to) = HeaderValue::from_str(&fault.to) {
                response.headers_mut().insert("location", to);
            }
            response
        }
        _ => return Err(io::ErrorKind::ConnectionReset.into()),
    })
}
