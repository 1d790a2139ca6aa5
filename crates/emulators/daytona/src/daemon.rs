//! The toolbox's daemon, which runs inside of a sandbox: commands, sessions, terminals and files.

mod bulk;
mod execute;
mod files;
mod pty;
mod sessions;

use axum::Router;
use axum::routing::{get, post};
use axum::{Json, extract::Path};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use tower_service::Service;

/// `daemon SOCKET`
///
/// # Errors
/// It can't listen.
pub fn run(args: &[String]) -> io::Result<()> {
    let socket = args.first().ok_or_else(|| io::Error::other("daemon needs a socket"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Each command and each terminal blocks threads.
        .max_blocking_threads(2000)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::bind(socket)?;
        crate::inside::say_ready();
        let router = router();
        loop {
            let (stream, _) = listener.accept().await?;
            let router = router.clone();
            tokio::spawn(async move {
                let service =
                    hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        let mut router = router.clone();
                        async move { router.call(request).await }
                    });
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    })
}

fn router() -> Router {
    let ptys: Arc<pty::Terminals> = Arc::default();
    let terminals = Router::new()
        .route("/process/pty", post(pty::create).get(pty::list))
        .route("/process/pty/create-connect", get(pty::create_connect))
        .route("/process/pty/{id}", get(pty::look).delete(pty::remove))
        .route("/process/pty/{id}/connect", get(pty::connect))
        .route("/process/pty/{id}/resize", post(pty::resize))
        .with_state(ptys);
    let sessions = Router::new()
        .route("/process/session", post(sessions::create).get(sessions::list))
        .route("/process/session/{id}", get(sessions::look).delete(sessions::remove))
        .route("/process/session/{id}/exec", post(sessions::exec))
        .route("/process/session/{id}/command/{command}", get(sessions::command))
        .route("/process/session/{id}/command/{command}/logs", get(sessions::logs))
        .route("/process/session/{id}/command/{command}/input", post(sessions::input))
        .with_state(Arc::<sessions::Sessions>::default());
    Router::new()
        .route("/process/execute", post(execute::execute))
        .route("/files", get(files::list).delete(files::remove))
        .route("/files/info", get(files::info))
        .route("/files/folder", post(files::folder))
        .route("/files/move", post(files::rename))
        .route("/files/permissions", post(files::permissions))
        .route("/files/find", get(files::grep))
        .route("/files/search", get(files::glob))
        .route("/files/replace", post(files::replace))
        .route("/files/download", get(files::download))
        .route("/files/upload", post(bulk::upload_one))
        .route("/files/upload-v2", post(bulk::upload_one))
        .route("/files/bulk-upload", post(bulk::upload))
        .route("/files/bulk-download", post(bulk::download))
        .route("/user-home-dir", get(home))
        .route("/work-dir", get(home))
        .route("/version", get(version))
        .route("/port", get(ports))
        .route("/port/{port}/in-use", get(in_use))
        .merge(terminals)
        .merge(sessions)
        .layer(axum::extract::DefaultBodyLimit::disable())
}

async fn home() -> Json<Value> {
    Json(json!({ "dir": std::env::var("HOME").unwrap_or_else(|_| "/root".into()) }))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": "0.190.0" }))
}

async fn ports() -> Json<Value> {
    Json(json!({ "ports": [] }))
}

async fn in_use(Path(port): Path<u16>) -> Json<Value> {
    let used = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
    Json(json!({ "isInUse": used }))
}

/// The shell that commands are fed to.
fn shell() -> String {
    let known = std::fs::read_to_string("/etc/shells").unwrap_or_default();
    for name in ["zsh", "bash"] {
        let found = known
            .lines()
            .find(|line| line.ends_with(&format!("/{name}")) && std::path::Path::new(line).exists());
        if let Some(path) = found {
            return path.to_owned();
        }
    }
    std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())
}

/// A path of the API's: relative ones begin where the daemon works.
fn absolute(path: &str) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}
