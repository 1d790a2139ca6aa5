//! Foreground commands that were started or taken up here, for as long as somebody may ask about them.

use crate::{now, result};
use farshell_api::process::{Process, ProcessState};
use farshell_api::run::Size;
use farshell_engine::{Error, Kind};
use farshell_protocol::process::Status;
use farshell_store::finished;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// Foreground commands that are remembered.
const MOST_RECENT: usize = 4096;

/// A foreground command that was started here.
#[derive(Debug)]
pub(crate) struct Foreground {
    process: Mutex<Process>,
    /// The outpost that has it.
    pub(crate) instance: String,
    stage: AtomicU8,
    /// Its terminal's size now.
    size: Mutex<Option<Size>>,
    /// Its session had to begin anew for it, and why.
    anew: OnceLock<String>,
    /// What it goes on as, once it is a background process.
    promoted: watch::Sender<Option<Process>>,
}

/// Its start is on its way.
const PENDING: u8 = 0;
/// Somebody here follows it.
const ACTIVE: u8 = 1;
/// Nobody does any more.
const OVER: u8 = 2;

impl Foreground {
    /// Its start is on its way.
    pub(crate) fn new(process: Process, instance: String) -> Self {
        Self {
            process: Mutex::new(process),
            instance,
            stage: AtomicU8::new(PENDING),
            size: Mutex::new(None),
            anew: OnceLock::new(),
            promoted: watch::Sender::new(None),
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody here follows it from now on.
    pub(crate) fn is_followed(&self) {
        self.stage.store(ACTIVE, Ordering::SeqCst);
    }

    /// It will not be begun, unless somebody follows it already.
    pub(crate) fn is_given_up(&self) {
        let _ = self.stage.compare_exchange(PENDING, OVER, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Its session had to begin anew for it.
    pub(crate) fn began_anew(&self, why: String) {
        let _ = self.anew.set(why);
    }

    pub(crate) fn active(&self) -> bool {
        self.stage.load(Ordering::SeqCst) != OVER
    }

    pub(crate) fn is_over(&self) {
        self.stage.store(OVER, Ordering::SeqCst);
    }

    /// Nobody can say any more what becomes of it, or it has not begun.
    pub(crate) fn failed(&self, error: &Error) {
        let mut process = self.lock();
        if !finished(process.state) {
            process.state = match error.kind {
                Kind::UnknownOutcome | Kind::Disconnected => ProcessState::Lost,
                _ => ProcessState::NotStarted,
            };
            result::note(&mut process, &error.to_string());
        }
        drop(process);
        self.is_over();
    }

    pub(crate) fn promoted(&self, process: &Process) {
        self.promoted.send_replace(Some(process.clone()));
    }

    /// Waits until it is made a background process, and gives that.
    pub(crate) async fn promotion(&self) -> Process {
        let mut promoted = self.promoted.subscribe();
        let process = promoted.wait_for(Option::is_some).await.ok().and_then(|process| process.clone());
        match process {
            Some(process) => process,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn size(&self) -> Option<Size> {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_size(&self, size: Option<Size>) {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner) = size;
    }

    /// What the outpost says of it now. Its end is the last word: an answer from before may come after it. That it was lost is
    /// not the outpost's word.
    pub(crate) fn update(&self, status: &Status) -> Process {
        let mut process = self.lock();
        if process.state == ProcessState::Lost {
            process.note = None;
        } else if finished(process.state) {
            return process.clone();
        }
        result::update(&mut process, status, now());
        if let Some(why) = self.anew.get() {
            result::began_anew(&mut process, why);
        }
        process.clone()
    }
}

/// Those that were started last, and all that run.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    known: HashMap<String, Arc<Foreground>>,
    order: VecDeque<String>,
}

impl Recent {
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Foreground>> {
        self.known.get(id).cloned()
    }

    pub(crate) fn active(&self) -> Vec<Arc<Foreground>> {
        self.known.values().filter(|foreground| foreground.active()).cloned().collect()
    }

    pub(crate) fn insert(&mut self, foreground: Arc<Foreground>) {
        let id = foreground.lock().id.clone();
        if self.known.insert(id.clone(), foreground).is_none() {
            self.order.push_back(id);
        }
        let mut looked = 0;
        while self.known.len() > MOST_RECENT && looked < self.order.len() {
            let Some(oldest) = self.order.pop_front() else { return };
            if self.known.get(&oldest).is_some_and(|known| known.active()) {
                self.order.push_back(oldest);
                looked += 1;
            } else {
                self.known.remove(&oldest);
            }
        }
    }

    /// Gives the one that is there already, if that is the same command.
    pub(crate) fn insert_new(&mut self, foreground: Arc<Foreground>) -> Option<Arc<Foreground>> {
        let id = foreground.lock().id.clone();
        let known = self.known.get(&id).filter(|known| known.instance == foreground.instance).cloned();
        if known.is_none() {
            self.insert(foreground);
        }
        known
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.known.remove(id);
        self.order.retain(|known| known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreground::begun_and_lost;

    fn status(state: &serde_json::Value, stdout: u64) -> Status {
        let status = serde_json::json!({
            "id": "p", "state": state, "pid": 7, "elapsed_us": 1, "output": {"stdout": stdout, "stderr": 0},
        });
        serde_json::from_value(status).unwrap()
    }

    fn foreground() -> Foreground {
        let foreground = Foreground::new(Process::default(), "i".into());
        foreground.is_followed();
        foreground
    }

    /// Whoever asks while a process ends may get both answers in the wrong order, and it was shown as running for ever.
    #[test]
    fn an_answer_from_before_the_end_does_not_undo_it() {
        let foreground = foreground();
        assert_eq!(foreground.update(&status(&"Running".into(), 1)).state, ProcessState::Running);
        let ended = foreground.update(&status(&serde_json::json!({"Ended": {"Exited": 3}}), 5));
        assert_eq!((ended.state, ended.exit_code), (ProcessState::Ended, Some(3)));
        assert_eq!(foreground.update(&status(&"Running".into(), 2)), ended);
    }

    #[test]
    fn one_that_nobody_can_follow_does_not_run_for_ever() {
        for (kind, state) in
            [(Kind::UnknownOutcome, ProcessState::Lost), (Kind::Busy, ProcessState::NotStarted)]
        {
            let foreground = foreground();
            foreground.update(&status(&"Running".into(), 1));
            foreground.failed(&Error::new(kind, "running p", "why"));
            assert_eq!((foreground.process().state, foreground.active()), (state, false));
            assert!(foreground.process().note.unwrap().contains("why"));
        }
    }

    #[test]
    fn a_command_is_taken_up_once() {
        let of = |instance: &str| {
            let process = Process { id: "p".into(), ..Process::default() };
            Arc::new(Foreground::new(process, instance.into()))
        };
        let mut recent = Recent::default();
        let first = of("i");
        assert!(recent.insert_new(Arc::clone(&first)).is_none());
        assert!(Arc::ptr_eq(&recent.insert_new(of("i")).unwrap(), &first));
        assert!(Arc::ptr_eq(&recent.get("p").unwrap(), &first));
        // Under the same id, in another outpost: another command.
        assert!(recent.insert_new(of("j")).is_none());
        assert_eq!((recent.get("p").unwrap().instance.as_str(), recent.order.len()), ("j", 1));
    }

    #[test]
    fn what_was_followed_and_lost_is_never_said_not_to_have_begun() {
        for kind in
            [Kind::TimedOut, Kind::Unavailable, Kind::PermissionDenied, Kind::System, Kind::Disconnected]
        {
            let foreground = foreground();
            foreground.failed(&begun_and_lost(Error::new(kind, "following p", "the line is dead")));
            assert_eq!(foreground.process().state, ProcessState::Lost, "{kind:?}");
            // The outpost knows better, when it is back.
            let ended = foreground.update(&status(&serde_json::json!({"Ended": {"Exited": 3}}), 9));
            assert_eq!((ended.state, ended.exit_code, ended.note), (ProcessState::Ended, Some(3), None));
        }
        let none = begun_and_lost(Error::new(Kind::NotFound, "following p", "there is none"));
        assert_eq!(none.kind, Kind::NotFound);
    }
}
