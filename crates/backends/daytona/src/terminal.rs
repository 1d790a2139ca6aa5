//! A terminal in a sandbox as the stream to its outpost.
//!
//! 1. A terminal is made, with a shell in it, and connected to.
//! 2. The shell is told to give way to `outpost connect --text`, which makes the terminal raw. What the shell says before
//!    that (greeting, prompt, our own words) is skipped.
//! 3. From then on both sides send lines of text, as `farshell_protocol::text` describes them.
//!
//! A terminal outlives its connections. It is removed when the stream ends; if that does not succeed, the outpost's end
//! of the stream ends when it has heard nothing for [`QUIET`].

use crate::client::{Client, ClientError, Close, Said, Socket, Toolbox};
use crate::error::explain;
use crate::install::{Installed, quoted};
use farshell_engine::backend::ByteStream;
use farshell_engine::random::hex;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::text::{Decoder, Encoder, GRANT, Side};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub(crate) const WHAT: &str = "connecting to the outpost in the sandbox";
/// How long a shell may take to begin, and the outpost after it.
pub(crate) const BEGIN: Duration = Duration::from_secs(30);
/// How often we say that we are there.
const BEAT: Duration = Duration::from_secs(5);
/// How long the other side may be silent, pings included, before the line counts as dead.
const SILENCE: Duration = Duration::from_secs(20);
/// The same for the outpost, in seconds. A terminal does not end with whoever was connected to it, so nothing else tells
/// the outpost that somebody is dead.
const QUIET: u64 = 15;
/// How often the sandbox is told that somebody needs it. Daytona's proxy does this too as long as a terminal is
/// connected; a long silent command is not left to that.
const AWAKE: Duration = Duration::from_secs(60);
/// Stream bytes that may be on their way to us. Daytona sends a client away for whom 256 pieces of output wait, a piece
/// being what a terminal gives at once: at most 4 KiB, of which a quarter is not ours.
const WINDOW: u64 = 8 * GRANT;
/// Stream bytes that fit into one message, with a third more for the text and a little for each line.
pub(crate) const PIECE: usize = 44_000;
/// Bytes on their way between the stream and the terminal.
const BUFFER: usize = 256 << 10;
/// What a shell says if there is no such program, or none that it can run.
pub(crate) const NO_PROGRAM: [i32; 2] = [126, 127];

/// What an attempt came to.
pub(crate) enum Opened {
    Stream(ByteStream),
    /// The outpost is not there.
    NoProgram,
    /// There is no terminal to be had, or no websocket to it.
    NoSocket(Error),
}

/// Removes the terminal when nobody needs it any more.
#[derive(Debug)]
struct Terminal {
    toolbox: Toolbox,
    id: String,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (toolbox, id) = (self.toolbox.clone(), std::mem::take(&mut self.id));
            runtime.spawn(async move {
                // One that ended by itself is gone already.
                let _ = toolbox.delete_pty(&id).await;
            });
        }
    }
}

/// Opens a stream to the outpost, which is started if it does not run.
pub(crate) async fn open(
    client: &Client,
    sandbox: &str,
    toolbox: &Toolbox,
    installed: &Installed,
    lease: Duration,
) -> Result<Opened> {
    let id = format!("farshell-{}", hex(8));
    let terminal = Terminal { toolbox: toolbox.clone(), id };
    if let Err(error) = toolbox.create_pty(&terminal.id).await {
        let no_terminals = has_none(&error);
        let error = explain(WHAT, error);
        return if no_terminals { Ok(Opened::NoSocket(error)) } else { Err(error) };
    }
    let mut socket = match toolbox.connect_pty(&terminal.id).await {
        Ok(socket) => socket,
        Err(error) => return Ok(Opened::NoSocket(explain(WHAT, error))),
    };
    let mut decoder = Decoder::new(Side::Engine);
    let begun = tokio::time::timeout(BEGIN, begin(&mut socket, &mut decoder, installed, lease)).await;
    let first = match begun {
        Ok(Ok(Begun::Heard(first))) => first,
        Ok(Ok(Begun::Ended(close))) => {
            if close.exit_code.is_some_and(|code| NO_PROGRAM.contains(&code)) {
                return Ok(Opened::NoProgram);
            }
            let message = format!("the shell in the sandbox ended: {}{}", close.reason, noise(&decoder));
            return Ok(Opened::NoSocket(Error::new(Kind::Disconnected, WHAT, message)));
        }
        Ok(Err(error)) if error.kind == Kind::Disconnected => return Ok(Opened::NoSocket(error)),
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            let message = format!("no answer in {} s{}", BEGIN.as_secs(), noise(&decoder));
            return Ok(Opened::NoSocket(Error::new(Kind::TimedOut, WHAT, message)));
        }
    };
    let carried = async move |ours| {
        let _terminal = terminal;
        carry(socket, decoder, first, ours).await;
    };
    Ok(Opened::Stream(awake(client, sandbox, carried)))
}

/// The toolbox answers, and makes no terminals: it does not know how, may not, or fails at it. A sandbox that does not run
/// and a wrong key are refused with other words, and what a server in between says passes.
fn has_none(error: &ClientError) -> bool {
    matches!(error.status(), Some(403..=405 | 500 | 501))
}

/// A stream that somebody carries. As long as they do, the sandbox is kept awake.
pub(crate) fn awake<F: Future<Output = ()> + Send + 'static>(
    client: &Client,
    sandbox: &str,
    carry: impl FnOnce(DuplexStream) -> F,
) -> ByteStream {
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (client, sandbox) = (client.clone(), sandbox.to_owned());
    let carried = carry(ours);
    tokio::spawn(async move {
        let touching = async {
            loop {
                tokio::time::sleep(AWAKE).await;
                let _ = client.touch(&sandbox).await;
            }
        };
        tokio::select! {
            () = carried => {}
            () = touching => {}
        }
    });
    let (read, write) = tokio::io::split(theirs);
    ByteStream { read: Box::new(read), write: Box::new(write) }
}

/// What the shell said last, for the error that it is.
pub(crate) fn noise(decoder: &Decoder) -> String {
    let said = String::from_utf8_lossy(decoder.noise()).into_owned();
    let said: String = said.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    let last: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).rev().take(3).collect();
    if last.is_empty() {
        String::new()
    } else {
        format!(" (it said: {})", last.into_iter().rev().collect::<Vec<_>>().join("; "))
    }
}

enum Begun {
    /// The first bytes of the stream.
    Heard(Vec<u8>),
    Ended(Close),
}

async fn begin(
    socket: &mut Socket,
    decoder: &mut Decoder,
    installed: &Installed,
    lease: Duration,
) -> Result<Begun> {
    let failed = |error| explain(WHAT, error);
    let Installed { program, dir } = installed;
    // A space at its beginning keeps it out of the shell's history. What is too long for a terminal's line would be cut.
    let command = format!(
        " exec {} connect --text --quiet {QUIET} --window {WINDOW} --dir {} --lease {}; exit 127\n",
        quoted(program),
        quoted(dir),
        lease.as_secs()
    );
    let mut first = Vec::new();
    loop {
        match socket.reader.next().await.map_err(failed)? {
            Said::Connected => socket.writer.send(command.as_bytes()).await.map_err(failed)?,
            Said::Alive => {}
            Said::End(close) => return Ok(Begun::Ended(close)),
            Said::Output(bytes) => {
                decoder.push(&mut first, &bytes).map_err(|error| {
                    Error::new(Kind::Protocol, WHAT, format!("{error}{}", noise(decoder))).with_hint(
                        "the sandbox's login shell must not print on and on; see its profile files",
                    )
                })?;
                if decoder.begun() {
                    return Ok(Begun::Heard(first));
                }
            }
        }
    }
}

/// Carries bytes both ways, until either side ends.
async fn carry(socket: Socket, mut decoder: Decoder, first: Vec<u8>, stream: DuplexStream) {
    let Socket { mut writer, mut reader } = socket;
    let (mut from, mut to) = tokio::io::split(stream);
    // One for each [`GRANT`] bytes that have arrived.
    let (arrived, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let up = async {
        let mut encoder = Encoder::new(Side::Engine);
        let mut buf = vec![0; PIECE];
        let mut text = Vec::new();
        let mut beat = tokio::time::interval(BEAT);
        loop {
            text.clear();
            tokio::select! {
                read = from.read(&mut buf) => match read {
                    Ok(n) if n > 0 => encoder.encode(&mut text, &buf[..n]),
                    _ => break,
                },
                Some(()) = grants.recv() => text.push(b'\n'),
                _ = beat.tick() => {
                    // An empty line means nothing, and says that somebody is here.
                    text.push(b'\n');
                    if writer.ping().await.is_err() {
                        break;
                    }
                }
            }
            if writer.send(&text).await.is_err() {
                break;
            }
        }
        writer.close().await;
    };
    let down = async {
        let mut bytes = first;
        let mut received = 0;
        loop {
            if to.write_all(&bytes).await.is_err() {
                break;
            }
            received += bytes.len() as u64;
            while received >= GRANT {
                received -= GRANT;
                let _ = arrived.send(());
            }
            bytes.clear();
            match tokio::time::timeout(SILENCE, reader.next()).await {
                Ok(Ok(Said::Output(text))) => {
                    // The good lines before a bad one count.
                    if decoder.push(&mut bytes, &text).is_err() {
                        let _ = to.write_all(&bytes).await;
                        break;
                    }
                }
                Ok(Ok(Said::Alive | Said::Connected)) => {}
                Ok(Ok(Said::End(_)) | Err(_)) | Err(_) => break,
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
