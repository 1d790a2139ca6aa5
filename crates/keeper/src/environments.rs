//! Environments: found or made on first use, recorded before they are made, ended under the same lock.

use crate::demand::Waiter;
use crate::ending::{Ending, Why};
use crate::events::event;
use crate::place::Kept;
use crate::progress::{Progress, told};
use crate::resolve::{Resolved, Resolver, Wanted};
use crate::resting::Notes;
use crate::shown::limits;
use crate::slot::{Common, Entry, Failure, Inner, LIMITS, Live, Phase, Slot, Use};
use crate::{from_store, now, resting, spec};
use farshell_api::environment::EnvironmentState;
use farshell_api::event::EventKind;
use farshell_config::choice::OnSpecChange;
use farshell_engine::{Backend, Error, Kind, Outpost, Place, Result, Spec, TaskName};
use farshell_store::{EnvironmentRow, NewEvent};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// How long the place of an environment may take to answer after it was made.
pub(crate) const CONNECT: Duration = Duration::from_secs(120);

/// How long a backend may take to say whether a place is there. Somebody may have to touch a key for that.
const LOOK: Duration = Duration::from_secs(60);

/// The backend whose places are on this machine, wherever settings lead.
const LOCAL: &str = "local";

/// Said once to each session.
const ANOTHER: &str = "the place that held its files is gone, and another one was made instead";

#[derive(Debug)]
pub(crate) struct Environments {
    pub(crate) common: Arc<Common>,
    pub(crate) resolver: Arc<Resolver>,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

impl Environments {
    pub(crate) fn new(common: Arc<Common>, resolver: Arc<Resolver>) -> Self {
        Self { common, resolver, slots: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        let mut all: Vec<Arc<Slot>> = self.lock().values().cloned().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    pub(crate) fn find(&self, key: &str) -> Option<Arc<Slot>> {
        self.lock().get(key).cloned()
    }

    /// The slot of a row that was recorded before.
    pub(crate) fn restore(&self, row: EnvironmentRow) -> Arc<Slot> {
        let slot = Arc::new(Slot::new(row, Arc::clone(&self.common)));
        slot.lock().recorded = true;
        self.lock().insert(slot.key.clone(), Arc::clone(&slot));
        slot
    }

    /// The slot of a key, empty if nothing is known of it. For those who make sure by its lock that it stays so.
    pub(crate) fn slot(&self, key: &str, backend: &str, place_task: &str) -> Arc<Slot> {
        let mut slots = self.lock();
        if let Some(slot) = slots.get(key) {
            return Arc::clone(slot);
        }
        let row = EnvironmentRow {
            key: key.to_owned(),
            backend: backend.to_owned(),
            place_task: place_task.to_owned(),
            tasks: Vec::new(),
            state: EnvironmentState::Creating,
            spec: Default::default(),
            spec_hash: String::new(),
            place: None,
            instance: None,
            created_at: now(),
            last_used_at: now(),
            lifetime_seconds: 0,
            note: None,
            settings: json!({}),
        };
        let slot = Arc::new(Slot::new(row, Arc::clone(&self.common)));
        slots.insert(key.to_owned(), Arc::clone(&slot));
        slot
    }

    /// Forgets a slot without an environment. Whoever waits for its lock finds that out.
    pub(crate) fn retire(&self, slot: &Arc<Slot>) {
        let mut slots = self.lock();
        slot.lock().retired = true;
        slot.left.notify_waiters();
        if slots.get(&slot.key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            slots.remove(&slot.key);
        }
    }

    /// The environment that is wanted, made if it is not there. All callers come this way.
    ///
    /// # Errors
    /// It can't be made, or was made from other settings and can't be replaced.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        wanted: &Wanted,
        resolved: &Arc<Resolved>,
        background: bool,
        progress: Progress<'_>,
    ) -> Result<Use> {
        // What is done for places of earlier callers may need what this one has: an agent, say.
        resolved.backend.called();
        let mut gone = false;
        loop {
            let slot = self.slot(&wanted.key, resolved.backend.name(), wanted.place_task.as_str());
            if let Entry::In(entered) = slot.enter(wanted, resolved, background) {
                match self.checked(entered).await {
                    // Its place is gone. Nothing has been sent to it, so another one does as well.
                    Err(error) if error.kind == Kind::Unavailable && !gone => gone = true,
                    checked => return checked,
                }
            }
            // Dropped with the caller: what only waits in a queue is given up when nobody wants it any more.
            let _waiter = Waiter::to_use(&slot);
            let before = slot.lock().attempts;
            let news = slot.news.subscribe();
            let making = {
                let (environments, wanted, resolved) =
                    (Arc::clone(self), wanted.clone(), Arc::clone(resolved));
                // On a task of its own: a caller who goes away does not leave it half made.
                self.common.tasks.spawn(async move {
                    let life = Arc::clone(&slot.life).lock_owned().await;
                    environments.enter_slowly(&slot, life, &wanted, &resolved, background, before).await
                })
            };
            let message = format!("making environment {}", wanted.key);
            // Nothing: it was forgotten while we waited for it.
            if let Some(entered) = told(making, &message, Some(news), progress).await?? {
                return self.checked(entered).await;
            }
        }
    }

    async fn enter_slowly(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        life: OwnedMutexGuard<()>,
        wanted: &Wanted,
        resolved: &Arc<Resolved>,
        background: bool,
        before: u64,
    ) -> Result<Option<Use>> {
        {
            let inner = slot.lock();
            if inner.retired {
                return Ok(None);
            }
            // Somebody else has just tried: to do the same again for each who waited would take for ever.
            if let Some(failure) = inner.failure.as_ref().filter(|_| inner.attempts > before) {
                return Err(failure.error());
            }
        }
        // Its caller has gone, and so have all others: there is nothing to be begun.
        if !slot.demand.is_there() {
            return Ok(None);
        }
        match slot.enter(wanted, resolved, background) {
            Entry::In(entered) => return Ok(Some(entered)),
            Entry::NotReady if !slot.lock().keeps_another(resolved) => {}
            Entry::NotReady | Entry::Differs => self.replace(slot, resolved).await?,
        }
        self.make(slot, wanted, resolved).await?;
        let entered = slot.enter(wanted, resolved, background);
        drop(life);
        match entered {
            Entry::In(entered) => Ok(Some(entered)),
            Entry::NotReady | Entry::Differs => Ok(None),
        }
    }

    /// Ends an environment that was made from other settings, if that is allowed.
    async fn replace(self: &Arc<Self>, slot: &Arc<Slot>, resolved: &Resolved) -> Result<()> {
        let live = slot.live();
        let allowed = |inner: &Inner| {
            let difference = spec::difference(&inner.row.spec, &resolved.spec);
            let refuse = resolved.settings.on_spec_change == OnSpecChange::Refuse;
            if inner.holds_the_only_files(&*resolved.backend) {
                return Err(only_files(&slot.key, &difference));
            }
            if refuse || inner.busy() {
                return Err(refused(&slot.key, &difference, refuse));
            }
            Ok(difference)
        };
        allowed(&slot.lock())?;
        if crate::reaper::runs_unknown(self, slot).await {
            let difference = spec::difference(&slot.lock().row.spec, &resolved.spec);
            return Err(refused(&slot.key, &difference, false));
        }
        let place = match &live {
            Some(_) => None,
            None => match self.place_of(slot).await {
                Ok(place) => place,
                Err(error) => {
                    self.failed(slot, &error).await;
                    return Err(in_the_way(error, &slot.key));
                }
            },
        };
        let difference = {
            let mut inner = slot.lock();
            let difference = allowed(&inner)?;
            slot.change_phase(&mut inner, Phase::Ending);
            inner
                .shells
                .lost(&format!("its environment was made from changed settings ({})", difference.join("; ")));
            difference
        };
        let ended = self.end(slot, Ending { live, place }, Why::Replaced).await;
        ended.map_err(|error| in_the_way(error, &slot.key))?;
        let mut event = event(EventKind::EnvironmentRecreated, json!({ "difference": difference }));
        event.environment = Some(slot.key.clone());
        let _ = self.common.store.append(event).await;
        Ok(())
    }

    /// Makes the environment. The caller holds its lock.
    async fn make(&self, slot: &Arc<Slot>, wanted: &Wanted, resolved: &Resolved) -> Result<()> {
        let (row, was, created_at, lease) = {
            let mut inner = slot.lock();
            // What was put away begins anew when it is woken.
            let runs = !matches!(inner.phase, Phase::Absent(EnvironmentState::Stopped));
            slot.change_phase(&mut inner, Phase::Creating);
            inner.attempts += 1;
            inner.failure = None;
            inner.row.backend = resolved.backend.name().to_owned();
            inner.row.place_task = wanted.place_task.as_str().to_owned();
            inner.row.spec = resolved.spec.clone();
            inner.row.spec_hash = resolved.spec_hash.clone();
            if !inner.row.settings.is_object() {
                inner.row.settings = json!({});
            }
            let before = std::mem::replace(&mut inner.row.created_at, now());
            inner.row.note = None;
            // What it was is known until it is ended: another one must not take its stead unnoticed.
            let was = inner.was();
            inner.row.instance = None;
            inner.take_settings(wanted, resolved);
            inner.used();
            let created_at = if runs { before } else { inner.row.created_at };
            (inner.row(), was, created_at, inner.lease())
        };
        // Recorded first: whatever dies from here on, the next keeper knows what may be there.
        if let Err(error) = self.common.store.put_environment(row, None).await {
            let error = from_store(error);
            if slot.lock().recorded {
                self.failed(slot, &error).await;
            } else {
                // Nothing was recorded and nothing is there: as if nobody had asked.
                slot.set_phase(Phase::Absent(EnvironmentState::Failed));
                self.retire(slot);
            }
            return Err(error);
        }
        slot.lock().recorded = true;
        let spec = Spec { task: wanted.place_task.clone(), lease, settings: resolved.spec.clone() };
        let provisioned = match &was {
            Some(was) => resolved.backend.provision_again(&spec, was, &**slot).await,
            None => resolved.backend.provision(&spec, &**slot).await,
        };
        let made = match provisioned {
            Ok(place) => self.connect(slot, place).await,
            Err(error) if error.kind == Kind::IdentityChanged => Err(in_the_way(error, &slot.key)),
            Err(error) => Err(error),
        };
        slot.news.send_replace(None);
        match made {
            Ok(live) => {
                let row = {
                    let mut inner = slot.lock();
                    let same = was.as_ref().map(|was| was.id == live.identity.id);
                    if same == Some(true) {
                        // It was found, and not made.
                        inner.row.created_at = created_at;
                    }
                    let another = same == Some(false) && !live.place.goes_on();
                    if another && inner.holds_the_only_files(&*resolved.backend) {
                        inner.resting.forget();
                        inner.row.note = Some(ANOTHER.to_owned());
                        inner.shells.lost(ANOTHER);
                    }
                    inner.set_place(&live);
                    inner.row.settings[LIMITS] = json!(limits(resolved.backend.capabilities(), &*live.place));
                    inner.leftover = None;
                    inner.used();
                    slot.change_phase(&mut inner, Phase::Ready(Arc::new(live)));
                    inner.row()
                };
                let mut event = event(EventKind::EnvironmentCreated, json!({ "backend": row.backend }));
                event.environment = Some(slot.key.clone());
                event.task = Some(wanted.task.as_str().to_owned());
                // It is there and claimed; a disk that has just filled up is no reason to refuse it.
                let _ = self.common.store.put_environment(row, Some(event)).await;
                Ok(())
            }
            Err(error) => {
                self.failed(slot, &error).await;
                Err(error)
            }
        }
    }

    /// Connects to the outpost of a place. A place that does not answer is remembered as left over.
    pub(crate) async fn connect(&self, slot: &Arc<Slot>, place: Box<dyn Place>) -> Result<Live> {
        let place = Arc::new(Kept::new(place, slot.lock().gate.clone()));
        let outpost = Outpost::new(Arc::clone(&place) as Arc<dyn Place>);
        let left = Arc::downgrade(slot);
        outpost.before_rest(Arc::new(move || {
            let slot = left.upgrade();
            Box::pin(async move {
                match slot {
                    Some(slot) => resting::note(&slot).await,
                    None => true,
                }
            })
        }));
        let identity = match tokio::time::timeout(CONNECT, outpost.identity()).await {
            Ok(identity) => identity,
            Err(_) => Err(Error::new(
                Kind::TimedOut,
                format!("connecting to the outpost of {}", slot.key),
                format!("no answer in {} s", CONNECT.as_secs()),
            )),
        };
        match identity {
            Ok(identity) => Ok(Live::new(place, outpost, identity.instance)),
            Err(error) => {
                slot.lock().leftover = Some(place);
                Err(error)
            }
        }
    }

    /// It could not be made, or not be ended.
    pub(crate) async fn failed(&self, slot: &Arc<Slot>, error: &Error) {
        let note = error.to_string();
        let (row, told) = {
            let mut inner = slot.lock();
            let told = matches!(inner.phase, Phase::Absent(EnvironmentState::Failed))
                && inner.row.note.as_ref() == Some(&note);
            inner.failure = Some(Failure::of(error));
            inner.row.note = Some(note);
            inner.used();
            slot.change_phase(&mut inner, Phase::Absent(EnvironmentState::Failed));
            (inner.row(), told)
        };
        // One that is asked again and again is told of once.
        let event = (!told).then(|| {
            let mut event = event(EventKind::EnvironmentFailed, json!({ "error": error.to_string() }));
            event.environment = Some(slot.key.clone());
            event
        });
        let _ = self.common.store.put_environment(row, event).await;
    }

    /// Looks whether the environment can be reached, and still has the outpost that it had.
    async fn checked(&self, entered: Use) -> Result<Use> {
        match entered.live.outpost.identity().await {
            Ok(identity) => {
                if entered.live.set_instance(&identity.instance) {
                    let event = outpost_replaced(&entered.slot, &entered.live);
                    entered.slot.record_soon(Some(event));
                } else if entered
                    .slot
                    .lock()
                    .resting
                    .lives(&identity.instance, Notes::on(&*entered.live.place))
                {
                    entered.slot.record_soon(None);
                }
                Ok(entered)
            }
            Err(error) => {
                let (slot, live) = (Arc::clone(&entered.slot), Arc::clone(&entered.live));
                drop(entered);
                let _life = slot.life.lock().await;
                // The next call begins with what is there then.
                if slot.live().is_some_and(|known| Arc::ptr_eq(&known, &live)) {
                    let gone = error.kind == Kind::Unavailable && self.is_gone(&slot, &live).await;
                    {
                        let mut inner = slot.lock();
                        inner.leftover = Some(Arc::clone(&live.place));
                        if gone {
                            inner.shells.lost(&live.place.epitaph().unwrap_or_else(|| error.message.clone()));
                        }
                    }
                    self.failed(&slot, &error).await;
                }
                Err(error)
            }
        }
    }

    /// What an environment's record says of its place, and the backend that has it.
    ///
    /// # Errors
    /// The record or the settings can't be used.
    pub(crate) fn backend_of(&self, slot: &Slot) -> Result<(Arc<dyn Backend>, Spec)> {
        let (name, spec) = {
            let inner = slot.lock();
            let row = &inner.row;
            let task = TaskName::new(row.place_task.as_str()).map_err(|e| {
                Error::new(Kind::Invalid, "reading the record of an environment", e.to_string())
            })?;
            (row.backend.clone(), Spec { task, lease: inner.lease(), settings: row.spec.clone() })
        };
        let backend = self.resolver.backend_of(&name, &spec.settings).or_else(|error| {
            // Settings that can't be used are no reason to lose sight of what there is on this machine. Of other places
            // they are: nobody could say whether it is the right one that is asked.
            let all = self.resolver.backends().all(&self.resolver.world().home);
            all.into_iter().find(|backend| backend.name() == name && name == LOCAL).ok_or(error)
        })?;
        Ok((backend, spec))
    }

    /// Looks for the place of an environment as it was recorded.
    ///
    /// # Errors
    /// It can't be told whether it is there. That is not to say that it is not.
    pub(crate) async fn look(&self, slot: &Slot) -> Result<Option<Box<dyn Place>>> {
        let (backend, spec) = self.backend_of(slot)?;
        let was = slot.lock().was();
        let found = match &was {
            Some(was) => backend.find_again(&spec, was),
            None => backend.find(&spec),
        };
        match tokio::time::timeout(LOOK, found).await {
            Ok(found) => found,
            Err(_) => Err(Error::new(
                Kind::TimedOut,
                format!("looking for the place of {}", slot.key),
                format!("no answer in {} s", LOOK.as_secs()),
            )),
        }
    }

    /// Whether the place of an environment is gone for sure, and not only out of reach.
    pub(crate) async fn is_gone(&self, slot: &Slot, live: &Live) -> bool {
        match self.look(slot).await {
            Ok(found) => found.is_none_or(|place| place.sleeps() || place.identity().id != live.identity.id),
            Err(_) => false,
        }
    }

    /// The place of an environment as it was recorded, to be ended. `None` if it is gone already.
    ///
    /// # Errors
    /// That can't be told.
    pub(crate) async fn place_of(&self, slot: &Slot) -> Result<Option<Arc<Kept>>> {
        let found = self.look(slot).await?;
        Ok(found.map(|place| Arc::new(Kept::new(place, slot.lock().gate.clone()))))
    }

    /// The environment that a person means: by its key, or by a task that uses it.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<Slot>> {
        let what = || format!("looking for environment {}", crate::result::head(name, 80));
        if let Some(slot) = self.find(name).filter(|slot| slot.lock().recorded) {
            return Ok(slot);
        }
        let uses = |slot: &Arc<Slot>| {
            let inner = slot.lock();
            inner.row.tasks.iter().any(|task| task == name) || inner.row.place_task == name
        };
        let mut found: Vec<Arc<Slot>> = self.slots().into_iter().filter(uses).collect();
        match (found.pop(), found.is_empty()) {
            (Some(slot), true) => Ok(slot),
            (None, _) => Err(Error::new(Kind::NotFound, what(), "there is none of this key or task")
                .with_hint("`farshell env list` shows all")),
            (Some(last), false) => {
                let mut keys: Vec<&str> = found.iter().map(|slot| slot.key.as_str()).collect();
                keys.push(&last.key);
                Err(Error::new(Kind::Invalid, what(), format!("several are meant: {}", keys.join(", ")))
                    .with_hint("give the whole key"))
            }
        }
    }
}

/// The outpost was lost, and another one has taken its place. Gives the event that says so.
pub(crate) fn outpost_replaced(slot: &Slot, live: &Live) -> NewEvent {
    let why = live.place.epitaph().unwrap_or_else(|| "its outpost was lost".to_owned());
    let note = format!(
        "{why}, and another outpost has taken its place: sessions begin anew, and what ran in it is lost"
    );
    let mut inner = slot.lock();
    inner.shells.lost(&why);
    inner.row.note = Some(note.clone());
    inner.set_place(live);
    let mut event = event(EventKind::EnvironmentFailed, json!({ "error": note }));
    event.environment = Some(slot.key.clone());
    event
}

/// Another one would be made by deleting what nobody has a copy of: that is for a person to do.
fn only_files(key: &str, difference: &[String]) -> Error {
    let message = format!(
        "it was made from other settings ({}), and its files are in it and nowhere else",
        difference.join("; ")
    );
    Error::new(Kind::SpecChanged, format!("using environment {key}"), message).with_hint(format!(
        "set the old values again, copy what you need with `farshell cp`, then `farshell env rm --files {key}` removes it with them; or use another task (`--task`)"
    ))
}

/// What an environment had before can't be ended, or is not what answers now: whoever knows better says so.
fn in_the_way(error: Error, key: &str) -> Error {
    let hint = error.hint.clone().map_or_else(String::new, |hint| format!("{hint}; "));
    error.with_hint(format!(
        "{hint}`farshell env rm --forget {key}` leaves what was there to itself, and the next call begins anew"
    ))
}

fn refused(key: &str, difference: &[String], by_setting: bool) -> Error {
    let what = format!("using environment {key}");
    let message = format!("it was made from other settings: {}", difference.join("; "));
    let error = Error::new(Kind::SpecChanged, what, message);
    if by_setting {
        error.with_hint(format!(
            "`farshell env rm {key}` removes it, and the next call makes it from the new settings; `farshell config set on_spec_change recreate` has that done by itself"
        ))
    } else {
        error.with_hint("it is made anew when nothing runs in it any more; `farshell ps` shows what does")
    }
}
