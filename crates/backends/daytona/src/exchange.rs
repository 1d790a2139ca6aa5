//! The slower way to the outpost, over `process/execute`, for networks that let no websocket through.
//!
//! 1. A command leaves a bridge behind in the sandbox: `outpost connect --text` between two named pipes.
//! 2. What goes up is written into one pipe by a command of its own; what comes down is read from the other by a command
//!    that waits until there is something. So a request and its answer take about one round trip, and two commands.
//!
//! # Nothing twice, nothing lost in silence
//! No command is sent again if it may have run: the stream ends instead, and whoever uses it connects anew and asks the
//! outpost what happened. Should something on the way repeat, drop or cut a command all the same, the lines of the stream
//! are numbered and carry checksums, and either side ends it at the first that is not the next.
//!
//! The bridge ends when it is told to, or when it has heard nothing for [`QUIET`].

use crate::client::{Client, ClientError, Toolbox};
use crate::error::explain;
use crate::install::{Installed, MARK, after_mark, quoted};
use crate::terminal::{BEGIN, NO_PROGRAM, Opened, PIECE, WHAT, awake, noise};
use farshell_engine::random::hex;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::text::{Decoder, Encoder, Side};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

/// How long a command waits for something to read. Whatever carries it must not think that it hangs.
const WAIT: u64 = 20;
/// How long a command that writes may take.
const WRITE: Duration = Duration::from_secs(20);
/// How often we say that we are there.
const BEAT: Duration = Duration::from_secs(15);
/// How long the bridge waits for that, in seconds.
const QUIET: u64 = 60;
/// A command found no bridge.
const GONE: i32 = 44;
/// After this long the stream ends as soon as nothing has moved for [`PAUSE`]: the next one is tried the faster way again.
const LONG: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(30);
/// What no side of a stream ever writes: it ends the bridge.
const GOODBYE: &str = "!\n";

/// The two pipes of a bridge.
#[derive(Clone, Debug)]
struct Pipes {
    toolbox: Toolbox,
    /// Where they are.
    dir: String,
}

/// A bridge in a sandbox, until nobody needs it any more.
#[derive(Debug)]
struct Bridge(Pipes);

/// What a command that reads came to.
enum Heard {
    Text(String),
    Nothing,
    End,
}

impl Pipes {
    fn pipe(&self, name: &str) -> String {
        quoted(&format!("{}/{name}", self.dir))
    }

    /// All commands are for any shell, and need no other: what they carry is on no command line.
    async fn start(toolbox: &Toolbox, installed: &Installed, lease: Duration) -> Result<Option<Self>> {
        let Installed { program, dir } = installed;
        let base = program.rsplit_once('/').map_or("", |(base, _)| base);
        let pipes = Self { toolbox: toolbox.clone(), dir: format!("{base}/way-{}", hex(8)) };
        let (place, up, down) = (quoted(&pipes.dir), pipes.pipe("up"), pipes.pipe("down"));
        let (base, program, dir, lease) = (quoted(base), quoted(program), quoted(dir), lease.as_secs());
        // Opened for both, a pipe waits for nobody, and what is in it stays there between two commands. What a sandbox that was
        // stopped has left is removed some day.
        let command = format!(
            "[ -x {program} ] || exit 127; find {base} -maxdepth 1 -name 'way-*' -mmin +1440 -exec rm -rf '{{}}' + 2>/dev/null; \
             umask 077 && mkdir {place} && mkfifo {up} {down} || exit 1; \
             ( {program} connect --text --quiet {QUIET} --dir {dir} --lease {lease} <>{up} 1<>{down} 2>&1; rm -rf {place} ) \
             </dev/null >/dev/null 2>&1 &"
        );
        let ran = toolbox.execute(&command, WRITE).await.map_err(|e| explain(WHAT, e))?;
        match ran.exit_code {
            0 => Ok(Some(pipes)),
            code if NO_PROGRAM.contains(&code) => Ok(None),
            code => {
                let message =
                    format!("no bridge could be made in the sandbox ({code}): {}", ran.result.trim());
                Err(Error::new(Kind::Unavailable, WHAT, message))
            }
        }
    }

    async fn write(&self, text: &str) -> std::result::Result<bool, ClientError> {
        let up = self.pipe("up");
        let command = format!("[ -p {up} ] || exit {GONE}; printf %s {} 1<>{up}", quoted(text));
        Ok(self.toolbox.execute(&command, WRITE).await?.exit_code == 0)
    }

    async fn read(&self) -> std::result::Result<Heard, ClientError> {
        let down = self.pipe("down");
        // One read takes what is there. When the bridge ends, so does the pipe.
        let command = format!(
            "[ -p {down} ] || exit {GONE}; echo {MARK}; timeout {WAIT} dd if={down} bs=65536 count=1 2>/dev/null; exit 0"
        );
        let ran = self.toolbox.execute(&command, Duration::from_secs(WAIT) + WRITE).await?;
        let said = after_mark(&ran.result);
        Ok(match ran.exit_code {
            0 if said.is_empty() => Heard::Nothing,
            0 => Heard::Text(said.to_owned()),
            _ => Heard::End,
        })
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let pipes = self.0.clone();
            runtime.spawn(async move {
                // One that ended by itself is gone already.
                let _ = pipes.write(GOODBYE).await;
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
    let Some(pipes) = Pipes::start(toolbox, installed, lease).await? else { return Ok(Opened::NoProgram) };
    let bridge = Bridge(pipes);
    let mut decoder = Decoder::new(Side::Engine);
    let mut first = Vec::new();
    let until = Instant::now() + BEGIN;
    while !decoder.begun() {
        let said = match bridge.0.read().await.map_err(|e| explain(WHAT, e))? {
            Heard::Text(text) => text,
            Heard::Nothing if Instant::now() < until => continue,
            Heard::Nothing | Heard::End => {
                let message = format!("the outpost does not answer{}", noise(&decoder));
                return Err(Error::new(Kind::Disconnected, WHAT, message));
            }
        };
        decoder
            .push(&mut first, said.as_bytes())
            .map_err(|error| Error::new(Kind::Protocol, WHAT, format!("{error}{}", noise(&decoder))))?;
    }
    let carried = async move |ours| carry(&bridge.0, decoder, first, ours).await;
    Ok(Opened::Stream(awake(client, sandbox, carried)))
}

/// Carries bytes both ways, until either side ends.
async fn carry(pipes: &Pipes, mut decoder: Decoder, first: Vec<u8>, stream: DuplexStream) {
    let (mut from, mut to) = tokio::io::split(stream);
    let begun = Instant::now();
    let moved = std::sync::Mutex::new(begun);
    let moves = || *moved.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    let up = async {
        let mut encoder = Encoder::new(Side::Engine);
        let mut buf = vec![0; PIECE];
        let mut text = Vec::new();
        loop {
            text.clear();
            match tokio::time::timeout(BEAT, from.read(&mut buf)).await {
                Ok(Ok(n)) if n > 0 => {
                    moves();
                    encoder.encode(&mut text, &buf[..n]);
                }
                Ok(_) => break,
                // An empty line means nothing, and says that somebody is here.
                Err(_) => text.push(b'\n'),
            }
            let Ok(text) = std::str::from_utf8(&text) else { break };
            if !pipes.write(text).await.is_ok_and(|written| written) {
                break;
            }
        }
    };
    let down = async {
        let mut bytes = first;
        loop {
            if to.write_all(&bytes).await.is_err() {
                break;
            }
            bytes.clear();
            match pipes.read().await {
                Ok(Heard::Text(text)) => {
                    moves();
                    // The good lines before a bad one count.
                    if decoder.push(&mut bytes, text.as_bytes()).is_err() {
                        let _ = to.write_all(&bytes).await;
                        break;
                    }
                }
                Ok(Heard::Nothing) => {
                    let still = moved.lock().unwrap_or_else(std::sync::PoisonError::into_inner).elapsed();
                    if begun.elapsed() >= LONG && still >= PAUSE {
                        break;
                    }
                }
                Ok(Heard::End) | Err(_) => break,
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
