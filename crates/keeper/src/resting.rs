//! What sessions leave when their environment is put away: their directories and exported variables.
//!
//! A shell ends with its outpost. Before that its session is asked for what a fresh shell can begin with, and whoever uses
//! the session next finds that again. Everything else of a shell is lost, and said to be.
//!
//! A place may be put to sleep by somebody else, or by itself, or reach the end of its life, at any time: what its sessions would
//! leave is noted soon after each command, once more before it is left alone because its connection costs, and when the keeper
//! is closed. That counts only if their outpost is gone when somebody comes.
//!
//! Variables that came with calls are not among it: they may be secret, and the next call brings them along.

use crate::askpass::{ASKPASS, DISPLAY};
use crate::slot::{Live, Slot};
use farshell_api::Text;
use farshell_engine::capture::Capture;
use farshell_engine::client::new_process_id;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Kind, Outpost, Place, Result};
use farshell_protocol::SessionName;
use farshell_protocol::process::{Start, Surroundings, What};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where a record has it.
const RESTING: &str = "resting";
const GIVEN: &str = "given";
/// How long all sessions together may take to say what they have.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after a command it is noted what sessions would leave, and how long that is put off for further commands.
const SOON: Duration = Duration::from_secs(1);
const AT_LAST: Duration = Duration::from_secs(15);
/// What is kept of one session, and of all, in bytes. One that has more begins as any new one does.
const MOST: usize = 128 << 10;
const MOST_OF_ALL: usize = 1 << 20;
/// Prints the variables that a program started by the session would have, each with a zero byte at its end.
const EXPORTS: &[u8] = b"exec /bin/cat /proc/self/environ";
/// The shell keeps these itself.
const SHELLS_OWN: &[&[u8]] = &[b"_", b"SHLVL", b"PWD", b"OLDPWD"];

/// What a session left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    cwd: Text,
    env: Vec<(Text, Text)>,
    /// The outpost in which it was. As long as that lives, so does the session.
    instance: String,
}

/// The sessions of an environment that was put away, by the names that their outpost had for them.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    sessions: BTreeMap<String, Left>,
    /// Names of variables that came with calls.
    given: BTreeSet<Text>,
    /// When the environment had last been used at the time of the last note. `None`: it has been used since.
    noted: Option<Instant>,
    /// Somebody is about to note it.
    soon: bool,
}

/// What becomes of notes on sessions that are in use again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notes {
    /// The place may end by itself: they stay until there are newer ones.
    Stay,
    /// Nobody will note anything before the place is put away, and until then anything may change.
    Go,
}

impl Notes {
    pub(crate) fn on(place: &dyn Place) -> Self {
        if place.ends_unasked() { Self::Stay } else { Self::Go }
    }
}

impl Resting {
    /// As an earlier keeper has recorded it.
    pub(crate) fn recorded(settings: &Value) -> Self {
        let of = |value: Option<&Value>| value.cloned().unwrap_or_default();
        Self {
            sessions: serde_json::from_value(of(settings.get(RESTING))).unwrap_or_default(),
            given: serde_json::from_value(of(settings.get(GIVEN))).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(crate) fn record(&self, settings: &mut Map<String, Value>) {
        match self.sessions.is_empty() {
            true => settings.remove(RESTING),
            false => settings.insert(RESTING.into(), json!(self.sessions)),
        };
        match self.given.is_empty() {
            true => settings.remove(GIVEN),
            false => settings.insert(GIVEN.into(), json!(self.given)),
        };
    }

    /// A call brings these along. True if that is new.
    pub(crate) fn given(&mut self, variables: &[(ByteBuf, ByteBuf)]) -> bool {
        // For each command: what is known already costs nothing.
        let new = |name: &[u8]| !self.given.iter().any(|known| known.0 == name);
        let new: Vec<Text> =
            variables.iter().filter(|(name, _)| new(name)).map(|(name, _)| Text(name.to_vec())).collect();
        self.given.extend(new.iter().cloned());
        !new.is_empty()
    }

    /// This outpost is there, and used: what was left in it is not left. True if there is something to be recorded.
    pub(crate) fn lives(&mut self, instance: &str, notes: Notes) -> bool {
        self.noted = None;
        let before = self.sessions.len();
        if notes == Notes::Go {
            self.sessions.retain(|_, left| left.instance != instance);
        }
        self.sessions.len() != before
    }

    /// Of the sessions of this outpost, these are open: of the others nothing is to come back.
    fn closed(&mut self, instance: &str, open: &BTreeSet<String>) {
        self.sessions.retain(|name, left| left.instance != instance || open.contains(name));
    }

    /// Nothing of it is to come back.
    pub(crate) fn forget(&mut self) {
        self.sessions.clear();
    }

    fn put(&mut self, left: BTreeMap<String, Left>) {
        // Those that nobody has used since the last time are as they were.
        self.sessions.extend(left);
        let size =
            |left: &Left| left.env.iter().map(|(name, value)| name.0.len() + value.0.len()).sum::<usize>();
        let mut all = 0;
        self.sessions.retain(|_, left| {
            all += size(left);
            all <= MOST_OF_ALL
        });
    }
}

/// Asks all sessions of an environment what they leave. False: not all could be asked.
pub(crate) async fn collect(slot: &Slot, live: &Live) -> bool {
    let mut left = BTreeMap::new();
    let mut open = None;
    let given = slot.lock().resting.given.clone();
    let instance = live.instance();
    let asking = async {
        let Ok(sessions) = live.outpost.sessions().await else { return };
        open = Some(sessions.iter().map(|session| session.name.as_str().to_owned()).collect());
        for session in sessions.into_iter().filter(|session| !session.busy) {
            if let Some(env) = exports(&live.outpost, &session.name, &given).await {
                let cwd = Text(session.cwd);
                let instance = instance.clone();
                left.insert(session.name.as_str().to_owned(), Left { cwd, env, instance });
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, asking).await.is_ok();
    let asked = in_time && open.is_some();
    let mut inner = slot.lock();
    if let Some(open) = &open {
        inner.resting.closed(&instance, open);
    }
    inner.resting.put(left);
    asked
}

/// Has it noted soon what the sessions of an environment would leave, if its place may end by itself.
pub(crate) fn note_soon(slot: &Arc<Slot>, live: &Arc<Live>) {
    if !live.place.ends_unasked() {
        return;
    }
    {
        let mut inner = slot.lock();
        if !inner.keeps() || std::mem::replace(&mut inner.resting.soon, true) {
            return;
        }
    }
    let (slot, live) = (Arc::clone(slot), Arc::clone(live));
    slot.clone().spawn(async move {
        let begun = Instant::now();
        loop {
            tokio::time::sleep(SOON).await;
            let inner = slot.lock();
            let quiet = inner.foreground == 0 && inner.last_used.elapsed() >= SOON;
            if quiet || begun.elapsed() >= AT_LAST {
                break;
            }
        }
        let before = {
            let mut inner = slot.lock();
            inner.resting.soon = false;
            inner.last_used
        };
        // Whoever connects may wake what was just put to sleep.
        if !live.outpost.is_connected() || !slot.live().is_some_and(|now| Arc::ptr_eq(&now, &live)) {
            return;
        }
        if collect(&slot, &live).await {
            slot.lock().resting.noted = Some(before);
        }
        slot.record_soon(None);
    });
}

/// Notes what the sessions of an environment would leave, which may go to sleep by itself from now on. False: somebody has
/// come in the meantime.
pub(crate) async fn note(slot: &Arc<Slot>) -> bool {
    let Some(live) = slot.live() else { return true };
    let used = |slot: &Slot| {
        let inner = slot.lock();
        (!inner.busy()).then_some(inner.last_used)
    };
    let before = used(slot);
    if before.is_none() || !slot.lock().keeps() {
        return before.is_some();
    }
    if slot.lock().resting.noted == before {
        return true;
    }
    let asked = collect(slot, &live).await;
    if used(slot) != before {
        slot.lock().resting.lives(&live.instance(), Notes::on(&*live.place));
        return false;
    }
    slot.lock().resting.noted = before.filter(|_| asked);
    slot.record_soon(None);
    true
}

/// Notes what the sessions of environments would leave, if that was not done since they were last used: nobody is there to do
/// it from now on.
pub(crate) async fn note_at_last(slots: Vec<Arc<Slot>>) {
    let mut noting = tokio::task::JoinSet::new();
    for slot in slots {
        let Some(live) = slot.live() else { continue };
        let noted = {
            let inner = slot.lock();
            !inner.keeps() || inner.resting.noted == Some(inner.last_used)
        };
        if !noted && live.place.ends_unasked() && live.outpost.is_connected() {
            noting.spawn(async move {
                collect(&slot, &live).await;
                let _ = slot.record_now().await;
            });
        }
    }
    noting.join_all().await;
}

async fn exports(
    outpost: &Outpost,
    session: &SessionName,
    given: &BTreeSet<Text>,
) -> Option<Vec<(Text, Text)>> {
    let id = new_process_id();
    let what = What::Shell {
        command: EXPORTS.to_vec(),
        session: Some(session.clone()),
        surroundings: Surroundings::default(),
    };
    let timeout_ms = Some(u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX));
    let start = Start { timeout_ms, grace_ms: 0, ..Start::new(id.clone(), what) };
    let mut capture = Capture::new(MOST);
    let status = outpost.run(start, &mut capture).await;
    let _ = outpost.forget(id).await;
    if status.ok()?.state
        != farshell_protocol::process::State::Ended(farshell_protocol::process::End::Exited(0))
        || capture.truncated()
    {
        return None;
    }
    Some(parse(&capture.stdout.to_bytes(), given))
}

fn parse(environ: &[u8], given: &BTreeSet<Text>) -> Vec<(Text, Text)> {
    let variable = |entry: &[u8]| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (Text(entry[..equals].to_vec()), Text(entry[equals + 1..].to_vec()));
        // The last command may have been one with sudo.
        let for_sudo = name.0 == ASKPASS.as_bytes() || (name.0 == DISPLAY.as_bytes() && value.0.is_empty());
        let kept = !SHELLS_OWN.contains(&name.0.as_slice()) && !given.contains(&name) && !for_sudo;
        kept.then_some((name, value))
    };
    environ.split(|byte| *byte == 0).filter_map(variable).collect()
}

impl Slot {
    /// Opens a session if it is not open, with what it left if its environment was put away. Gives a note if it is one that
    /// had to begin anew.
    ///
    /// # Errors
    /// As [`SessionDefaults::open`].
    pub(crate) async fn open_session(
        self: &Arc<Self>,
        outpost: &Outpost,
        defaults: SessionDefaults,
        name: &SessionName,
    ) -> Result<Option<String>> {
        let live = self.live();
        let instance = live.as_ref().map(|live| live.instance()).unwrap_or_default();
        let left = self.lock().resting.sessions.get(name.as_str()).cloned();
        // Of one that was closed in an outpost that lives, nothing is to come back.
        let Some(Left { cwd, env, .. }) = left.filter(|left| left.instance != instance) else {
            let created = defaults.open(outpost, name).await?;
            return Ok(if created { self.session_opened(name.as_str()) } else { None });
        };
        let usual = defaults.cwd.clone();
        let env =
            env.into_iter().map(|(name, value)| (ByteBuf::from(name.0), ByteBuf::from(value.0))).collect();
        let as_left = SessionDefaults { env, clear_env: true, cwd: Some(cwd.0.clone()), ..defaults };
        let (created, there) = match as_left.clone().open(outpost, name).await {
            Ok(created) => (created, true),
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::PermissionDenied | Kind::Invalid) => {
                (SessionDefaults { cwd: usual, ..as_left }.open(outpost, name).await?, false)
            }
            Err(error) => return Err(error),
        };
        {
            let resting = &mut self.lock().resting;
            match live.map_or(Notes::Go, |live| Notes::on(&*live.place)) {
                Notes::Go => drop(resting.sessions.remove(name.as_str())),
                // It is in this outpost now, as it was noted.
                Notes::Stay => {
                    if let Some(left) = resting.sessions.get_mut(name.as_str()) {
                        left.instance = instance;
                    }
                }
            }
        }
        if !created {
            return Ok(None);
        }
        let kept = match there {
            true => "its directory and exported variables are as they were".to_owned(),
            false => {
                let cwd = crate::result::head(&cwd.lossy(), 200).to_owned();
                format!("its exported variables are as they were, and its directory {cwd} is gone")
            }
        };
        Ok(self.session_opened(name.as_str()).map(|note| format!("{note}; {kept}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_with_calls_and_what_the_shell_keeps_stay_behind() {
        let given = BTreeSet::from([Text::from("TOKEN")]);
        let environ = b"A=1\0TOKEN=secret\0PWD=/x\0_=/bin/cat\0B=x=y\nz\0\xff=\xfe\0odd\0";
        let pair = |name: &[u8], value: &[u8]| (Text(name.to_vec()), Text(value.to_vec()));
        assert_eq!(parse(environ, &given), [pair(b"A", b"1"), pair(b"B", b"x=y\nz"), pair(b"\xff", b"\xfe")]);
    }

    #[test]
    fn it_is_recorded_and_bounded_and_gone_while_its_outpost_lives() {
        let left = |instance: &str, bytes: usize| Left {
            cwd: "/x".into(),
            env: vec![("A".into(), vec![b'x'; bytes].into())],
            instance: instance.into(),
        };
        let mut resting = Resting::default();
        assert!(resting.given(&[(ByteBuf::from("T"), ByteBuf::from("1"))]));
        assert!(!resting.given(&[(ByteBuf::from("T"), ByteBuf::from("2"))]));
        resting.put(BTreeMap::from([("a".into(), left("i", 1)), ("b".into(), left("j", 2))]));
        let mut settings = Map::new();
        resting.record(&mut settings);
        let mut again = Resting::recorded(&settings.clone().into());
        assert_eq!((&again.sessions, &again.given), (&resting.sessions, &resting.given));
        assert!(!again.lives("another", Notes::Go) && !again.lives("i", Notes::Stay));
        assert_eq!(again.sessions.len(), 2);
        again.closed("i", &BTreeSet::from(["a".into()]));
        assert_eq!(again.sessions.len(), 2, "one is open, and of the other another outpost knows");
        again.closed("j", &BTreeSet::from(["a".into()]));
        assert_eq!(again.sessions.keys().collect::<Vec<_>>(), ["a"], "it was closed");
        again.put(BTreeMap::from([("b".into(), left("j", 2))]));
        assert!(again.lives("i", Notes::Go), "the other one was in another outpost");
        assert_eq!(again.sessions.keys().collect::<Vec<_>>(), ["b"]);
        again.forget();
        again.record(&mut settings);
        assert_eq!(settings.keys().collect::<Vec<_>>(), [GIVEN]);
        for n in 0..20 {
            again.put(BTreeMap::from([(n.to_string(), left("j", MOST))]));
        }
        assert!(again.sessions.len() < 9, "{}", again.sessions.len());
    }
}
