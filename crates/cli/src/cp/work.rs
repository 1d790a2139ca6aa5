//! The copy itself: a stack of what is still to be looked at, and workers that take from it.
//!
//! Many of them work at once, so that a tree of small files does not cost a round trip for each. The stack is worked
//! off from its top, so that it holds what is left of the directories on one way down and not the whole tree. A
//! directory gets its mode and time when all that is in it is done.

use super::file::{copy_file, same_file};
use super::operand::join;
use super::side::{Result, Side, error};
use super::tally::{Tally, add};
use farshell_api::ApiError;
use farshell_api::file::{FileEntry, FileKind};
use farshell_beneath::{is_ours, part_name};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Files and directories that are worked on at once. An outpost serves twice as many, and others ask it, too.
const WORKERS: usize = 32;
/// Longest path: one that goes on for ever has to end somewhere.
const LONGEST: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) checksum: bool,
    pub(super) delete: bool,
}

/// From where to where.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) from: Side,
    pub(super) to: Side,
}

/// One thing to do.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) pair: Arc<Pair>,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    /// Absent if the target is to be removed.
    pub(super) source: Option<FileEntry>,
    pub(super) target: Option<FileEntry>,
    /// What an earlier attempt left beside the target.
    pub(super) part: Option<u64>,
    pub(super) parent: Option<Arc<Dir>>,
}

/// A directory whose entries are being copied.
#[derive(Debug)]
pub(super) struct Dir {
    pair: Arc<Pair>,
    to: Vec<u8>,
    source: FileEntry,
    target: Option<FileEntry>,
    /// Entries that are not done.
    left: AtomicUsize,
    /// Something in it was made, replaced or removed.
    changed: AtomicBool,
    parent: Option<Arc<Dir>>,
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) options: Options,
    pub(super) tally: Tally,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    stack: Vec<Item>,
    busy: usize,
    /// Nothing can be reached any more.
    lost: Option<ApiError>,
}

impl Work {
    pub(super) fn new(options: Options, items: Vec<Item>) -> Arc<Self> {
        let state = Mutex::new(State { stack: items, busy: 0, lost: None });
        Arc::new(Self { options, tally: Tally::default(), state, news: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does everything. What could not be copied is in the tally.
    ///
    /// # Errors
    /// A side can't be reached any more, though it was tried for long.
    pub(super) async fn run(self: &Arc<Self>) -> Result<()> {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let work = Arc::clone(self);
                tokio::spawn(async move { work.worker().await })
            })
            .collect();
        for worker in workers {
            worker.await.map_err(|e| error("system", "copying", e.to_string()))?;
        }
        match self.lock().lost.take() {
            Some(lost) => Err(lost),
            None => Ok(()),
        }
    }

    async fn worker(&self) {
        loop {
            let news = self.news.notified();
            let mut news = std::pin::pin!(news);
            // Before the look, so that what happens in between is not missed.
            news.as_mut().enable();
            let item = {
                let mut state = self.lock();
                if state.lost.is_some() || (state.stack.is_empty() && state.busy == 0) {
                    self.news.notify_waiters();
                    return;
                }
                let item = state.stack.pop();
                state.busy += usize::from(item.is_some());
                item
            };
            match item {
                Some(item) => {
                    self.one(item).await;
                    self.lock().busy -= 1;
                    self.news.notify_waiters();
                }
                None => news.await,
            }
        }
    }

    async fn one(&self, item: Item) {
        let parent = item.parent.clone();
        let shown = match &item.source {
            Some(_) => item.pair.from.show(&item.from),
            None => item.pair.to.show(&item.to),
        };
        match self.dispatch(item).await {
            Ok(false) => {}
            Ok(true) => {
                if let Some(parent) = &parent {
                    parent.changed.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => self.fail(shown, error),
        }
        self.done(parent).await;
    }

    fn fail(&self, shown: String, error: ApiError) {
        if super::file::is_passing(&error) {
            // It was tried again and again: so it would be with every other file.
            self.lock().lost.get_or_insert(error);
        } else {
            self.tally.fail(shown, error);
        }
    }

    /// An entry of a directory is done, and perhaps the directory with it, and so on.
    async fn done(&self, mut dir: Option<Arc<Dir>>) {
        while let Some(done) = dir.take() {
            if done.left.fetch_sub(1, Ordering::AcqRel) > 1 {
                return;
            }
            let same = done.target.as_ref().is_some_and(|target| {
                target.mode & 0o1777 == done.source.mode & 0o1777 && target.mtime_ns == done.source.mtime_ns
            });
            if !same || done.changed.load(Ordering::Relaxed) {
                let (mode, time) = (done.source.mode, done.source.mtime_ns);
                let set = super::file::persist(|| done.pair.to.set(&done.to, mode, time)).await;
                // What was named as the target may be somebody else's: `/tmp`, say.
                let theirs = |error: &ApiError| done.to.is_empty() && error.kind == "permission_denied";
                if let Err(error) = set
                    && !theirs(&error)
                {
                    self.fail(done.pair.to.show(&done.to), error);
                }
            }
            dir = done.parent.clone();
        }
    }

    /// Says whether the entries of the directory around it have changed.
    async fn dispatch(&self, item: Item) -> Result<bool> {
        let Some(source) = &item.source else {
            super::file::persist(|| item.pair.to.remove(&item.to)).await?;
            add(&self.tally.deleted, 1);
            return Ok(true);
        };
        match source.kind {
            FileKind::Dir => self.dir(item).await,
            FileKind::File => {
                add(&self.tally.known_files, 1);
                add(&self.tally.known_bytes, source.size);
                if same_file(self, &item, source).await? {
                    add(&self.tally.unchanged, 1);
                    add(&self.tally.done_bytes, source.size);
                    return Ok(false);
                }
                self.make_way(&item, source).await?;
                copy_file(self, &item, source).await?;
                add(&self.tally.files, 1);
                Ok(true)
            }
            FileKind::Symlink => {
                add(&self.tally.known_files, 1);
                let Some(link) = &source.link else {
                    return Err(error("stale", "reading the link", "it changed while it was copied"));
                };
                let same =
                    |target: &FileEntry| target.kind == FileKind::Symlink && target.link == source.link;
                if item.target.as_ref().is_some_and(same) {
                    add(&self.tally.unchanged, 1);
                    return Ok(false);
                }
                self.make_way(&item, source).await?;
                let (to, time) = (&item.pair.to, source.mtime_ns);
                super::file::persist(|| to.link(&item.to, &link.0, time)).await?;
                add(&self.tally.files, 1);
                Ok(true)
            }
            other => {
                add(&self.tally.skipped, 1);
                let what = match other {
                    FileKind::Fifo => "a named pipe",
                    FileKind::Socket => "a socket",
                    FileKind::CharDevice | FileKind::BlockDevice => "a device",
                    _ => "nothing that can be copied",
                };
                let shown = item.pair.from.show(&item.from);
                crate::output::tell(&format!("farshell: {shown} is {what} and left out\n"));
                Ok(false)
            }
        }
    }

    /// A directory and something else never replace each other, unless it was asked for.
    async fn make_way(&self, item: &Item, source: &FileEntry) -> Result<()> {
        let Some(target) = &item.target else { return Ok(()) };
        if (source.kind == FileKind::Dir) == (target.kind == FileKind::Dir) {
            return Ok(());
        }
        if self.options.delete && !item.to.is_empty() {
            return super::file::persist(|| item.pair.to.remove(&item.to)).await;
        }
        let what = match target.kind {
            FileKind::Dir => "a directory",
            FileKind::Symlink => "a symbolic link",
            _ => "something that is no directory",
        };
        let message = format!("{what} is in the way at {}", item.pair.to.show(&item.to));
        let mut failed = error("already_exists", "copying", message);
        failed.hint = Some("remove it, or let --delete do so".into());
        Err(failed)
    }

    async fn dir(&self, item: Item) -> Result<bool> {
        let Item { pair, from, to, source: Some(source), target, parent, .. } = &item else {
            return Ok(false);
        };
        self.make_way(&item, source).await?;
        let there = target.as_ref().is_some_and(|target| target.kind == FileKind::Dir);
        if !there && !to.is_empty() {
            super::file::persist(|| pair.to.make_dir(to)).await?;
        }
        let sources = super::file::persist(|| pair.from.list(from)).await?;
        let mut targets = HashMap::new();
        if there {
            for entry in super::file::persist(|| pair.to.list(to)).await? {
                targets.insert(entry.name.0.clone(), entry);
            }
        }
        let dir = Arc::new(Dir {
            pair: Arc::clone(pair),
            to: to.clone(),
            source: source.clone(),
            target: target.clone().filter(|_| there),
            // One for those that are still being put on the stack.
            left: AtomicUsize::new(1),
            changed: AtomicBool::new(false),
            parent: parent.clone(),
        });
        if let Some(parent) = parent {
            parent.left.fetch_add(1, Ordering::AcqRel);
        }
        let mut items = Vec::new();
        for entry in sources {
            let name = entry.name.0.clone();
            // Unfinished files of ours are nobody's data.
            if is_ours(&name) {
                continue;
            }
            if !is_name(&name) || to.len() + name.len() >= LONGEST {
                let shown = format!("{}/{}", pair.from.show(from), String::from_utf8_lossy(&name));
                let message = "this is no name, or the path to it is too long";
                self.tally.fail(crate::output::plain(&shown), error("invalid", "copying", message));
                continue;
            }
            let target = targets.remove(&name);
            let part = targets.remove(part_name(&name).as_bytes()).map(|part| part.size);
            items.push(Item {
                pair: Arc::clone(pair),
                from: join(from, &name),
                to: join(to, &name),
                source: Some(entry),
                target,
                part,
                parent: Some(Arc::clone(&dir)),
            });
        }
        if self.options.delete {
            items.extend(targets.into_values().map(|entry| Item {
                pair: Arc::clone(pair),
                from: Vec::new(),
                to: join(to, &entry.name.0),
                source: None,
                target: Some(entry),
                part: None,
                parent: Some(Arc::clone(&dir)),
            }));
        }
        dir.left.fetch_add(items.len(), Ordering::AcqRel);
        // The first one by name is on top.
        items.reverse();
        self.lock().stack.extend(items);
        self.news.notify_waiters();
        self.done(Some(dir)).await;
        Ok(!there)
    }
}

/// The other side may say anything.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
