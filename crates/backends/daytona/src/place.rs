//! [`Place`] in a sandbox.
//!
//! # From a sandbox to a stream
//! 1. By what is known: its toolbox, and where the outpost is. Daytona's API is not asked. By way of a terminal, and if there is
//!    none, or no websocket comes through, the slower way.
//! 2. If that fails, the sandbox is looked at, by its id: one that was stopped is started, one that is gone is an error, and
//!    the outpost is put into it if it is not there.

use crate::client::{Client, Sandbox, Toolbox};
use crate::ensure::{self, Settled, settle};
use crate::error::explain;
use crate::exchange;
use crate::install::{Installed, install};
use crate::steps;
use crate::terminal::{self, Opened};
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place, Support};
use farshell_engine::{Error, Kind, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const WHAT: &str = "connecting to the sandbox";
/// How long a sandbox that was reached before is tried again while it can't be. The engine tries several times.
const PATIENCE: Duration = Duration::from_secs(20);

/// One sandbox.
#[derive(Debug)]
pub(crate) struct DaytonaPlace {
    client: Client,
    id: String,
    name: String,
    image: String,
    lease: Duration,
    /// It was found put away.
    asleep: bool,
    /// Its files were to be kept, as far as Daytona says.
    keeps: Option<bool>,
    limits: Vec<Limit>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    way: Option<(Toolbox, Installed)>,
    /// Somebody was connected.
    connected: bool,
    epitaph: Option<String>,
    /// Yet to be told.
    word: Option<String>,
}

impl DaytonaPlace {
    pub(crate) fn new(
        client: Client,
        sandbox: &Sandbox,
        image: &str,
        lease: Duration,
        disk: Option<String>,
    ) -> Self {
        Self {
            client,
            id: sandbox.id.clone(),
            name: sandbox.name.clone(),
            image: image.to_owned(),
            lease,
            asleep: steps::sleeps(&sandbox.state),
            keeps: ensure::keeps(sandbox),
            limits: limits(sandbox, disk),
            known: Mutex::default(),
        }
    }

    /// It has just been made, and this is to be told.
    pub(crate) fn with_word(self, word: Option<String>) -> Self {
        self.known().word = word;
        self
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn by(&self, (toolbox, installed): &(Toolbox, Installed)) -> Result<Opened> {
        let by_terminal = || terminal::open(&self.client, &self.id, toolbox, installed, self.lease);
        let refused = match by_terminal().await? {
            // Once may be an accident.
            Opened::NoSocket(error) if error.kind != Kind::TimedOut => match by_terminal().await? {
                Opened::NoSocket(error) => error,
                opened => return Ok(opened),
            },
            Opened::NoSocket(error) => error,
            opened => return Ok(opened),
        };
        match exchange::open(&self.client, &self.id, toolbox, installed, self.lease).await {
            Ok(opened) => Ok(opened),
            // Why the usual way does not work tells more.
            Err(_) => Err(refused),
        }
    }

    async fn open(&self) -> Result<ByteStream> {
        let way = self.known().way.clone();
        if let Some(way) = way {
            // Whatever is wrong, a look at the sandbox tells more.
            if let Ok(Opened::Stream(stream)) = self.by(&way).await {
                return Ok(stream);
            }
            self.known().way = None;
        }
        let sandbox = match settle(&self.client, &self.id, &self.image, &()).await? {
            Settled::Runs(sandbox, woken) => {
                let mut known = self.known();
                if woken && known.connected {
                    known.epitaph = Some(format!("sandbox {} was stopped", self.name));
                }
                sandbox
            }
            Settled::Gone | Settled::NeverWas(_) => {
                let text = format!("sandbox {} was deleted", self.name);
                self.known().epitaph = Some(text.clone());
                return Err(Error::new(Kind::Unavailable, WHAT, text));
            }
        };
        let toolbox = self.client.toolbox(&sandbox).await.map_err(|e| explain(WHAT, e))?;
        let installed = install(&toolbox).await.map_err(unanswered)?;
        let way = (toolbox, installed);
        match self.by(&way).await.map_err(unanswered)? {
            Opened::Stream(stream) => {
                self.known().way = Some(way);
                Ok(stream)
            }
            Opened::NoSocket(error) => Err(unanswered(error)),
            Opened::NoProgram => {
                let message = format!("{} was removed as soon as it was there", way.1.program);
                Err(Error::new(Kind::Unavailable, WHAT, message))
            }
        }
    }

    /// Opens a stream. What may pass by itself is waited for.
    async fn open_patiently(&self) -> Result<ByteStream> {
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(100);
        loop {
            match self.open().await {
                Ok(stream) => {
                    self.known().connected = true;
                    return Ok(stream);
                }
                // Stopped while it was connected to, or a server stumbled: it is looked at again.
                Err(error)
                    if matches!(
                        error.kind,
                        Kind::Disconnected | Kind::TimedOut | Kind::Busy | Kind::Invalid | Kind::System
                    ) && Instant::now() + pause < until =>
                {
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
            pause = (pause * 2).min(Duration::from_secs(3));
        }
    }
}

/// Daytona says that the sandbox runs, and nobody in it answers.
fn unanswered(mut error: Error) -> Error {
    if error.kind == Kind::Disconnected {
        error.hint = Some(
            "the sandbox runs, and its toolbox does not answer: it may have run out of memory. `farshell env stop` stops it, and the next command starts it again".into(),
        );
    }
    error
}

/// How the limits hold in this very sandbox. Daytona enforces what it was asked for.
fn limits(sandbox: &Sandbox, disk: Option<String>) -> Vec<Limit> {
    let limit = |name, value: Option<f64>, unit: &str, note| Limit {
        name,
        support: if value.is_some() { Support::Enforced } else { Support::NotEnforced },
        value: value.map_or_else(|| "not known".into(), |value| format!("{value} {unit}")),
        note,
    };
    vec![
        limit("cpu", sandbox.cpu, "cores", None),
        limit("memory", sandbox.memory, "GiB", None),
        limit("disk", sandbox.disk, "GiB", disk),
        Limit { name: "processes", value: "no limit".into(), support: Support::NotEnforced, note: None },
    ]
}

impl Place for DaytonaPlace {
    fn identity(&self) -> Identity {
        Identity { name: self.name.clone(), id: self.id.clone() }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open_patiently())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(ensure::remove(&self.client, &self.id))
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        // Whether its files are worth keeping was settled when it was made, and Daytona knows: what is not to be kept it deletes
        // when it stops.
        Box::pin(ensure::stop(&self.client, &self.id))
    }

    fn holds_the_only_files(&self) -> Option<bool> {
        self.keeps
    }

    fn limits(&self) -> Vec<Limit> {
        self.limits.clone()
    }

    fn sleeps(&self) -> bool {
        self.asleep
    }

    /// Daytona stops it when it has heard nothing for a while, and anybody can at app.daytona.io.
    fn ends_unasked(&self) -> bool {
        true
    }

    fn word(&self) -> Option<String> {
        self.known().word.take()
    }

    fn epitaph(&self) -> Option<String> {
        self.known().epitaph.clone()
    }
}
