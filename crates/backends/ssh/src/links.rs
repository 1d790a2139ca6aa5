//! The connections to a host: as a rule one, and more where the host allows too few sessions on it.

use crate::config::Config;
use crate::link::Link;
use crate::script::{Answers, Script};
use crate::session::{Session, Unfit};
use crate::{callers, room};
use farshell_engine::{Error, Kind, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What this process knows of connections, by their control sockets. There are few.
static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Arc<Link>>>> = LazyLock::new(Mutex::default);
/// With ten sessions each, more than a hundred tasks find room.
const MOST: usize = 16;
/// How often a connection that is lost at the moment of use is made again.
const AGAIN: u32 = 6;
/// How long a short session of another task is waited for, before another connection is made.
const ROOM: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(150), Duration::from_millis(400)];

#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) config: Arc<Config>,
    key: Arc<OnceLock<String>>,
}

impl Links {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, key: Arc::default() }
    }

    fn key(&self) -> &str {
        self.key.get_or_init(|| room::key(&self.config))
    }

    /// Somebody calls with these variables: see [`callers`].
    pub(crate) fn called(&self) {
        callers::called(self.key(), &self.config);
    }

    fn get(&self, number: usize) -> Result<Arc<Link>> {
        let key = self.key();
        let control = room::find(&self.config)?.join(format!("{key}-{number}"));
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let link = known
            .entry(control.clone())
            .or_insert_with(|| Arc::new(Link::new(Arc::clone(&self.config), key.to_owned(), control)));
        Ok(Arc::clone(link))
    }

    /// The connection that everything goes through that can.
    pub(crate) fn first(&self) -> Result<Arc<Link>> {
        self.get(0)
    }

    /// Runs a script to its end.
    pub(crate) async fn ask(&self, script: &Script) -> Result<(Arc<Link>, Answers)> {
        let (link, mut session) = self.open(script, Use::Short).await?;
        tokio::select! {
            ended = session.until(&["end"]) => ended?,
            () = link.stuck() => {
                let what = format!("running a script on {}", self.config.destination());
                let message = "the process that keeps the connection does not answer";
                return Err(Error::new(Kind::Disconnected, what, message).with_hint("try again"));
            }
        }
        Ok((link, session.answers))
    }

    /// Starts a script on the first connection that has room.
    pub(crate) async fn open(&self, script: &Script, usage: Use) -> Result<(Arc<Link>, Session)> {
        for number in 0..MOST {
            let link = self.get(number)?;
            if let Some(session) = attempt(&link, script, usage, number).await? {
                return Ok((link, session));
            }
        }
        let what = format!("opening a session on {}", self.config.destination());
        let message = format!("the host has no room for another session, on none of {MOST} connections");
        Err(Error::new(Kind::Exhausted, what, message).with_hint("raise MaxSessions in its sshd_config"))
    }
}

/// How long a session is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// For a question and its answer.
    Short,
    /// For as long as somebody is connected.
    Long,
}

/// Nothing if the connection has no room.
async fn attempt(link: &Link, script: &Script, usage: Use, number: usize) -> Result<Option<Session>> {
    let mut lost = 0;
    let mut waits = ROOM.iter();
    loop {
        link.up().await?;
        // One that lasts has no turn: it would keep all others waiting.
        let turn = match usage {
            Use::Short => Arc::clone(&link.sessions).acquire_owned().await.ok(),
            Use::Long => None,
        };
        match link.session(script).await {
            Ok(session) => return Ok(Some(session.with_turn(turn))),
            Err(Unfit::Full) => {
                drop(turn);
                link.has_few_sessions();
                // Another connection costs a login.
                match waits.next().filter(|_| number == 0 && usage == Use::Short) {
                    Some(wait) => tokio::time::sleep(*wait).await,
                    None => return Ok(None),
                }
            }
            Err(Unfit::Gone(_)) if lost < AGAIN => {
                tokio::time::sleep(Duration::from_millis(20 << lost)).await;
                lost += 1;
            }
            Err(Unfit::Gone(why)) => {
                return Err(Error::new(Kind::Disconnected, "opening a session", why)
                    .with_hint("the connection is lost again and again; does `ssh` by hand keep one?"));
            }
            Err(Unfit::Error(error)) => return Err(error),
        }
    }
}
