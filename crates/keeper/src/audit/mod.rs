//! The audit log: what was asked for, what was decided and by whom, and what became of it.
//!
//! It is a directory of files of JSON lines, to which one server at a time adds, one `write` for each line and no
//! more: that is all that a command pays for it. A command's line is there before the command begins.
//!
//! Each line carries a hash over itself and over the hash of the line before (`file`), so a line that was changed,
//! taken out or put in shows (`verify`). That is a seal against accidents and against somebody in a hurry; who may
//! write the whole directory can write another log.

mod file;
mod verify;

use crate::{Inner, api_error, now, request};
use farshell_api::approval::Subject;
use farshell_api::audit::{AuditLine, AuditList, AuditOutcome, AuditQuery, AuditReport, Step};
use farshell_api::process::{Process, ProcessState};
use farshell_engine::{Error, Kind, Result};
use file::Log;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Lines of one answer, if nothing is said, and at most.
const SOME: u32 = 1000;
const MOST: u32 = 10_000;
/// The longest wait for one.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Audit {
    dir: PathBuf,
    log: Mutex<Log>,
    last: watch::Sender<u64>,
    /// The server ends. What has not ended by now is found again by the next one.
    closed: AtomicBool,
}

/// A line of which only what it tells is known.
pub(crate) fn line(step: Step) -> AuditLine {
    AuditLine {
        seq: 0,
        at: now(),
        step,
        kind: None,
        surface: None,
        client: None,
        task: None,
        session: None,
        environment: None,
        place: None,
        process_id: None,
        approval: None,
        command: None,
        command_sha256: None,
        level: None,
        rules: Vec::new(),
        decision: None,
        decided_by: None,
        reason: None,
        outcome: None,
        bytes: None,
        lost: None,
        follows: None,
        chain: String::new(),
    }
}

impl Audit {
    /// Goes on where the last server stopped. What can't be written is said by [`Audit::warning`], and tried again.
    pub(crate) fn open(dir: &Path) -> Self {
        let mut log = Log::open(dir);
        // A log that can't be written now is perhaps written later.
        let _ = log.write(line(Step::Opened));
        let last = watch::Sender::new(log.last());
        Self { dir: dir.to_owned(), log: Mutex::new(log), last, closed: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. Whoever waits for lines is told.
    ///
    /// # Errors
    /// It could not be written. How many were lost is in the log as soon as something can be.
    pub(crate) fn write(&self, line: AuditLine) -> Result<()> {
        let mut log = self.lock();
        let written = log.write(line);
        let last = log.last();
        drop(log);
        self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
        written.map_err(|error| {
            Error::io(format!("writing the audit log in {}", self.dir.display()), error)
                .with_hint("make room on its disk, or make the directory writable again")
        })
    }

    /// Ends are not recorded any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// What a person should know about the log.
    pub(crate) fn warning(&self) -> Option<String> {
        let log = self.lock();
        let why = log.trouble()?;
        Some(format!(
            "the audit log in {} can't be written: {why}; {} lines are missing so far",
            self.dir.display(),
            log.lost()
        ))
    }

    pub(crate) async fn read(&self, query: AuditQuery) -> Result<AuditList> {
        let limit = query.limit.unwrap_or(SOME).clamp(1, MOST);
        let wait = request::pause("wait", query.wait, Duration::ZERO, LONGEST)?;
        let deadline = Instant::now() + wait;
        let mut newest = self.last.subscribe();
        loop {
            let last = *newest.borrow_and_update();
            let (dir, asked) = (self.dir.clone(), query.clone());
            let lines = blocking(move || file::read(&dir, &asked, limit)).await?;
            if !lines.is_empty() || Instant::now() >= deadline {
                return Ok(AuditList { lines, last });
            }
            match tokio::time::timeout_at(deadline, newest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(AuditList { lines, last }),
            }
        }
    }

    /// Reads everything, and says whether it is what was written.
    pub(crate) async fn verify(&self) -> Result<AuditReport> {
        let dir = self.dir.clone();
        blocking(move || verify::verify(&dir)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let what = "reading the audit log";
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Error::io(what, error)),
        Err(error) => Err(Error::new(Kind::System, what, error.to_string())),
    }
}

/// What became of a process.
pub(crate) fn outcome(process: &Process) -> AuditOutcome {
    let state = match process.state {
        ProcessState::NotStarted => "not_started",
        ProcessState::Ended => "ended",
        _ => "lost",
    };
    AuditOutcome {
        state: state.into(),
        exit_code: process.exit_code,
        signal: process.signal,
        timed_out: process.timed_out,
        killed: process.killed,
        error: process.note.clone().filter(|_| process.state != ProcessState::Ended),
    }
}

/// What became of a command about which an error says all there is to say.
pub(crate) fn failure(error: &Error) -> AuditOutcome {
    AuditOutcome::of_error(&api_error(error))
}

/// A command that was let through. If nobody says what became of it, that is what is recorded.
#[derive(Debug)]
pub(crate) struct Audited(Option<Box<(Arc<Audit>, AuditLine)>>);

impl Audited {
    /// `line` says of whom the end will tell.
    pub(crate) fn new(audit: Arc<Audit>, line: AuditLine) -> Self {
        Self(Some(Box::new((audit, line))))
    }

    /// Nothing was let through here: somebody else records it.
    pub(crate) fn elsewhere() -> Self {
        Self(None)
    }

    /// Its end is recorded by somebody else.
    pub(crate) fn hand_over(mut self) {
        self.0 = None;
    }

    pub(crate) fn ended(mut self, outcome: AuditOutcome, place: Option<farshell_api::run::Place>) {
        if let Some(told) = self.0.take() {
            let (audit, mut line) = *told;
            if audit.closed.load(Ordering::SeqCst) {
                return;
            }
            line.place = place;
            line.outcome = Some(outcome);
            line.at = now();
            // It has ended all the same; that the line is missing is said in the log.
            let _ = audit.write(line);
        }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if self.0.is_some() {
            let outcome = AuditOutcome { state: "not_started".into(), ..AuditOutcome::default() };
            Self(self.0.take()).ended(outcome, None);
        }
    }
}

impl Inner {
    /// A process that was let through before, perhaps by an earlier server.
    pub(crate) fn audited_before(&self, process: &Process) -> Audited {
        let line = AuditLine {
            kind: Some(Subject::Command),
            task: Some(process.task.clone()),
            session: process.session.clone(),
            environment: Some(process.environment.clone()),
            process_id: Some(process.id.clone()),
            ..line(Step::Ended)
        };
        Audited::new(Arc::clone(&self.gate.audit), line)
    }

    /// The end of a background process.
    pub(crate) fn audit_end(&self, process: &Process) {
        self.audited_before(process).ended(outcome(process), Some(process.place.clone()));
    }
}
