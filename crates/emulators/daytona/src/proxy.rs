//! The way to a sandbox's toolbox.

use crate::control::is_known;
use crate::reply::{empty, toolbox};
use crate::root;
use crate::world::World;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// An open websocket counts as activity this often, in sixtieths of a minute.
const TOUCH: u32 = 50;

/// Where the daemon is, or what is said instead.
fn find(world: &World, id: &str, quiet: bool) -> Result<PathBuf, Box<Response>> {
    let mut all = world.lock();
    let refused = |message: &str| Err(Box::new(toolbox(400, "BAD_REQUEST", message)));
    match all.get_mut(id) {
        None => {
            Err(Box::new(toolbox(404, "NOT_FOUND", &format!("not found: sandbox container not found: {id}"))))
        }
        Some(sandbox) if sandbox.root.is_some() && sandbox.state != "stopping" => {
            if !quiet {
                sandbox.active();
            }
            Ok(root::socket(&sandbox.dir))
        }
        Some(sandbox) if matches!(sandbox.state, "archived" | "restoring") => {
            refused("bad request: failed to get runner info: sandbox has no runner")
        }
        Some(_) => refused("bad request: no IP address found. Is the Sandbox started?"),
    }
}

pub(crate) async fn forward(
    State(world): State<Arc<World>>,
    Path((id, rest)): Path<(String, String)>,
    mut request: Request,
) -> Response {
    if !is_known(&world, request.headers()) {
        return toolbox(401, "UNAUTHORIZED", "unauthorized: authentication failed: Bearer token is invalid");
    }
    let quiet = request.headers().contains_key("x-daytona-skip-last-activity-update");
    let socket = match find(&world, &id, quiet) {
        Ok(socket) => socket,
        Err(refused) => return *refused,
    };
    let Ok(stream) = UnixStream::connect(&socket).await else { return empty(502) };
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
    else {
        return empty(502);
    };
    tokio::spawn(connection.with_upgrades());
    // As it came, still encoded.
    let path = request.uri().path().splitn(4, '/').nth(3).unwrap_or(&rest).to_owned();
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let Ok(uri) = format!("/{path}{query}").parse::<Uri>() else { return empty(400) };
    *request.uri_mut() = uri;
    request.headers_mut().remove("authorization");
    let upgrading = hyper::upgrade::on(&mut request);
    // A client that goes away does not take the command with it: the daemon sees the end of the connection only
    // when this task is done.
    let sent = tokio::spawn(async move { sender.send_request(request).await }).await;
    let Ok(Ok(mut response)) = sent else { return empty(502) };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let daemon = hyper::upgrade::on(&mut response);
        let close = world.faults.take("ws-close", &format!("/{path}"));
        let quiet = quiet || world.faults.take("ws-quiet", &format!("/{path}")).is_some();
        tokio::spawn(async move {
            let (Ok(client), Ok(daemon)) = (upgrading.await, daemon.await) else { return };
            let (mut client, mut daemon) = (TokioIo::new(client), TokioIo::new(daemon));
            let touching = async {
                loop {
                    tokio::time::sleep(world.options.minute * TOUCH / 60).await;
                    let _ = find(&world, &id, quiet);
                }
            };
            let closing = async {
                match close {
                    Some(fault) => tokio::time::sleep(Duration::from_millis(fault.ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut daemon) => {}
                () = touching => {}
                () = closing => {}
            }
        });
    }
    response.map(Body::new)
}

/// The daemon is gone, as after an out-of-memory kill, and nobody notices.
pub(crate) async fn kill_daemon(State(world): State<Arc<World>>, Path(id): Path<String>) -> Response {
    match find(&world, &id, true) {
        Ok(socket) => {
            let _ = tokio::fs::remove_file(socket).await;
            empty(200)
        }
        Err(refused) => *refused,
    }
}
