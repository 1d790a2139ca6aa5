//! What the command reads: a file, or what comes in here, sent as it arrives.
//!
//! A thread reads, since neither a file nor a terminal can be waited for otherwise; it is left behind in its
//! `read` when the command has ended. What it had read ahead by then is lost to whoever reads after us.

use crate::plan::Input;
use farshell_engine::{Error, Kind, Outpost};
use farshell_protocol::ProcessId;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bytes in one request: far below what a message may hold.
const PIECE: usize = 256 << 10;
/// Pieces that are read ahead.
const AHEAD: usize = 2;
/// Pause before input is offered again to a command that is not there yet.
const NOT_YET: Duration = Duration::from_millis(2);
/// The same for one that is not taking any.
const BUSY: Duration = Duration::from_millis(20);

/// Where input comes from.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    name: String,
}

impl Source {
    /// Opens it before anything is started, so that a name that is wrong costs nothing.
    pub(crate) fn open(input: &Input) -> Result<Self, Error> {
        match input {
            Input::Ours => {
                let file = io::stdin()
                    .as_fd()
                    .try_clone_to_owned()
                    .map_err(|e| Error::io("opening standard input", e))?;
                Ok(Self { file: file.into(), name: "standard input".into() })
            }
            Input::File(path) => {
                let name = path.display().to_string();
                let opened = File::open(path).and_then(|file| {
                    // Opening a directory works, reading it does not.
                    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
                });
                let file = opened.map_err(|e| {
                    Error::io(format!("opening {name} for --stdin"), e)
                        .with_hint("the file is one of this machine; `-` stands for standard input")
                })?;
                Ok(Self { file, name })
            }
        }
    }

    /// Sends everything, until it ends or the command wants no more.
    ///
    /// # Errors
    /// The source can't be read.
    pub(crate) async fn feed(self, outpost: &Outpost, id: &ProcessId) -> Result<(), Error> {
        let Self { mut file, name } = self;
        let (sender, mut pieces) = mpsc::channel::<io::Result<Vec<u8>>>(AHEAD);
        let reader = move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = match file.read(&mut piece) {
                    Ok(n) => {
                        piece.truncate(n);
                        Ok(piece)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::sleep(BUSY);
                        continue;
                    }
                    Err(error) => Err(error),
                };
                let last = !matches!(&read, Ok(piece) if !piece.is_empty());
                if sender.blocking_send(read).is_err() || last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(reader)
            .map_err(|e| Error::io("starting a thread", e))?;
        let mut offset = 0;
        while let Some(piece) = pieces.recv().await {
            let piece = piece
                .map_err(|e| Error::io(format!("reading {name}"), e).with_hint("the command was killed"))?;
            let eof = piece.is_empty();
            match send(outpost, id, offset, piece, eof).await {
                Some(taken) if !eof => offset = taken,
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Sends one piece. `None` if the command takes no more: it has ended, or has closed its input.
async fn send(outpost: &Outpost, id: &ProcessId, offset: u64, piece: Vec<u8>, eof: bool) -> Option<u64> {
    loop {
        match outpost.stdin(id.clone(), offset, piece.clone(), eof).await {
            Ok(taken) => return Some(taken),
            // Input may overtake the command's own start.
            Err(error) if error.kind == Kind::NotFound => tokio::time::sleep(NOT_YET).await,
            Err(error) if error.kind == Kind::Busy => tokio::time::sleep(BUSY).await,
            // Its right, or what the run itself will report.
            Err(_) => return None,
        }
    }
}
