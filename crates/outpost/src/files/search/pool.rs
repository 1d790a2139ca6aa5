//! Batches, helpers, and the bound on results that wait for their turn.

use super::super::failure::{quoted, reason};
use super::super::stat::{mtime_ns, size};
use super::MAX_RESULT_BYTES;
use super::content::{Finding, LINE_BYTES, Tools};
use super::plan::{Plan, Task};
use farshell_protocol::file::Found;
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Batches in the queue below which more are wanted. Between this and a full queue the walker sleeps, instead of
/// being woken for each batch.
const LOW_WATER: usize = 4;

/// Files that are searched by one thread in one go.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) files: Vec<PathBuf>,
}

/// A batch that was searched.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) searched: u64,
    pub(super) found: Vec<(PathBuf, Finding)>,
    pub(super) errors: Vec<String>,
    /// Bytes of results in it.
    held: usize,
    /// There was more than one search can give.
    pub(super) full: bool,
}

pub(super) struct Pool<'a> {
    plan: &'a Plan,
    deadline: Option<Instant>,
    state: Mutex<State>,
    /// There is a batch to search, or none will come.
    work: Condvar,
    /// A batch is done, and the helpers have little left to do.
    done: Condvar,
    /// The next batch is the one to be given, or there is room again.
    turn: Condvar,
    stop: AtomicBool,
    /// The batch whose results are given next.
    head: AtomicU64,
    /// Bytes of results that were found and not given yet.
    held: AtomicUsize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Batch>,
    /// By number.
    done: BTreeMap<u64, Done>,
    /// Batches in a helper's hands.
    busy: usize,
    closed: bool,
}

impl<'a> Pool<'a> {
    pub(super) fn new(plan: &'a Plan, deadline: Option<Instant>) -> Self {
        Self {
            plan,
            deadline,
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            turn: Condvar::new(),
            stop: AtomicBool::new(false),
            head: AtomicU64::new(0),
            held: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, batch: Batch) {
        self.state().queue.push_back(batch);
        self.work.notify_one();
    }

    /// Searches a batch on this thread.
    pub(super) fn work_off(&self, batch: Batch) {
        let number = batch.number;
        let done = self.search(&mut self.tools(), batch);
        self.state().done.insert(number, done);
    }

    /// What a helper does until the pool is closed.
    pub(super) fn help(&self) {
        let mut tools = self.tools();
        let mut state = self.state();
        loop {
            if let Some(batch) = state.queue.pop_front() {
                state.busy += 1;
                drop(state);
                let number = batch.number;
                let done = self.search(&mut tools, batch);
                state = self.state();
                state.busy -= 1;
                state.done.insert(number, done);
                if state.queue.len() <= LOW_WATER {
                    self.done.notify_one();
                }
            } else if state.closed {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// The batch of this number, if it is done.
    pub(super) fn take(&self, number: u64) -> Option<Done> {
        let mut state = self.state();
        let done = state.done.remove(&number)?;
        self.head.store(number + 1, Ordering::Relaxed);
        self.held.fetch_sub(done.held, Ordering::Relaxed);
        drop(state);
        self.turn.notify_all();
        Some(done)
    }

    /// Waits until the helpers run out of work and the batch of this number is done, but not long.
    pub(super) fn wait(&self, number: u64, at_most: Duration) {
        let state = self.state();
        if state.queue.len() > LOW_WATER || !state.done.contains_key(&number) {
            drop(self.done.wait_timeout(state, at_most));
        }
    }

    /// Ends all searching, soon.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.queue.clear();
        state.closed = true;
        drop(state);
        self.work.notify_all();
        self.turn.notify_all();
    }

    /// After [`Pool::stop`]: all that was found, in order.
    pub(super) fn drain(&self) -> Vec<Done> {
        let mut state = self.state();
        while state.busy > 0 {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut state.done).into_values().collect()
    }

    /// Stops the pool when it goes out of scope.
    pub(super) fn closer(&self) -> Closer<'_> {
        Closer(self)
    }

    fn tools(&self) -> Option<Tools> {
        match &self.plan.task {
            Task::Names => None,
            Task::Content(content) => Some(content.tools()),
        }
    }

    fn search(&self, tools: &mut Option<Tools>, batch: Batch) -> Done {
        let mut done = Done::default();
        let mut turn = Turn { pool: self, number: batch.number, held: 0, full: false };
        for path in batch.files {
            if turn.stopped() || turn.full {
                break;
            }
            done.searched += 1;
            let (finding, error) = match (&self.plan.task, tools.as_mut()) {
                (Task::Content(content), Some(tools)) => content.search(tools, &path, &mut turn),
                _ => name(&path),
            };
            done.errors.extend(error);
            if let Some(finding) = finding {
                turn.hold(path.as_os_str().len() + LINE_BYTES);
                done.found.push((path, finding));
            }
        }
        done.held = turn.held;
        done.full = turn.full;
        done
    }
}

fn name(path: &Path) -> (Option<Finding>, Option<String>) {
    match rustix::fs::lstat(path) {
        Ok(stat) => {
            let path = ByteBuf::from(path.as_os_str().as_bytes());
            (Some(Finding::File(Found { path, size: size(&stat), mtime_ns: mtime_ns(&stat) })), None)
        }
        // Removed since the directory was read.
        Err(Errno::NOENT) => (None, None),
        Err(error) => (None, Some(format!("cannot look at {}: {}", quoted(path), reason(&error.into())))),
    }
}

pub(super) struct Closer<'a>(&'a Pool<'a>);

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A batch's place in the order of results.
#[derive(Clone)]
pub(super) struct Turn<'a> {
    pool: &'a Pool<'a>,
    number: u64,
    held: usize,
    full: bool,
}

impl Turn<'_> {
    pub(super) fn stopped(&self) -> bool {
        self.pool.stop.load(Ordering::Relaxed)
            || self.pool.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Accounts for a result. Says whether to go on: a batch that alone has more than a whole search can give
    /// has enough. Where all that waits is too much, this waits as well, until some of it is given or it is
    /// this batch's turn; so the next batch in order always gets through.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        self.held += bytes;
        self.full = self.held >= MAX_RESULT_BYTES;
        if self.pool.held.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_RESULT_BYTES {
            let mut state = self.pool.state();
            while self.pool.held.load(Ordering::Relaxed) > MAX_RESULT_BYTES
                && self.pool.head.load(Ordering::Relaxed) != self.number
                && !self.stopped()
            {
                let waited = self.pool.turn.wait_timeout(state, super::LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        !self.full
    }
}
