//! This terminal, connected to that of a process.
//!
//! | file | question |
//! |---|---|
//! | `raw.rs` | how is the terminal handed over, and given back whatever happens? |
//! | `keys.rs` | which keys are ours? |
//! | `modes.rs` | what did the process leave switched on? |

mod keys;
mod modes;
mod raw;

pub(crate) use keys::Keys;

use crate::input::{Pieces, Source};
use crate::output::{Stop, code};
use crate::signals::Interrupts;
use crate::writer::{Broken, Writer, Written};
use farshell_api::process::{Process, ProcessState, StdinRequest};
use farshell_api::run::Size;
use farshell_client::stream::Stream;
use farshell_client::{Client, Control, Streaming, Update};
use farshell_engine::Error;
use keys::Matcher;
use modes::Modes;
use raw::Raw;
use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Makes the terminal empty, so that a screen can be drawn on it.
const EMPTY: &str = "\x1b[0m\x1b[H\x1b[2J";
/// How long a terminal may take to take what is left for it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a command that has to end may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the connection ended.
#[derive(Debug)]
pub(crate) enum End {
    Process(Box<Process>),
    /// The process goes on.
    Detached,
    /// It reached its timeout, and goes on.
    Backgrounded {
        process: Box<Process>,
        reason: String,
    },
    /// By this signal to us.
    Signal(i32),
}

impl End {
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Process(process) => process.exit_code.unwrap_or(code::FAILED),
            Self::Detached => 0,
            Self::Backgrounded { .. } => code::TIMED_OUT,
            Self::Signal(signal) => code::signal(*signal),
        }
    }
}

/// Whether somebody can type here and see what comes.
pub(crate) fn is_one() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// The size of this terminal, if it is one.
pub(crate) fn size() -> Option<Size> {
    let size =
        rustix::termios::tcgetwinsize(stdout()).or_else(|_| rustix::termios::tcgetwinsize(stdin())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(Size { rows: size.ws_row, cols: size.ws_col })
}

/// How what is typed gets to the process.
#[derive(Debug)]
pub(crate) enum Typist {
    /// Nobody else types: nothing is lost, whatever becomes of the server.
    Alone(Control),
    /// Others may: each piece is added to theirs.
    AmongOthers(Client, String),
}

/// How often a key is sent whose server died before it answered.
const KEY_ATTEMPTS: u32 = 5;

impl Typist {
    /// False if no more is wanted.
    async fn type_on(&self, bytes: Vec<u8>) -> bool {
        match self {
            Self::Alone(control) => control.stdin(bytes).await,
            Self::AmongOthers(client, id) => add(client, id, bytes).await,
        }
    }
}

/// Adds a piece to what others type. If its server dies before it answers, it is found out how much arrived, and only
/// the rest is sent again.
async fn add(client: &Client, id: &str, mut bytes: Vec<u8>) -> bool {
    for _ in 0..KEY_ATTEMPTS {
        // Nothing, at the beginning: changes nothing, and says how much was taken so far.
        let nothing = StdinRequest { offset: Some(0), ..StdinRequest::default() };
        let Ok(before) = client.stdin(id, &nothing).await else { return false };
        let request = StdinRequest { data: bytes.clone().into(), ..StdinRequest::default() };
        match client.stdin(id, &request).await {
            Ok(_) => return true,
            Err(error) if !matches!(error.kind.as_str(), "disconnected" | "unknown_outcome") => return false,
            Err(_) => {}
        }
        let Ok(after) = client.stdin(id, &nothing).await else { return false };
        let arrived = usize::try_from(after.taken.saturating_sub(before.taken)).unwrap_or(usize::MAX);
        bytes.drain(..arrived.min(bytes.len()));
        if bytes.is_empty() {
            return true;
        }
    }
    true
}

/// Connects this terminal to a process until that ends, or until the keys are pressed. Without keys there is no way
/// to leave it, and a signal to us kills it.
pub(crate) async fn follow(
    mut streaming: Streaming,
    typist: Typist,
    keys: Option<Keys>,
) -> Result<End, Stop> {
    let listening = |e| Error::io("listening for signals", e);
    let mut interrupts = Interrupts::listen()?;
    let mut resized = signal(SignalKind::window_change()).map_err(listening)?;
    let mut continued = signal(SignalKind::from_raw(18)).map_err(listening)?;
    let control = streaming.control();
    let leaves = keys.is_some();
    let (pieces, _) = Source::ours()?.read()?;
    let raw = Raw::enter()?;
    let mut typing = std::pin::pin!(type_to(&typist, pieces, keys));
    let (mut writer, mut modes) = (Writer::default(), Modes::default());
    let mut show = |writer: &mut Writer, bytes: bytes::Bytes| {
        modes.see(&bytes);
        writer.write(Stream::Stdout, bytes)
    };
    let end = loop {
        tokio::select! {
            biased;
            written = writer.work() => match written {
                Ok(_) => {}
                // Nobody is there any more.
                Err(why) => break Err(broken(why)),
            },
            signal = interrupts.next() => {
                if leaves {
                    break Ok(End::Signal(signal));
                }
                control.kill(None);
                let _ = timeout(PATIENCE, until_end(&mut streaming)).await;
                break Ok(End::Signal(signal));
            }
            _ = resized.recv() => resize(&control),
            _ = continued.recv() => {
                // Whoever stopped us may have changed it.
                raw.again();
                resize(&control);
            }
            () = &mut typing => break Ok(End::Detached),
            update = streaming.next(), if writer.has_room() => match update {
                Ok(Update::Output(output)) => show(&mut writer, output.bytes)?,
                Ok(Update::Screen { data, .. }) => {
                    show(&mut writer, [EMPTY.as_bytes(), &data].concat().into())?;
                }
                Ok(Update::Ended(process)) => break ended(process),
                Ok(Update::Detached { process, reason }) => {
                    break Ok(End::Backgrounded { process, reason });
                }
                Ok(_) => {}
                Err(error) => break Err(error.into()),
            },
        }
    };
    if !matches!(end, Err(Stop::BrokenPipe)) {
        let reset = modes.reset(!matches!(end, Ok(End::Process(_))));
        // The terminal may be stopped; then it has to do without.
        let _ = timeout(LAST_WORDS, finish(&mut writer, reset)).await;
    }
    drop(raw);
    end
}

fn resize(control: &Control) {
    if let Some(size) = size() {
        control.resize(size);
    }
}

fn ended(process: Box<Process>) -> Result<End, Stop> {
    match process.state {
        ProcessState::Lost => {
            let why = process.note.clone().unwrap_or_else(|| "its outpost is gone".into());
            let error = Error::new(farshell_engine::Kind::UnknownOutcome, "following the process", why);
            Err(error.into())
        }
        _ => Ok(End::Process(process)),
    }
}

fn broken(why: Broken) -> Stop {
    match why {
        Broken::NoReader => Stop::BrokenPipe,
        Broken::Failed { stream, error } => Error::io(format!("writing to standard {stream}"), error).into(),
    }
}

/// Passes on what is typed. Returns when our keys were pressed, or nobody can type any more.
async fn type_to(typist: &Typist, mut pieces: Pieces, keys: Option<Keys>) {
    let mut matcher = Matcher::new(keys);
    while let Some(Ok(piece)) = pieces.recv().await {
        if piece.is_empty() {
            break;
        }
        let (forward, ours) = matcher.typed(&piece);
        if !forward.is_empty() && !typist.type_on(forward).await {
            // It reads no more; its end is told elsewhere.
            std::future::pending::<()>().await;
        }
        if ours {
            return;
        }
    }
    // Without a way out, its end is told elsewhere as well.
    if !matcher.leaves() {
        std::future::pending::<()>().await;
    }
}

async fn until_end(streaming: &mut Streaming) {
    while let Ok(update) = streaming.next().await {
        if matches!(update, Update::Ended(_) | Update::Detached { .. }) {
            return;
        }
    }
}

/// Writes what is left, and then the last thing.
async fn finish(writer: &mut Writer, last: String) {
    while !writer.has_room() {
        if writer.work().await.is_err() {
            return;
        }
    }
    if !last.is_empty() && writer.write(Stream::Stdout, last.into()).is_err() {
        return;
    }
    writer.close();
    while let Ok(Written::Room) = writer.work().await {}
}
