//! Files that are open. They hold their environment, so nobody may forget them for ever.

use crate::app::App;
use crate::refusal::Refusal;
use farshell_api::file::{OpenFiles, OpenedFiles};
use farshell_api::run::Target;
use farshell_engine::{Kind, Outpost, Result};
use farshell_keeper::Files;
use farshell_protocol::SessionName;
use farshell_protocol::file::{Below, FileOp, FileReply};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A silence after which files count as closed: their caller was killed, or has forgotten them.
const SILENCE: Duration = Duration::from_secs(60);
/// Open at one time. Each holds an environment, and a caller needs one.
const MOST: usize = 256;

/// All that are open.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, Arc<Handle>>>,
}

/// One caller's files. Whoever works on them has a clone of the `Arc`.
#[derive(Debug)]
pub(crate) struct Handle {
    files: Files,
    /// As they were asked for.
    pub(super) target: Target,
    pub(super) session_name: String,
    used: Mutex<Instant>,
    /// Something in them was to be changed.
    changed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handles {
    pub(crate) fn open(
        app: &Arc<App>,
        files: Files,
        request: OpenFiles,
    ) -> std::result::Result<OpenedFiles, Refusal> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|e| Refusal::new(Kind::System, "opening files", e.to_string()))?;
        let id = bytes.iter().fold("files_".to_owned(), |text, byte| text + &format!("{byte:02x}"));
        let opened = OpenedFiles {
            id: id.clone(),
            environment: files.environment().to_owned(),
            backend: files.backend().to_owned(),
            place: files.place().clone(),
        };
        {
            let mut open = lock(&app.files.open);
            if open.len() >= MOST {
                let message = format!("{MOST} are open already");
                return Err(Refusal::new(Kind::Busy, "opening files", message)
                    .with_hint("close those that are not needed any more"));
            }
            let handle = Handle {
                files,
                target: request.target,
                session_name: request.session,
                used: Mutex::new(Instant::now()),
                changed: AtomicBool::new(false),
            };
            open.insert(id.clone(), Arc::new(handle));
        }
        let app = Arc::clone(app);
        tokio::spawn(async move {
            while let Some(until) = app.files.kept_until(&id) {
                tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = app.life.reached(crate::life::Phase::Stopping) => app.files.close(&id),
                }
            }
        });
        Ok(opened)
    }

    /// When to look again whether they are still wanted. `None` if they are closed, or have just been.
    fn kept_until(&self, id: &str) -> Option<Instant> {
        let mut open = lock(&self.open);
        let handle = open.get(id)?;
        let now = Instant::now();
        if Arc::strong_count(handle) > 1 {
            return Some(now + SILENCE);
        }
        let until = *lock(&handle.used) + SILENCE;
        if until > now {
            return Some(until);
        }
        open.remove(id);
        None
    }

    pub(crate) fn find(&self, id: &str) -> std::result::Result<Arc<Handle>, Refusal> {
        let open = lock(&self.open);
        let handle = open.get(id).ok_or_else(|| {
            let message = format!("no files are open under {id:?}");
            Refusal::new(Kind::NotFound, "looking for open files", message).with_hint(
                "they are closed after a minute of silence, and by a server that ends: open them again",
            )
        })?;
        *lock(&handle.used) = Instant::now();
        Ok(Arc::clone(handle))
    }

    pub(crate) fn close(&self, id: &str) {
        lock(&self.open).remove(id);
    }
}

impl Handle {
    /// Whether something was to be changed before. From now on it was.
    pub(super) fn used_before(&self) -> bool {
        self.changed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn outpost(&self) -> &Outpost {
        self.files.outpost()
    }

    pub(crate) fn session(&self) -> SessionName {
        self.files.session()
    }

    pub(crate) async fn file(&self, op: FileOp) -> Result<FileReply> {
        match op {
            FileOp::Below(below) => self.below(below).await,
            op => self.outpost().file(Some(self.session()), op).await,
        }
    }

    pub(crate) async fn below(&self, below: Below) -> Result<FileReply> {
        self.outpost().below(Some(self.session()), below).await
    }
}
