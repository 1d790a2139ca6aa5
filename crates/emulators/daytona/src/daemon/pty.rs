//! Terminals: an interactive login shell behind a websocket. What nobody reads is lost, and whoever reads too slowly is
//! sent away.

use super::shell;
use crate::reply::answer;
use axum::Json;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};

/// Pieces that wait for a reader, before it counts as too slow.
const QUEUE: usize = 256;
/// The largest message of a client.
const MOST: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Terminals(Mutex<BTreeMap<String, Arc<Terminal>>>);

#[derive(Debug)]
struct Terminal {
    wish: Wish,
    created: String,
    begun: Mutex<Option<Begun>>,
    readers: Mutex<Vec<mpsc::Sender<Vec<u8>>>>,
    /// How it ended.
    ended: watch::Sender<Option<(i32, String)>>,
}

#[derive(Debug)]
struct Begun {
    master: File,
    pid: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wish {
    id: String,
    cwd: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    cols: Option<u16>,
    rows: Option<u16>,
    lazy_start: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Size {
    cols: u16,
    rows: u16,
}

type Shared = State<Arc<Terminals>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The third shape of errors.
fn wrong(status: u16, message: &str) -> Response {
    answer(status, &json!({ "error": message }))
}

fn size(cols: Option<u16>, rows: Option<u16>) -> Winsize {
    Winsize { ws_col: cols.unwrap_or(80), ws_row: rows.unwrap_or(24), ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    fn begin(self: &Arc<Self>) -> std::io::Result<()> {
        let mut begun = lock(&self.begun);
        if begun.is_some() {
            return Ok(());
        }
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        rustix::termios::tcsetwinsize(&master, size(self.wish.cols, self.wish.rows))?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let slave = File::options().read(true).write(true).open(name.to_string_lossy().as_ref())?;
        // `setsid --ctty` makes the terminal the shell's own.
        let mut command = Command::new("setsid");
        command.args(["--ctty", &shell(), "-i", "-l"]).env("TERM", "xterm-256color");
        command.envs(self.wish.envs.iter().flatten());
        if let Some(cwd) = self.wish.cwd.as_ref().filter(|cwd| !cwd.is_empty()) {
            command.current_dir(cwd);
        }
        command
            .stdin(Stdio::from(slave.try_clone()?))
            .stdout(Stdio::from(slave.try_clone()?))
            .stderr(Stdio::from(slave));
        let mut child = command.spawn()?;
        drop(command);
        let master = File::from(master);
        let mut reader = master.try_clone()?;
        *begun = Some(Begun { master, pid: child.id() });
        drop(begun);
        let this = Arc::clone(self);
        std::thread::spawn(move || {
            let mut buf = [0; 4096];
            // The last of it ends with an error once nobody has the other end.
            while let Ok(n) = reader.read(&mut buf) {
                if n == 0 {
                    break;
                }
                let piece = buf[..n].to_vec();
                lock(&this.readers).retain(|to| to.try_send(piece.clone()).is_ok());
            }
            let how = child.wait().map_or((-1, String::new()), how);
            let _ = this.ended.send(Some(how));
            lock(&this.readers).clear();
        });
        Ok(())
    }

    fn info(&self) -> Value {
        json!({
            "id": self.wish.id, "cwd": self.wish.cwd.clone().unwrap_or_default(), "envs": self.wish.envs.clone().unwrap_or_default(),
            "cols": self.wish.cols.unwrap_or(80), "rows": self.wish.rows.unwrap_or(24), "createdAt": self.created,
            "active": lock(&self.begun).is_some() && self.ended.borrow().is_none(),
            "lazyStart": self.wish.lazy_start.unwrap_or(false),
        })
    }
}

fn how(status: ExitStatus) -> (i32, String) {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let reason = match code {
        0 => String::new(),
        137 => "SIGKILL".into(),
        130 => "Ctrl+C".into(),
        143 => "SIGTERM".into(),
        _ if status.signal().is_some() => format!("signal {}", status.signal().unwrap_or(0)),
        _ => "non-zero exit".into(),
    };
    (code, reason)
}

fn make(all: &Terminals, wish: Wish) -> Result<Arc<Terminal>, Box<Response>> {
    if wish.id.is_empty() {
        return Err(Box::new(wrong(400, "Session ID is required")));
    }
    if wish.cols.is_some_and(|n| n > 1000) || wish.rows.is_some_and(|n| n > 1000) {
        return Err(Box::new(wrong(400, "Invalid PTY size")));
    }
    let mut all = lock(&all.0);
    if all.contains_key(&wish.id) {
        let text = format!("PTY session with ID '{}' already exists", wish.id);
        return Err(Box::new(wrong(409, &text)));
    }
    let terminal = Arc::new(Terminal {
        created: crate::reply::now(),
        begun: Mutex::default(),
        readers: Mutex::default(),
        ended: watch::Sender::new(None),
        wish,
    });
    if !terminal.wish.lazy_start.unwrap_or(false)
        && let Err(error) = terminal.begin()
    {
        return Err(Box::new(wrong(500, &error.to_string())));
    }
    all.insert(terminal.wish.id.clone(), Arc::clone(&terminal));
    Ok(terminal)
}

pub(super) async fn create(State(all): Shared, Json(wish): Json<Wish>) -> Response {
    let id = wish.id.clone();
    match make(&all, wish) {
        Ok(_) => answer(201, &json!({ "sessionId": id })),
        Err(refused) => *refused,
    }
}

pub(super) async fn list(State(all): Shared) -> Json<Value> {
    let sessions: Vec<Value> = lock(&all.0).values().map(|terminal| terminal.info()).collect();
    Json(json!({ "sessions": sessions }))
}

fn find(all: &Terminals, id: &str) -> Result<Arc<Terminal>, Box<Response>> {
    lock(&all.0).get(id).map(Arc::clone).ok_or_else(|| Box::new(wrong(404, "PTY session not found")))
}

pub(super) async fn look(State(all): Shared, Path(id): Path<String>) -> Response {
    match find(&all, &id) {
        Ok(terminal) => answer(200, &terminal.info()),
        Err(refused) => *refused,
    }
}

pub(super) async fn remove(State(all): Shared, Path(id): Path<String>) -> Response {
    let Some(terminal) = lock(&all.0).remove(&id) else { return wrong(404, "PTY session not found") };
    if let Some(begun) = &*lock(&terminal.begun)
        && let Some(pid) = rustix::process::Pid::from_raw(begun.pid.cast_signed())
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    answer(200, &json!({ "message": "PTY session deleted" }))
}

pub(super) async fn resize(State(all): Shared, Path(id): Path<String>, Json(new): Json<Size>) -> Response {
    let terminal = match find(&all, &id) {
        Ok(terminal) => terminal,
        Err(refused) => return *refused,
    };
    if terminal.ended.borrow().is_some() {
        return wrong(410, "PTY session has ended");
    }
    if let Some(begun) = &*lock(&terminal.begun) {
        let _ = rustix::termios::tcsetwinsize(&begun.master, size(Some(new.cols), Some(new.rows)));
    }
    let mut info = terminal.info();
    (info["cols"], info["rows"]) = (json!(new.cols), json!(new.rows));
    answer(200, &info)
}

pub(super) async fn connect(
    State(all): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let terminal = find(&all, &id).ok();
    attach(all, terminal, wants_exit(&headers), upgrade)
}

pub(super) async fn create_connect(
    State(all): Shared,
    Query(mut wish): Query<Wish>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let offered =
        headers.get("sec-websocket-protocol").and_then(|value| value.to_str().ok()).unwrap_or_default();
    wish.envs = offered.split(',').find_map(|word| {
        let text = word.trim().strip_prefix("X-Daytona-Pty-Envs~")?;
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(&bytes).ok()
    });
    match make(&all, wish) {
        Ok(terminal) => attach(all, Some(terminal), wants_exit(&headers), upgrade),
        Err(refused) => *refused,
    }
}

fn wants_exit(headers: &HeaderMap) -> bool {
    let offered = headers.get("sec-websocket-protocol").and_then(|value| value.to_str().ok());
    offered.is_some_and(|words| words.contains("X-Daytona-Pty-Exit-Control"))
}

fn attach(
    all: Arc<Terminals>,
    terminal: Option<Arc<Terminal>>,
    exit: bool,
    upgrade: WebSocketUpgrade,
) -> Response {
    let upgrade = upgrade.protocols(["X-Daytona-Pty-Exit-Control"]).max_message_size(1 << 20);
    upgrade.on_upgrade(move |mut socket| async move {
        let begun = terminal.as_ref().map(|terminal| terminal.begin());
        match (&terminal, begun) {
            (Some(terminal), Some(Ok(()))) => {
                let _ = talk(terminal, &mut socket, exit).await;
                // One that has ended is forgotten.
                if terminal.ended.borrow().is_some() {
                    lock(&all.0).remove(&terminal.wish.id);
                }
            }
            _ => {
                let text = json!({ "type": "control", "status": "error", "error": "PTY session not found" });
                let _ = socket.send(Message::text(text.to_string())).await;
                let _ = socket.send(Message::Close(None)).await;
            }
        }
    })
}

fn close(code: u16, reason: String) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

async fn talk(terminal: &Arc<Terminal>, socket: &mut WebSocket, exit: bool) -> Result<(), axum::Error> {
    let (sender, mut output) = mpsc::channel(QUEUE);
    lock(&terminal.readers).push(sender);
    let mut ended = terminal.ended.subscribe();
    let begun = lock(&terminal.begun).as_ref().and_then(|begun| begun.master.try_clone().ok());
    let Some(mut master) = begun else { return Ok(()) };
    socket.send(Message::text(r#"{"type":"control","status":"connected"}"#)).await?;
    // A terminal that takes no more must hold up its own writer only.
    let (input, mut typed) = mpsc::channel::<bytes::Bytes>(16);
    tokio::task::spawn_blocking(move || {
        while let Some(bytes) = typed.blocking_recv() {
            if master.write_all(&bytes).is_err() {
                break;
            }
        }
    });
    loop {
        tokio::select! {
            piece = output.recv() => match piece {
                Some(piece) => socket.send(Message::binary(piece)).await?,
                None => {
                    // Either it ended, or we were too slow.
                    let how = ended.borrow_and_update().clone();
                    let Some((code, reason)) = how else {
                        return socket.send(close(1008, "slow consumer".into())).await;
                    };
                    if exit {
                        let text = json!({ "type": "control", "status": "exited", "exitCode": code, "exitReason": reason });
                        socket.send(Message::text(text.to_string())).await?;
                    }
                    let last = if code == 0 {
                        close(1000, json!({ "exitCode": 0 }).to_string())
                    } else {
                        close(1011, json!({ "exitCode": code, "exitReason": reason }).to_string())
                    };
                    return socket.send(last).await;
                }
            },
            said = socket.recv() => {
                let bytes = match said {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => bytes::Bytes::from(text.as_str().as_bytes().to_vec()),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    _ => return Ok(()),
                };
                if bytes.len() > MOST {
                    return socket.send(close(1009, "message too big".into())).await;
                }
                if input.send(bytes).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
