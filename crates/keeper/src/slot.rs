//! One environment's state, and who uses it.
//!
//! Everything that changes together is behind one short lock. Making, mending and ending an environment takes long;
//! whoever does that holds [`Slot::life`], and calls that find the environment not ready wait for it.

use crate::alive::{Alive, Token};
use crate::demand::Demand;
use crate::now;
use crate::place::{Gate, Kept};
use crate::reaper::Timer;
use crate::resolve::{Resolved, Wanted};
use crate::resting::{self, Notes, Resting};
use crate::shells::Shells;
use crate::spec;
use crate::tasks::Tasks;
use farshell_api::environment::EnvironmentState;
use farshell_api::run::Place;
use farshell_config::settings;
use farshell_engine::backend::{BoxFuture, Identity, News};
use farshell_engine::{Backend, Error, Kind, Outpost};
use farshell_store::{EnvironmentRow, NewEvent, Store};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How often the time of the last use is written down, at most: a command must not wait for a disk.
const TOUCH: Duration = Duration::from_secs(30);
/// Tasks of a shared environment that are listed.
const MOST_TASKS: usize = 1000;
/// How long an outpost with background processes outlives a server that is gone, so that the next one still learns
/// how they ended.
const HOLD: Duration = Duration::from_secs(3600);
/// How long an outpost that can be cut off waits for its owner: a command that ends while a laptop is closed, and the state
/// of a session, are still there after the meeting, and not for ever.
const AWAY: Duration = Duration::from_secs(4 * 3600);

/// What a record's settings hold beside the settings.
pub(crate) const LIMITS: &str = "limits";
const STAYS: &str = "stays";
const FAR: &str = "far";

/// What all environments of a keeper share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) store: Store,
    pub(crate) alive: Alive,
    pub(crate) timer: Timer,
    pub(crate) tasks: Tasks,
}

/// An environment that can be used.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) place: Arc<Kept>,
    pub(crate) outpost: Outpost,
    /// What every result names.
    pub(crate) identity: Place,
    /// What its outpost was when it was last looked at.
    instance: Mutex<String>,
    /// The lease that the outpost was last told.
    lease: tokio::sync::Mutex<Option<Duration>>,
}

impl Live {
    pub(crate) fn new(place: Arc<Kept>, outpost: Outpost, instance: String) -> Self {
        let identity = farshell_engine::Place::identity(&*place);
        Self {
            place,
            outpost,
            identity: Place { name: identity.name, id: identity.id },
            instance: Mutex::new(instance),
            lease: tokio::sync::Mutex::new(None),
        }
    }

    pub(crate) fn instance(&self) -> String {
        lock(&self.instance).clone()
    }

    /// True if it is another one than before.
    pub(crate) fn set_instance(&self, instance: &str) -> bool {
        let mut known = lock(&self.instance);
        let changed = *known != instance;
        if changed {
            instance.clone_into(&mut known);
        }
        changed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// There is no environment; what was known of one is only shown.
    Absent(EnvironmentState),
    Creating,
    Ready(Arc<Live>),
    Ending,
}

/// Why it could not be made, for all who waited for it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    operation: String,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Self {
        Self {
            kind: error.kind,
            operation: error.operation.clone(),
            message: error.message.clone(),
            hint: error.hint.clone(),
        }
    }

    pub(crate) fn error(&self) -> Error {
        let error = Error::new(self.kind, self.operation.clone(), self.message.clone());
        match &self.hint {
            Some(hint) => error.with_hint(hint.clone()),
            None => error,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: String,
    /// Held by whoever makes, mends or ends the environment.
    pub(crate) life: Arc<tokio::sync::Mutex<()>>,
    common: Arc<Common>,
    inner: Mutex<Inner>,
    /// Somebody has left.
    pub(crate) left: Notify,
    /// What takes long while the place is made, for all who wait for it.
    pub(crate) news: watch::Sender<Option<News>>,
    pub(crate) demand: Demand,
}

impl farshell_engine::backend::Progress for Slot {
    fn say(&self, news: &News) {
        self.news.send_replace(Some(news.clone()));
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.demand.none())
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    /// What is recorded; its state is the phase's.
    pub(crate) row: EnvironmentRow,
    pub(crate) foreground: u32,
    pub(crate) background: u32,
    /// Background processes of an earlier keeper, of which nobody knows yet whether they run.
    pub(crate) unseen: u32,
    pub(crate) last_used: Instant,
    lifetime: Duration,
    touched: Instant,
    /// What could not be reached or ended, to be ended when nobody has used it for its lifetime.
    pub(crate) leftover: Option<Arc<Kept>>,
    /// The way to the place, until it is ended.
    pub(crate) gate: Gate,
    /// How often in a row its place was there and awake, and nobody in it answered the reaper.
    pub(crate) silent: u32,
    /// The reaper is on its way.
    pub(crate) reaping: bool,
    /// It is in the records, and not only asked for.
    pub(crate) recorded: bool,
    /// It is no longer the slot of its key.
    pub(crate) retired: bool,
    /// Attempts to make it, and how the last one failed.
    pub(crate) attempts: u64,
    pub(crate) failure: Option<Failure>,
    /// The pause of a kill for which none is given.
    pub(crate) grace: Duration,
    /// The place may outlive the server.
    pub(crate) stays: bool,
    /// The line to its place may break for long: [`Backend::can_be_cut_off`].
    pub(crate) far: bool,
    /// It could not be reached when it was last asked what runs in it.
    pub(crate) away: bool,
    pub(crate) shells: Shells,
    pub(crate) resting: Resting,
    token: Option<Token>,
}

/// How a try to use an environment went.
#[derive(Debug)]
pub(crate) enum Entry {
    In(Use),
    NotReady,
    /// It was made from something else.
    Differs,
}

/// Somebody uses an environment: it is not put away meanwhile.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) slot: Arc<Slot>,
    pub(crate) live: Arc<Live>,
    background: bool,
}

impl Slot {
    pub(crate) fn new(row: EnvironmentRow, common: Arc<Common>) -> Self {
        let state = row.state;
        let lifetime = Duration::from_secs(row.lifetime_seconds);
        let shells = Shells::recorded(&row.settings);
        let resting = Resting::recorded(&row.settings);
        let stays = row.settings.get(STAYS) != Some(&json!(false));
        let far = row.settings.get(FAR) == Some(&json!(true));
        Self {
            key: row.key.clone(),
            life: Arc::default(),
            common,
            inner: Mutex::new(Inner {
                phase: Phase::Absent(state),
                row,
                foreground: 0,
                background: 0,
                unseen: 0,
                last_used: Instant::now(),
                lifetime,
                touched: Instant::now(),
                leftover: None,
                gate: Gate::default(),
                silent: 0,
                reaping: false,
                recorded: false,
                retired: false,
                attempts: 0,
                failure: None,
                grace: Duration::from_secs(2),
                stays,
                far,
                away: false,
                shells,
                resting,
                token: None,
            }),
            left: Notify::new(),
            news: watch::Sender::new(None),
            demand: Demand::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// The environment, if it can be used.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        match &self.lock().phase {
            Phase::Ready(live) => Some(Arc::clone(live)),
            _ => None,
        }
    }

    /// Uses the environment for a caller, if it is ready and the right one.
    pub(crate) fn enter(self: &Arc<Self>, wanted: &Wanted, resolved: &Resolved, background: bool) -> Entry {
        let mut inner = self.lock();
        let Phase::Ready(live) = &inner.phase else { return Entry::NotReady };
        if inner.row.spec_hash != resolved.spec_hash {
            return Entry::Differs;
        }
        let live = Arc::clone(live);
        let changed = inner.take_settings(wanted, resolved);
        inner.count(background);
        drop(inner);
        if changed {
            self.record_soon(None);
        }
        let entered = Use { slot: Arc::clone(self), live, background };
        if changed || background {
            entered.lease_changes();
        }
        Entry::In(entered)
    }

    /// Does something beside the calls.
    pub(crate) fn spawn(self: Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.common.tasks.spawn(work);
    }

    /// Writes down what has changed in an environment that can be used, some time soon.
    pub(crate) fn record_soon(self: &Arc<Self>, event: Option<NewEvent>) {
        let slot = Arc::clone(self);
        self.common.tasks.spawn(async move {
            // Without the lock it could come after the end of the environment, and claim what is gone.
            let _life = slot.life.lock().await;
            if slot.live().is_some() {
                let row = slot.lock().row();
                let _ = slot.common.store.put_environment(row, event).await;
            }
        });
    }

    /// A session was opened. Says so if it is one that was lost, and why.
    pub(crate) fn session_opened(self: &Arc<Self>, name: &str) -> Option<String> {
        let opened = self.lock().shells.opened(name);
        if opened.changed {
            self.record_soon(None);
        }
        opened.note
    }

    /// Writes down what has changed in an environment that is in use.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) async fn record_now(&self) -> farshell_store::Result<()> {
        let _life = self.life.lock().await;
        match self.live() {
            Some(_) => {
                let row = self.lock().row();
                self.common.store.put_environment(row, None).await
            }
            None => Ok(()),
        }
    }

    /// Uses it for something that is known to run in it.
    pub(crate) fn adopt(self: &Arc<Self>, live: &Arc<Live>, background: bool) -> Use {
        self.lock().count(background);
        let entered = Use { slot: Arc::clone(self), live: Arc::clone(live), background };
        entered.lease_changes();
        entered
    }

    /// When it is to be put away, if nothing happens. `None` while something does, or if there is nothing.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        self.lock().expiry()
    }

    /// What an earlier keeper left in it is found, or known to be gone.
    pub(crate) fn seen(&self) {
        let expiry = {
            let mut inner = self.lock();
            inner.unseen = 0;
            inner.expiry()
        };
        if let Some(expiry) = expiry {
            self.common.timer.no_later_than(expiry);
        }
    }

    /// Waits for so long, or until it is forgotten.
    pub(crate) async fn pause(&self, time: Duration) {
        let forgotten = async {
            loop {
                let left = self.left.notified();
                if self.lock().retired {
                    return;
                }
                left.await;
            }
        };
        let _ = tokio::time::timeout(time, forgotten).await;
    }

    fn leave(&self, background: bool) {
        let mut inner = self.lock();
        match background {
            true => inner.background -= 1,
            false => inner.foreground -= 1,
        }
        inner.used();
        let expiry = inner.expiry();
        let touch = (inner.touched.elapsed() >= TOUCH).then(|| {
            inner.touched = Instant::now();
            inner.row.last_used_at
        });
        drop(inner);
        if let Some(expiry) = expiry {
            self.common.timer.no_later_than(expiry);
        }
        if let Some(at) = touch {
            let (store, key) = (self.common.store.clone(), self.key.clone());
            self.common.tasks.spawn(async move {
                let _ = store.touch(&key, at).await;
            });
        }
        self.left.notify_waiters();
    }

    /// Enters a phase. An environment that is there keeps the keeper alive.
    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut inner = self.lock();
        self.change_phase(&mut inner, phase);
    }

    pub(crate) fn change_phase(&self, inner: &mut Inner, phase: Phase) {
        inner.token = match phase {
            Phase::Absent(_) => None,
            _ => Some(inner.token.take().unwrap_or_else(|| self.common.alive.token())),
        };
        inner.phase = phase;
        if let Some(expiry) = inner.expiry() {
            self.common.timer.no_later_than(expiry);
        }
    }
}

impl Inner {
    /// What is to be recorded now.
    pub(crate) fn row(&self) -> EnvironmentRow {
        let state = match &self.phase {
            Phase::Absent(state) => *state,
            Phase::Creating => EnvironmentState::Creating,
            Phase::Ready(_) => EnvironmentState::Ready,
            Phase::Ending => EnvironmentState::Ending,
        };
        let mut row = EnvironmentRow { state, ..self.row.clone() };
        if !row.settings.is_object() {
            row.settings = json!({});
        }
        if let Some(settings) = row.settings.as_object_mut() {
            settings.insert(STAYS.into(), json!(self.stays));
            settings.insert(FAR.into(), json!(self.far));
            self.shells.record(settings);
            self.resting.record(settings);
        }
        row
    }

    /// It was made from other settings, and is put away with what it keeps, or out of reach with what runs in it.
    pub(crate) fn keeps_another(&self, resolved: &Resolved) -> bool {
        let there = match self.phase {
            Phase::Absent(EnvironmentState::Stopped) => true,
            Phase::Absent(_) => self.row.place.is_some() || self.leftover.is_some(),
            _ => false,
        };
        there && self.recorded && self.row.spec_hash != resolved.spec_hash
    }

    /// It was there, and could not be reached, or not be asked.
    pub(crate) fn may_be_back(&self) -> bool {
        matches!(self.phase, Phase::Absent(EnvironmentState::Failed))
            && self.recorded
            && self.row.place.is_some()
    }

    /// The place that it has or had, as far as anybody has seen.
    pub(crate) fn was(&self) -> Option<Identity> {
        self.row.place.as_ref().map(|place| Identity { name: place.name.clone(), id: place.id.clone() })
    }

    /// Whoever ends its place deletes files that were to be kept.
    pub(crate) fn holds_the_only_files(&self, backend: &dyn Backend) -> bool {
        self.keeps() && !backend.capabilities().persists_files
    }

    /// Something of its place is to be kept.
    pub(crate) fn keeps(&self) -> bool {
        self.row.spec.get(spec::PERSISTENT).is_some_and(|kept| kept == "true")
    }

    pub(crate) fn busy(&self) -> bool {
        self.foreground > 0 || self.background > 0 || self.unseen > 0
    }

    pub(crate) fn used(&mut self) {
        self.last_used = Instant::now();
        self.row.last_used_at = now();
    }

    fn count(&mut self, background: bool) {
        match background {
            true => self.background += 1,
            false => self.foreground += 1,
        }
        self.used();
    }

    pub(crate) fn set_lifetime(&mut self, lifetime: Duration) {
        self.lifetime = lifetime;
        self.row.lifetime_seconds = lifetime.as_secs();
    }

    /// The latest caller's word counts. True if that is something to be recorded.
    pub(crate) fn take_settings(&mut self, wanted: &Wanted, resolved: &Resolved) -> bool {
        self.grace = resolved.settings.term_grace;
        let stays = match &resolved.settings.backend {
            settings::Backend::Docker(docker) => docker.persist_across_processes,
            _ => true,
        };
        let far = resolved.backend.can_be_cut_off();
        let mut changed =
            self.lifetime != resolved.settings.lifetime || self.stays != stays || self.far != far;
        self.stays = stays;
        self.far = far;
        self.set_lifetime(resolved.settings.lifetime);
        changed |= self.resting.given(&resolved.variables);
        let task = wanted.task.as_str();
        if !self.row.tasks.iter().any(|known| known == task) && self.row.tasks.len() < MOST_TASKS {
            self.row.tasks.push(task.to_owned());
            changed = true;
        }
        changed
    }

    /// As [`Slot::expiry`].
    pub(crate) fn expiry(&self) -> Option<Instant> {
        let there = matches!(self.phase, Phase::Ready(_)) || self.leftover.is_some();
        let idle = there && !self.busy() && !self.reaping && !self.retired;
        // A lifetime may be longer than any clock goes.
        self.last_used.checked_add(self.lifetime).filter(|_| idle)
    }

    pub(crate) fn set_place(&mut self, live: &Live) {
        self.silent = 0;
        self.row.place = Some(live.identity.clone());
        self.row.instance = Some(live.instance());
        self.resting.lives(&live.instance(), Notes::on(&*live.place));
    }

    /// What its outpost is started with. One that nobody uses is ended by the reaper after its lifetime: this counts when
    /// nobody here can do that.
    pub(crate) fn lease(&self) -> Duration {
        if self.far { self.lifetime.max(AWAY) } else { self.lifetime }
    }

    /// What its outpost may have been told at most.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.lease().max(HOLD)
    }

    fn wanted_lease(&self) -> Duration {
        if self.background > 0 { self.longest_lease() } else { self.lease() }
    }
}

impl Use {
    /// The same use, of a process that goes on in the background.
    pub(crate) fn into_background(mut self) -> Self {
        if !self.background {
            let mut inner = self.slot.lock();
            inner.foreground -= 1;
            inner.background += 1;
            drop(inner);
            self.background = true;
            self.lease_changes();
        }
        self
    }

    /// Tells the outpost how long to wait for the next server, if that has changed.
    fn lease_changes(&self) {
        let (slot, live) = (Arc::clone(&self.slot), Arc::clone(&self.live));
        self.slot.common.tasks.spawn(async move {
            let mut told = live.lease.lock().await;
            let lease = slot.lock().wanted_lease();
            if *told != Some(lease) && live.outpost.set_lease(lease).await.is_ok() {
                *told = Some(lease);
            }
        });
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.slot.leave(self.background);
        if self.background {
            self.lease_changes();
        } else {
            resting::note_soon(&self.slot, &self.live);
        }
    }
}
