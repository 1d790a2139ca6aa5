//! Hosts that places are met on: the backend `ssh` of the rig. Each is a directory of this machine, behind a line that can
//! be cut.

use farshell_engine::backend::{ByteStream, Identity};
use farshell_engine::{Error, Kind, Result};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Debug)]
pub(crate) struct Hosts {
    /// Those that can't be reached, and what whoever tries is told.
    away: Mutex<HashMap<String, Kind>>,
    /// Which machine answers under all names.
    pub(crate) machine: AtomicUsize,
    /// All who were asked anything.
    asked: Mutex<Vec<String>>,
    cut: tokio::sync::watch::Sender<usize>,
    /// What is sent from here does not arrive, and what comes back does not.
    pub(crate) deaf: std::sync::Arc<AtomicBool>,
    pub(crate) mute: std::sync::Arc<AtomicBool>,
}

impl Default for Hosts {
    fn default() -> Self {
        Self {
            away: Mutex::default(),
            machine: AtomicUsize::new(0),
            asked: Mutex::default(),
            cut: tokio::sync::watch::Sender::new(0),
            deaf: Default::default(),
            mute: Default::default(),
        }
    }
}

/// The machine that was met under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) host: String,
    pub(crate) machine: usize,
}

impl Met {
    pub(crate) fn identity(&self) -> Identity {
        Identity { name: self.host.clone(), id: format!("{}-{}", self.host, self.machine) }
    }
}

impl Hosts {
    pub(crate) fn met(&self, host: &str) -> Met {
        Met { host: host.to_owned(), machine: self.machine.load(Ordering::SeqCst) }
    }

    /// Takes a host away, with all connections that there are.
    pub(crate) fn leave(&self, host: &str, kind: Kind) {
        self.away.lock().unwrap().insert(host.to_owned(), kind);
        self.cut();
    }

    pub(crate) fn come_back(&self) {
        self.away.lock().unwrap().clear();
    }

    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// All that were asked since the last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked.dedup();
        asked
    }

    pub(crate) fn answers(&self, host: &str) -> Result<()> {
        self.asked.lock().unwrap().push(host.to_owned());
        match self.away.lock().unwrap().get(host) {
            Some(kind) => Err(Error::new(*kind, "connecting", format!("there is no host {host}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_still(&self, host: &str, was: &Identity) -> Result<()> {
        match self.met(host).identity() {
            here if here.id == was.id => Ok(()),
            here => {
                let message = format!("{} answers, and not {}", here.id, was.id);
                Err(Error::new(Kind::IdentityChanged, "connecting", message))
            }
        }
    }

    /// The same stream, by a line of ours.
    pub(crate) fn by_line(&self, stream: ByteStream) -> ByteStream {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (mut far_read, mut far_write) = tokio::io::split(far);
        let ByteStream { mut read, mut write } = stream;
        let (deaf, mute) = (self.deaf.clone(), self.mute.clone());
        let mut cut = self.cut.subscribe();
        cut.borrow_and_update();
        tokio::spawn(async move {
            let there = carry(&mut far_read, &mut write, &deaf, cut.clone());
            let back = carry(&mut read, &mut far_write, &mute, cut.clone());
            tokio::select! {
                () = there => {}
                () = back => {}
                _ = cut.changed() => {}
            }
        });
        let (read, write) = tokio::io::split(near);
        ByteStream { read: Box::new(read), write: Box::new(write) }
    }
}

async fn carry(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    stopped: &AtomicBool,
    cut: tokio::sync::watch::Receiver<usize>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
        while stopped.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // What was sent after the cut never arrives, whoever is the first to run.
        if cut.has_changed().unwrap_or(true) {
            return;
        }
        if to.write_all(&buffer[..n]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
