//! [`Place`] in a sandbox.
//!
//! A sandbox that has ended is no place any more: whoever wants to go on provisions another, which begins from what was
//! kept of this one. Its identity is another one, too.

use crate::account::{Account, Found};
use crate::client::Router;
use crate::ensure::now;
use crate::error::explain;
use crate::install::install;
use crate::save::PUT_AWAY;
use crate::state::State;
use crate::stream::{self, Opened, WHAT};
use crate::tags::Keeps;
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place, Spec, Support, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a sandbox that runs is tried again while it can't be reached. The engine tries several times.
const PATIENCE: Duration = Duration::from_secs(20);

/// One sandbox, or what is kept of one.
#[derive(Debug)]
pub(crate) struct ModalPlace {
    account: Account,
    task: TaskName,
    lease: Duration,
    /// Nothing: it is put away, and has none.
    sandbox: Option<String>,
    asleep: bool,
    /// Seconds since 1970; zero is not known.
    since: u64,
    keeps: Keeps,
    goes_on: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    router: Option<Router>,
    epitaph: Option<String>,
    /// Somebody was connected to it.
    came_up: bool,
    keepsake: Option<String>,
}

impl ModalPlace {
    pub(crate) fn new(account: Account, spec: &Spec, sandbox: Option<String>, state: &State) -> Self {
        Self {
            account,
            task: spec.task.clone(),
            lease: spec.lease,
            asleep: sandbox.is_none(),
            sandbox,
            since: state.since,
            keeps: state.keeps,
            goes_on: state.base.is_some(),
            known: Mutex::default(),
        }
    }

    /// The way to it is known.
    pub(crate) fn by(self, router: Option<Router>) -> Self {
        self.known().router = router;
        self
    }

    /// Its sandbox has ended.
    pub(crate) fn asleep(self) -> Self {
        Self { asleep: true, ..self }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, id: &str) -> Result<ByteStream> {
        let known = self.known().router.clone();
        let router = match known {
            Some(router) => router,
            None => {
                let found = Router::find(&self.account.client, id).await.map_err(|e| explain(WHAT, e))?;
                self.known().router = Some(found.clone());
                found
            }
        };
        if let Opened::Stream(stream) = stream::open(&router, self.lease).await? {
            return Ok(stream);
        }
        install(&router).await?;
        match stream::open(&router, self.lease).await? {
            Opened::Stream(stream) => Ok(stream),
            Opened::NoProgram => {
                Err(Error::new(Kind::Unavailable, WHAT, "the outpost was removed as soon as it was there"))
            }
        }
    }

    /// Opens a stream, and does not give up at once while the sandbox runs.
    async fn open_patiently(&self) -> Result<ByteStream> {
        let Some(id) = &self.sandbox else {
            return Err(Error::new(Kind::Unavailable, WHAT, "the sandbox was put away"));
        };
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(100);
        loop {
            let error = match self.open(id).await {
                Ok(stream) => {
                    self.came_up(id);
                    return Ok(stream);
                }
                Err(error) => error,
            };
            // It may be somewhere else, and whoever is at the old address knows nothing of it.
            self.known().router = None;
            // Whatever is wrong, a look at the sandbox tells more.
            if let Ok(found) = self.account.look(id).await {
                let mut hint = None;
                let why = match found {
                    Found::Runs => None,
                    Found::Ended(ended) => {
                        if !ended.began()
                            && let Ok(Some(state)) = self.account.records.get(&self.task)
                        {
                            hint = self.account.way_back(&self.task, &state);
                        }
                        Some(format!("sandbox {id} {}", ended.why()))
                    }
                    Found::Unknown => Some(format!("sandbox {id} is gone")),
                };
                if let Some(why) = why {
                    self.known().epitaph = Some(why.clone());
                    let error = Error::new(Kind::Unavailable, WHAT, why);
                    return Err(match hint {
                        Some(hint) => error.with_hint(hint),
                        None => error,
                    });
                }
            }
            let passes = matches!(
                error.kind,
                Kind::Disconnected | Kind::TimedOut | Kind::Busy | Kind::NotFound | Kind::PermissionDenied
            );
            if !passes || Instant::now() + pause >= until {
                return Err(unanswered(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(3));
        }
    }
}

impl ModalPlace {
    /// Noted once, beside what the caller came for.
    fn came_up(&self, id: &str) {
        if std::mem::replace(&mut self.known().came_up, true) {
            return;
        }
        let (account, task, id) = (self.account.clone(), self.task.clone(), id.to_owned());
        tokio::spawn(async move {
            // What was not noted is noted when it is put away.
            let _ = account.came_up(&task, &id).await;
        });
    }
}

/// Modal says that the sandbox runs, and nobody in it answers.
fn unanswered(mut error: Error) -> Error {
    if matches!(error.kind, Kind::Disconnected | Kind::NotFound | Kind::Busy) {
        error.kind = Kind::Disconnected;
        error.hint = Some(
            "the sandbox runs and can't be reached: the network may be down, or Modal may have a problem (status.modal.com). `farshell env stop` puts it away, and the next command brings it back".into(),
        );
    }
    error
}

impl Place for ModalPlace {
    fn identity(&self) -> Identity {
        let name = self.account.name(&self.task);
        Identity { id: self.sandbox.clone().unwrap_or_else(|| name.clone()), name }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open_patiently())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.account.destroy(&self.task, self.sandbox.as_deref()))
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(id) = &self.sandbox {
                self.account.put_away(&self.task, id).await?;
            }
            let state = self.account.records.get(&self.task).ok().flatten();
            self.known().keepsake = state.and_then(|state| state.keepsake(now()));
            Ok(())
        })
    }

    fn suspend_limit(&self) -> Duration {
        PUT_AWAY
    }

    fn holds_the_only_files(&self) -> Option<bool> {
        Some(self.keeps == Keeps::Files)
    }

    fn keepsake(&self) -> Option<String> {
        self.known().keepsake.clone()
    }

    fn limits(&self) -> Vec<Limit> {
        let config = &self.account.config;
        let limits = &config.settings.container;
        let limit = |name, value: Option<String>| Limit {
            name,
            support: if value.is_some() { Support::Enforced } else { Support::NotEnforced },
            value: value.unwrap_or_else(|| "no limit".into()),
            note: None,
        };
        vec![
            limit("cpu", limits.cpu.map(|cores| format!("{cores} cores"))),
            limit("memory", limits.memory_mb.map(|mb| format!("{mb} MB"))),
            Limit {
                name: "disk",
                support: Support::NotEnforced,
                value: limits.disk_mb.map_or_else(|| "no limit".into(), |mb| format!("{mb} MB")),
                note: config.disk_note(),
            },
            limit("processes", None),
        ]
    }

    fn sleeps(&self) -> bool {
        self.asleep
    }

    /// Somebody who is connected keeps the sandbox awake. What is not kept must not go to sleep.
    fn rests_after(&self) -> Option<Duration> {
        (self.keeps == Keeps::Files).then_some(self.account.config.rest)
    }

    fn goes_on(&self) -> bool {
        self.goes_on
    }

    fn word(&self) -> Option<String> {
        let all = self.account.client.warnings();
        (!all.is_empty()).then(|| format!("Modal says: {}", all.join("; ")))
    }

    fn status(&self) -> Option<String> {
        let id = self.sandbox.as_ref().filter(|_| !self.asleep)?;
        Some(match self.since {
            0 => format!("sandbox {id}"),
            since => format!("sandbox {id}, made {} min ago", now().saturating_sub(since) / 60),
        })
    }

    fn epitaph(&self) -> Option<String> {
        self.known().epitaph.clone()
    }
}
