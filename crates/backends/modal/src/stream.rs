//! A process in a sandbox as the stream to its outpost.
//!
//! 1. A shell is started in the sandbox, which gives way to `outpost connect --text`. That starts the outpost if none
//!    runs; the outpost goes on when the process ends.
//! 2. Both sides send lines of text, as `farshell_protocol::text` describes them: what goes up is written to the process by
//!    byte offset, what comes down is one long answer, read by byte offset. Connections may break in between.
//!
//! As long as such a process runs, the sandbox is awake and costs money. It ends when the stream does; if nobody is left to
//! end it, it ends by itself when it has heard nothing for [`QUIET`].

use crate::client::{ClientError, Code, End, Exec, Output, Router};
use crate::error::explain;
use crate::install;
use bytes::Bytes;
use farshell_engine::backend::ByteStream;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::text::{Decoder, Encoder, Side};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub(crate) const WHAT: &str = "connecting to the outpost in the sandbox";
/// How long the outpost may take to begin. In a sandbox that was just made, all of this waits for that.
const BEGIN: Duration = Duration::from_secs(120);
/// How often we say that we are there.
const BEAT: Duration = Duration::from_secs(5);
/// How long the process waits for that.
const QUIET: Duration = Duration::from_secs(15);
/// How long the goodbye may take.
const GOODBYE: Duration = Duration::from_secs(10);
/// Stream bytes that go into one write.
const PIECE: usize = 512 << 10;
/// Bytes on their way between the stream and the process.
const BUFFER: usize = 512 << 10;
/// What a shell says if there is no such program, or none that it can run.
const NO_PROGRAM: [i32; 2] = [126, 127];

/// What an attempt came to.
pub(crate) enum Opened {
    Stream(ByteStream),
    /// The outpost is not there.
    NoProgram,
}

/// The process, which ends with this.
#[derive(Debug)]
struct Bridge {
    exec: Exec,
    written: u64,
}

impl Bridge {
    async fn write(&mut self, bytes: Vec<u8>) -> std::result::Result<(), ClientError> {
        let count = bytes.len() as u64;
        self.exec.write(self.written, Bytes::from(bytes), false).await?;
        self.written += count;
        Ok(())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (exec, written) = (self.exec.clone(), self.written);
            runtime.spawn(async move {
                // One that ended by itself does not hear it. If a write was under way, the end comes too early or too
                // late, and the process ends by itself.
                let _ = tokio::time::timeout(GOODBYE, exec.write(written, Bytes::new(), true)).await;
            });
        }
    }
}

/// Opens a stream to the outpost, which is started if it does not run.
pub(crate) async fn open(router: &Router, lease: Duration) -> Result<Opened> {
    let script = install::connect(install::outpost()?.hash, QUIET, lease);
    let exec = Exec::start(router, &["sh", "-c", &script], None).await.map_err(|e| explain(WHAT, e))?;
    let bridge = Bridge { exec: exec.clone(), written: 0 };
    let mut output = exec.stdout();
    let mut decoder = Decoder::new(Side::Engine);
    let mut first = Vec::new();
    let begun = async {
        while !decoder.begun() {
            let Some(said) = output.next().await.map_err(|e| explain(WHAT, e))? else { return Ok(false) };
            decoder
                .push(&mut first, &said)
                .map_err(|error| Error::new(Kind::Protocol, WHAT, format!("{error}")))?;
        }
        Ok(true)
    };
    match tokio::time::timeout(BEGIN, begun).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return ended(&exec).await,
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            let message = format!("no answer in {} s", BEGIN.as_secs());
            return Err(Error::new(Kind::TimedOut, WHAT, message));
        }
    }
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    tokio::spawn(carry(bridge, output, decoder, first, ours));
    let (read, write) = tokio::io::split(theirs);
    Ok(Opened::Stream(ByteStream { read: Box::new(read), write: Box::new(write) }))
}

/// The process ended before it had said anything.
async fn ended(exec: &Exec) -> Result<Opened> {
    let end = exec.wait(GOODBYE).await.map_err(|e| explain(WHAT, e))?;
    if matches!(end, End::Exited(code) if NO_PROGRAM.contains(&code)) {
        return Ok(Opened::NoProgram);
    }
    let mut said = Vec::new();
    let mut errors = exec.stderr();
    while let Ok(Ok(Some(piece))) = tokio::time::timeout(GOODBYE, errors.next()).await {
        said.extend_from_slice(&piece[..piece.len().min(4096)]);
        if said.len() > 4096 {
            break;
        }
    }
    let message =
        format!("the outpost did not begin ({end:?}): {}", install::excerpt(&String::from_utf8_lossy(&said)));
    Err(Error::new(Kind::Disconnected, WHAT, message))
}

/// Carries bytes both ways, until either side ends.
async fn carry(
    mut bridge: Bridge,
    mut output: Output,
    mut decoder: Decoder,
    first: Vec<u8>,
    stream: DuplexStream,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let up = async {
        let mut encoder = Encoder::new(Side::Engine);
        let mut buf = vec![0; PIECE];
        loop {
            let mut text = Vec::new();
            match tokio::time::timeout(BEAT, from.read(&mut buf)).await {
                Ok(Ok(n)) if n > 0 => encoder.encode(&mut text, &buf[..n]),
                Ok(_) => return,
                // An empty line means nothing, and says that somebody is here.
                Err(_) => text.push(b'\n'),
            }
            if let Err(error) = bridge.write(text).await {
                // Its end is seen by whoever reads; what it said before that counts.
                if error.code() == Some(Code::FailedPrecondition) {
                    std::future::pending::<()>().await;
                }
                return;
            }
        }
    };
    let down = async {
        let mut bytes = first;
        loop {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            bytes.clear();
            match output.next().await {
                Ok(Some(text)) => {
                    // The good lines before a bad one count.
                    if decoder.push(&mut bytes, &text).is_err() {
                        let _ = to.write_all(&bytes).await;
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
