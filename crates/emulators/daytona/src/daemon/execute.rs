//! `process/execute`: a command from its beginning to its end in one request.

use super::shell;
use crate::reply::{answer, empty, toolbox};
use axum::Json;
use axum::response::Response;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

#[derive(Debug, Deserialize)]
pub(super) struct Execute {
    command: String,
    cwd: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<u64>,
}

pub(super) async fn execute(Json(wish): Json<Execute>) -> Response {
    if wish.command.trim().is_empty() {
        return toolbox(400, "BAD_REQUEST", "bad request: command cannot be empty");
    }
    let named = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
    };
    if let Some(bad) = wish.envs.iter().flatten().map(|(name, _)| name).find(|name| !named(name)) {
        return toolbox(
            400,
            "BAD_REQUEST",
            &format!("bad request: invalid environment variable name: {bad}"),
        );
    }
    // On a thread of its own: it goes on when the client is gone.
    match tokio::task::spawn_blocking(move || run(&wish)).await {
        Ok(Some((code, output))) => {
            answer(200, &json!({ "exitCode": code, "result": String::from_utf8_lossy(&output) }))
        }
        Ok(None) => toolbox(408, "REQUEST_TIMEOUT", "request timeout: command execution timeout"),
        Err(_) => empty(500),
    }
}

/// `None`: it took too long, and was killed.
fn run(wish: &Execute) -> Option<(i32, Vec<u8>)> {
    let failed = |error: std::io::Error| Some((-1, format!("fork/exec {}: {error}", shell()).into_bytes()));
    let (mut reader, writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return failed(error),
    };
    let mut command = Command::new(shell());
    if let Some(cwd) = &wish.cwd {
        command.current_dir(cwd);
    }
    command.envs(wish.envs.iter().flatten()).process_group(0).stdin(Stdio::piped());
    match writer.try_clone() {
        Ok(second) => command.stdout(writer).stderr(second),
        Err(error) => return failed(error),
    };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(error),
    };
    // Our ends of the pipe go with it.
    drop(command);
    if let Some(mut stdin) = child.stdin.take() {
        let text = wish.command.clone();
        std::thread::spawn(move || {
            let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        });
    }
    let group = Pid::from_child(&child);
    let (done, waiting) = mpsc::channel::<()>();
    let late = std::sync::Arc::new(AtomicBool::new(false));
    if let Some(limit) = wish.timeout.filter(|limit| *limit > 0) {
        let late = std::sync::Arc::clone(&late);
        std::thread::spawn(move || {
            if waiting.recv_timeout(Duration::from_secs(limit)) == Err(mpsc::RecvTimeoutError::Timeout) {
                late.store(true, Ordering::SeqCst);
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
    }
    let mut output = Vec::new();
    let _ = reader.read_to_end(&mut output);
    let status = child.wait();
    drop(done);
    if late.load(Ordering::SeqCst) {
        return None;
    }
    Some((status.ok().and_then(|status| status.code()).unwrap_or(-1), output))
}
