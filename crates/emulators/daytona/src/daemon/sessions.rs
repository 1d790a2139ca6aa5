//! Sessions: one shell each, fed with commands one after the other. Output is by lines, each marked with the stream it is of.

use super::shell;
use crate::reply::{answer, empty, toolbox};
use axum::Json;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the end of a command is looked for.
const POLL: Duration = Duration::from_millis(50);
/// How long after its end a stream notices it.
const LATE: Duration = Duration::from_secs(1);
const DIR: &str = "/tmp/.daytona-sessions";

#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<BTreeMap<String, Arc<Session>>>);

#[derive(Debug)]
struct Session {
    shell: Mutex<Child>,
    commands: Mutex<Vec<Arc<Issued>>>,
}

/// One command of a session.
#[derive(Debug)]
struct Issued {
    id: String,
    text: String,
    dir: PathBuf,
    /// Lines with their marks.
    log: Mutex<Vec<u8>>,
    /// Streams that may still bring something.
    open: AtomicUsize,
    input: Mutex<Option<File>>,
    echo: bool,
}

type Shared = State<Arc<Sessions>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct New {
    session_id: String,
}

pub(super) async fn create(State(all): Shared, Json(new): Json<New>) -> Response {
    let id = new.session_id;
    let mut all = lock(&all.0);
    if all.contains_key(&id) || id == "entrypoint" {
        return toolbox(409, "CONFLICT", "conflict: session already exists");
    }
    let spawned = Command::new(shell())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    match spawned {
        Ok(child) => {
            all.insert(id, Arc::new(Session { shell: Mutex::new(child), commands: Mutex::default() }));
            empty(201)
        }
        Err(error) => toolbox(500, "INTERNAL_SERVER_ERROR", &error.to_string()),
    }
}

impl Issued {
    /// Known once it has ended.
    fn code(&self) -> Option<i32> {
        std::fs::read_to_string(self.dir.join("rc")).ok()?.trim().parse().ok()
    }

    fn info(&self) -> Value {
        let mut info = json!({ "id": self.id, "command": self.text });
        if let Some(code) = self.code() {
            info["exitCode"] = json!(code);
        }
        info
    }

    fn add(&self, mark: u8, line: &[u8]) {
        let mut log = lock(&self.log);
        log.extend_from_slice(&[mark; 3]);
        log.extend(line.iter().filter(|byte| **byte != 0));
        log.push(b'\n');
    }

    /// With marks, and both streams without.
    fn output(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let log = lock(&self.log).clone();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for line in log.split_inclusive(|byte| *byte == b'\n') {
            match line {
                [1, 1, 1, rest @ ..] => out.extend_from_slice(rest),
                [2, 2, 2, rest @ ..] => err.extend_from_slice(rest),
                _ => {}
            }
        }
        (log, out, err)
    }
}

/// How a client wants output, by the version that it says it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Both streams together, without marks.
    Combined,
    Marked,
    Split,
}

fn form(headers: &HeaderMap) -> Form {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text("x-daytona-sdk-version").map(str::to_owned).or_else(|| {
        let words = text("sec-websocket-protocol")?;
        words.split(',').find_map(|word| Some(word.trim().strip_prefix("X-Daytona-SDK-Version~")?.to_owned()))
    });
    let Some(version) = version else {
        return if text("x-daytona-split-output") == Some("true") { Form::Marked } else { Form::Combined };
    };
    let mut numbers =
        version.trim_start_matches('v').split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.contains("dev") || (major, minor) >= (0, 167) { Form::Split } else { Form::Marked }
}

fn find(all: &Sessions, id: &str) -> Option<Arc<Session>> {
    lock(&all.0).get(id).map(Arc::clone)
}

fn find_command(all: &Sessions, id: &str, command: &str) -> Result<Arc<Issued>, Box<Response>> {
    let missing = |what: &str| Box::new(toolbox(404, "NOT_FOUND", &format!("not found: {what} not found")));
    let session = find(all, id).ok_or_else(|| missing("session"))?;
    let commands = lock(&session.commands);
    commands.iter().find(|issued| issued.id == command).map(Arc::clone).ok_or_else(|| missing("command"))
}

pub(super) async fn list(State(all): Shared) -> Json<Value> {
    let all: Vec<Value> = lock(&all.0).iter().map(|(id, session)| show(id, session)).collect();
    Json(json!(all))
}

fn show(id: &str, session: &Session) -> Value {
    let commands: Vec<Value> = lock(&session.commands).iter().map(|issued| issued.info()).collect();
    json!({ "sessionId": id, "commands": commands })
}

pub(super) async fn look(State(all): Shared, Path(id): Path<String>) -> Response {
    match find(&all, &id) {
        Some(session) => answer(200, &show(&id, &session)),
        None => toolbox(404, "NOT_FOUND", "not found: session not found"),
    }
}

pub(super) async fn remove(State(all): Shared, Path(id): Path<String>) -> Response {
    let Some(session) = lock(&all.0).remove(&id) else {
        return toolbox(404, "NOT_FOUND", "not found: session not found");
    };
    let group = rustix::process::Pid::from_child(&lock(&session.shell));
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    for _ in 0..100 {
        tokio::time::sleep(POLL).await;
        if rustix::process::test_kill_process_group(group).is_err()
            || lock(&session.shell).try_wait().is_ok_and(|s| s.is_some())
        {
            break;
        }
    }
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = lock(&session.shell).wait();
    empty(204)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exec {
    command: String,
    #[serde(alias = "async")]
    run_async: Option<bool>,
    suppress_input_echo: Option<bool>,
}

pub(super) async fn exec(
    State(all): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(wish): Json<Exec>,
) -> Response {
    if wish.command.trim().is_empty() {
        return empty(400);
    }
    let wrapped = |message: String| {
        let body =
            json!({ "statusCode": 500, "message": message, "timestamp": "0001-01-01T00:00:00Z", "path": "" });
        answer(500, &body)
    };
    let Some(session) = find(&all, &id) else {
        return wrapped("failed to execute command: not found: session not found".into());
    };
    let background = wish.run_async.unwrap_or(false);
    let issued = match issue(&session, &id, &wish, background) {
        Ok(issued) => issued,
        Err(error) => return wrapped(format!("failed to execute command: write |1: {error}")),
    };
    if background {
        let body =
            json!({ "cmdId": issued.id, "output": null, "stdout": null, "stderr": null, "exitCode": null });
        return answer(202, &body);
    }
    let code = loop {
        tokio::time::sleep(POLL).await;
        if let Some(code) = issued.code() {
            break code;
        }
    };
    for _ in 0..20 {
        if issued.open.load(Ordering::SeqCst) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut body = logs_of(&issued, form(&headers));
    body["cmdId"] = json!(issued.id);
    body["exitCode"] = json!(code);
    answer(200, &body)
}

fn logs_of(issued: &Issued, form: Form) -> Value {
    let (marked, out, err) = issued.output();
    let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
    match form {
        Form::Combined => json!({ "output": text(&unmarked(&marked)), "stdout": null, "stderr": null }),
        Form::Marked => json!({ "output": text(&marked), "stdout": null, "stderr": null }),
        Form::Split => json!({ "output": text(&marked), "stdout": text(&out), "stderr": text(&err) }),
    }
}

fn unmarked(log: &[u8]) -> Vec<u8> {
    log.split_inclusive(|byte| *byte == b'\n')
        .flat_map(|line| line.get(3..).unwrap_or_default().to_vec())
        .collect()
}

fn fifo(path: &FilePath) -> std::io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?)
}

/// Hands a command to the session's shell.
fn issue(session: &Session, id: &str, wish: &Exec, background: bool) -> std::io::Result<Arc<Issued>> {
    let command = crate::world::uuid();
    let dir = FilePath::new(DIR).join(id).join(&command);
    std::fs::create_dir_all(&dir)?;
    for name in ["out", "err", "in"] {
        fifo(&dir.join(name))?;
    }
    let input =
        if background { Some(File::options().read(true).write(true).open(dir.join("in"))?) } else { None };
    let issued = Arc::new(Issued {
        id: command,
        text: wish.command.clone(),
        log: Mutex::default(),
        open: AtomicUsize::new(2),
        input: Mutex::new(input),
        echo: !wish.suppress_input_echo.unwrap_or(false),
        dir: dir.clone(),
    });
    for (name, mark) in [("out", 1), ("err", 2)] {
        let (issued, path) = (Arc::clone(&issued), dir.join(name));
        std::thread::spawn(move || {
            if let Ok(file) = File::open(path) {
                let mut lines = BufReader::new(file);
                let mut line = Vec::new();
                while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    issued.add(mark, line.strip_suffix(b"\n").unwrap_or(&line));
                    line.clear();
                }
            }
            issued.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let at = dir.display();
    let stdin = if background { format!("{at}/in") } else { "/dev/null".into() };
    let script = format!(
        "{{\n{}\n}} >{at}/out 2>{at}/err <{stdin}\necho $? >{at}/rc.new; mv {at}/rc.new {at}/rc\n",
        wish.command
    );
    let mut shell = lock(&session.shell);
    let Some(to) = shell.stdin.as_mut() else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
    to.write_all(script.as_bytes())?;
    drop(shell);
    lock(&session.commands).push(Arc::clone(&issued));
    Ok(issued)
}

pub(super) async fn command(State(all): Shared, Path((id, command)): Path<(String, String)>) -> Response {
    match find_command(&all, &id, &command) {
        Ok(issued) => answer(200, &issued.info()),
        Err(refused) => *refused,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    data: String,
}

pub(super) async fn input(
    State(all): Shared,
    Path((id, command)): Path<(String, String)>,
    Json(input): Json<Input>,
) -> Response {
    let issued = match find_command(&all, &id, &command) {
        Ok(issued) => issued,
        Err(refused) => return *refused,
    };
    if issued.code().is_some() {
        return toolbox(410, "GONE", "gone: command has already completed");
    }
    let line = input.data.strip_suffix('\n').unwrap_or(&input.data);
    match lock(&issued.input).as_mut().map(|file| file.write_all(format!("{line}\n").as_bytes())) {
        Some(Ok(())) => {}
        _ => return toolbox(410, "GONE", "gone: the command takes no input"),
    }
    if issued.echo {
        issued.add(1, line.as_bytes());
    }
    empty(204)
}

pub(super) async fn logs(
    State(all): Shared,
    Path((id, command)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let issued = match find_command(&all, &id, &command) {
        Ok(issued) => issued,
        Err(refused) => return *refused,
    };
    let form = form(&headers);
    match upgrade {
        Ok(upgrade) => {
            let follow = query.get("follow").is_some_and(|value| value == "true");
            upgrade.on_upgrade(move |socket| async move {
                let _ = stream(socket, &all, &id, &issued, follow).await;
            })
        }
        Err(_) if form == Form::Split => answer(200, &logs_of(&issued, form)),
        Err(_) => {
            let (marked, ..) = issued.output();
            let text = if form == Form::Combined { unmarked(&marked) } else { marked };
            String::from_utf8_lossy(&text).into_owned().into_response()
        }
    }
}

/// In frames of at most 1 KiB, wherever that cuts.
async fn stream(
    mut socket: WebSocket,
    all: &Sessions,
    id: &str,
    issued: &Issued,
    follow: bool,
) -> Result<(), axum::Error> {
    let mut sent = 0;
    loop {
        let ended = issued.code().is_some() && issued.open.load(Ordering::SeqCst) == 0;
        let news = lock(&issued.log)[sent..].to_vec();
        sent += news.len();
        for piece in news.chunks(1024) {
            socket.send(Message::binary(piece.to_vec())).await?;
        }
        if ended || !follow || find(all, id).is_none() {
            if ended && follow {
                tokio::time::sleep(LATE).await;
            }
            return socket.send(Message::Close(Some(CloseFrame { code: 1000, reason: "".into() }))).await;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            said = socket.recv() => if !matches!(said, Some(Ok(Message::Ping(_) | Message::Pong(_)))) { return Ok(()) },
        }
    }
}
