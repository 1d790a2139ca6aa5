//! What a command reads: a file, or what comes in here, sent as it arrives.
//!
//! A thread reads, since neither a file nor a terminal can be waited for otherwise; it is left behind in its
//! `read` when the command has ended. What it had read ahead by then is lost to whoever reads after us.

use farshell_client::Control;
use farshell_engine::Error;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Pieces that are read ahead.
const AHEAD: usize = 2;
/// Pause before a descriptor that somebody made non-blocking is read again.
const BUSY: Duration = Duration::from_millis(20);

/// Where input comes from.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    name: String,
}

/// What was read; nothing at the end.
pub(crate) type Pieces = mpsc::Receiver<io::Result<Vec<u8>>>;

impl Source {
    /// A file, or standard input for `-`. Opened before anything is started, so that a name that is wrong costs
    /// nothing.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        if path.as_os_str() == "-" { Self::ours() } else { Self::file(path) }
    }

    /// Our own standard input.
    pub(crate) fn ours() -> Result<Self, Error> {
        let file = io::stdin().as_fd().try_clone_to_owned();
        let file = file.map_err(|e| Error::io("opening standard input", e))?;
        Ok(Self { file: file.into(), name: "standard input".into() })
    }

    fn file(path: &Path) -> Result<Self, Error> {
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

    /// Reads on a thread of its own.
    pub(crate) fn read(self) -> Result<(Pieces, String), Error> {
        let Self { mut file, name } = self;
        let (sender, pieces) = mpsc::channel(AHEAD);
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
        Ok((pieces, name))
    }

    /// Sends everything, until it ends or the command wants no more.
    ///
    /// # Errors
    /// The source can't be read.
    pub(crate) async fn feed(self, control: &Control) -> Result<(), Error> {
        let (mut pieces, name) = self.read()?;
        while let Some(piece) = pieces.recv().await {
            let piece = piece
                .map_err(|e| Error::io(format!("reading {name}"), e).with_hint("the command was killed"))?;
            if piece.is_empty() {
                control.eof();
                return Ok(());
            }
            if !control.stdin(piece).await {
                return Ok(());
            }
        }
        Ok(())
    }
}
