//! The one thread that has the database, and the handle's way to it.

use crate::error::{Error, Kind, Result};
use crate::events;
use crate::open::{self, Opened};
use crate::processes;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::fs::File;
use std::path::Path;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that may wait. Whoever comes then waits before sending: memory does not grow with a slow disk.
const QUEUE: usize = 256;

type Job = Box<dyn FnOnce(&mut Database) + Send>;

enum Message {
    Do(Job),
    Close(oneshot::Sender<Result<()>>),
}

/// A handle on the server's durable state. Clones share one thread, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct Store {
    requests: mpsc::Sender<Message>,
    /// The thread has the other end, so that this one also tells when the thread is gone.
    newest: watch::Receiver<u64>,
}

/// How much is kept. Unfinished processes always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// So many finished processes, those that finished last.
    pub processes: u64,
    /// So many events, the newest.
    pub events: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { processes: 10_000, events: 100_000 }
    }
}

impl Keep {
    /// It is pruned when so many more have come: rarely, and not many at once.
    fn slack(keep: u64) -> u64 {
        keep / 100 + 1
    }
}

/// How much was let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub processes: u64,
    pub events: u64,
}

impl Store {
    /// Opens the state in `dir`, or begins it there; `dir` must exist. Gives what people should be told, too.
    ///
    /// A damaged database is moved to `state.db.corrupt-<seconds>` with its log, and a new one is begun; that is
    /// among the warnings. What is locked, may not be written, or was written by a newer release is an error, and is
    /// left as it is.
    pub async fn open(dir: &Path) -> Result<(Self, Vec<String>)> {
        Self::open_keeping(dir, Keep::default()).await
    }

    /// As [`Store::open`], with other limits.
    pub async fn open_keeping(dir: &Path, keep: Keep) -> Result<(Self, Vec<String>)> {
        let path = dir.join("state.db");
        let operation = format!("opening the server's state {}", path.display());
        let (requests, inbox) = mpsc::channel(QUEUE);
        let (answer, answered) = oneshot::channel();
        std::thread::Builder::new()
            .name("farshell-store".into())
            .spawn(move || match open::open(&path).and_then(|opened| Database::new(opened, keep)) {
                Err(error) => drop(answer.send(Err(error))),
                Ok((database, warnings)) => {
                    drop(answer.send(Ok((warnings, database.newest.subscribe()))));
                    database.serve(inbox);
                }
            })
            .map_err(|error| Error::from(error).during("starting the thread of the server's state"))?;
        let opened = answered.await.unwrap_or_else(|_| Err(Error::closed()));
        let (warnings, newest) = opened.map_err(|error| error.during(operation))?;
        Ok((Self { requests, newest }, warnings))
    }

    /// Writes everything to the database proper and ends the thread; the files are free when it returns. Requests
    /// that were sent before are carried out, later ones are refused.
    pub async fn close(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Message::Close(answer)).await.is_ok()
            && let Ok(result) = answered.await
        {
            return result;
        }
        // Somebody else has closed it; wait until that is done.
        let mut newest = self.newest.clone();
        while newest.changed().await.is_ok() {}
        Ok(())
    }

    /// Lets go of what is more than `keep`. This happens by itself, too, with the limits given at opening.
    pub async fn prune(&self, keep: Keep) -> Result<Pruned> {
        self.call("pruning the server's state", move |database| database.prune(keep)).await
    }

    /// The number of the newest event; 0 if there was none.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        *self.newest.borrow()
    }

    /// The number of the newest event, for waiting. It changes when an event can be read.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        let mut newest = self.newest.clone();
        newest.mark_unchanged();
        newest
    }

    /// Has the thread do something.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |database| drop(answer.send(work(database))));
        let answer = match self.requests.send(Message::Do(job)).await {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(Error::closed())),
            Err(_) => Err(Error::closed()),
        };
        answer.map_err(|error| error.during(operation))
    }
}

/// What the thread has.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    keep: Keep,
    /// Added since it was last pruned.
    added: Added,
    newest: watch::Sender<u64>,
    /// Given back when all else is closed.
    lock: File,
}

#[derive(Clone, Copy, Debug, Default)]
struct Added {
    processes: u64,
    events: u64,
}

/// A transaction that is under way.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) transaction: Transaction<'a>,
    /// The number of the last event that was added.
    pub(crate) newest: Option<u64>,
    added: Added,
}

impl Write<'_> {
    pub(crate) fn added_event(&mut self, seq: u64) {
        self.newest = Some(seq);
        self.added.events += 1;
    }

    pub(crate) fn finished_process(&mut self) {
        self.added.processes += 1;
    }
}

impl Database {
    fn new(opened: Opened, keep: Keep) -> Result<(Self, Vec<String>)> {
        let Opened { connection, lock, warnings, numbers_lost } = opened;
        let added = Added::default();
        let mut database = Self { connection, keep, added, newest: watch::Sender::new(0), lock };
        if let Some(above) = numbers_lost {
            database.write(|write| events::skip_numbers(&write.transaction, above))?;
        }
        database.newest.send_replace(events::last(&database.connection)?);
        // Limits may be smaller than last time. Without room it works as well.
        match database.prune(keep) {
            Err(error) if error.kind != Kind::Full => return Err(error),
            _ => {}
        }
        open::tidy_at_close(&database.connection, true)?;
        Ok((database, warnings))
    }

    fn serve(mut self, mut inbox: mpsc::Receiver<Message>) {
        while let Some(message) = inbox.blocking_recv() {
            match message {
                Message::Do(job) => {
                    job(&mut self);
                    self.tidy();
                }
                Message::Close(answer) => {
                    inbox.close();
                    let (newest, result) = self.end();
                    drop(answer.send(result));
                    // Dropping the requests that came later refuses them.
                    drop(inbox);
                    drop(newest);
                    return;
                }
            }
        }
        // Nobody is left to tell.
        drop(self.end());
    }

    /// Closing moves the log into the database. If it can't, the log stays and is read the next time.
    fn end(self) -> (watch::Sender<u64>, Result<()>) {
        let Self { connection, newest, lock, .. } = self;
        let result = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
            .and_then(|()| connection.close().map_err(|(_, error)| error))
            .map_err(|error| Error::from(error).during("closing the server's state"));
        drop(lock);
        (newest, result)
    }

    pub(crate) fn read(&self) -> &Connection {
        &self.connection
    }

    /// One transaction: all that `work` does, or nothing.
    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&mut Write<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut write = Write { transaction, newest: None, added: Added::default() };
        let done = work(&mut write)?;
        let Write { transaction, newest, added } = write;
        transaction.commit()?;
        self.added.processes += added.processes;
        self.added.events += added.events;
        if let Some(seq) = newest {
            self.newest.send_replace(seq);
        }
        Ok(done)
    }

    fn tidy(&mut self) {
        if self.added.events >= Keep::slack(self.keep.events)
            || self.added.processes >= Keep::slack(self.keep.processes)
        {
            // If it fails, the next one tries again.
            drop(self.prune(self.keep));
        }
    }

    fn prune(&mut self, keep: Keep) -> Result<Pruned> {
        let pruned = self.write(|write| {
            Ok(Pruned {
                processes: processes::prune(&write.transaction, keep.processes)?,
                events: events::prune(&write.transaction, keep.events)?,
            })
        })?;
        self.added = Added::default();
        Ok(pruned)
    }
}
