//! Changes in several files: decided in memory first, then written, and taken back if one of them can't be.

use crate::failure::Failure;
use crate::files::content::{Content, is_binary};
use crate::files::write::{MOST, check_kind};
use crate::files::{Located, Room};
use farshell_engine::Kind;
use farshell_protocol::file::Stat;

/// Files of one patch: so many are held in memory at once.
const MOST_FILES: usize = 200;

/// A file of the patch.
#[derive(Debug)]
struct Entry {
    at: Located,
    /// What it was, and its bytes.
    old: Option<(Content, Vec<u8>)>,
    /// What it is to be.
    new: Option<String>,
    /// The manner of writing it, if it comes from another file.
    manner: Option<(Content, u32)>,
}

impl Entry {
    fn old_text(&self) -> Option<&str> {
        self.old.as_ref().map(|(content, _)| content.text.as_str())
    }

    fn changes(&self) -> bool {
        self.old_text() != self.new.as_deref()
    }

    /// Its new bytes.
    fn bytes(&self) -> Option<Vec<u8>> {
        let new = self.new.as_deref()?;
        let moved = self.manner.as_ref().map(|(content, _)| content);
        let manner = moved.or(self.old.as_ref().map(|(content, _)| content));
        Some(manner.map_or_else(|| new.as_bytes().to_vec(), |manner| manner.encode(new)))
    }
}

#[derive(Debug)]
pub(super) struct Stage<'r> {
    room: &'r Room<'r>,
    entries: Vec<Entry>,
}

/// A step that was done, and how to undo it.
enum Step {
    Made(Stat),
    Changed(Stat),
    Removed,
}

impl<'r> Stage<'r> {
    pub(super) fn new(room: &'r Room<'r>) -> Self {
        Self { room, entries: Vec::new() }
    }

    /// Takes a file into the patch, as it is now. One that is in it already is as the patch has made it.
    pub(super) async fn take(&mut self, path: &str) -> Result<usize, Failure> {
        let room = self.room;
        let at = room.locate_to_write(path).await?;
        if let Some(known) = self.entries.iter().position(|entry| entry.at.real == at.real) {
            return Ok(known);
        }
        if self.entries.len() >= MOST_FILES {
            return Err(Failure::invalid(format!("more than {MOST_FILES} files in one patch")));
        }
        check_kind(&at)?;
        let mut at = at;
        let old = match at.stat.is_some() {
            false => None,
            true => {
                // What it shows in a diff must be fit to be shown.
                if let Some(why) = room.shield.refuses_read(&at.real()) {
                    return Err(super::super::room::refused(&format!("{} is not shown: {why}", at.path)));
                }
                let (bytes, version) = room.read(&at, MOST).await?;
                if let Some(stat) = &mut at.stat {
                    stat.version = version;
                }
                if is_binary(&bytes) {
                    return Err(Failure::invalid(format!("{} is a binary file", at.path)));
                }
                Some((Content::decode(&bytes), bytes))
            }
        };
        let new = old.as_ref().map(|(content, _)| content.text.clone());
        self.entries.push(Entry { at, old, new, manner: None });
        Ok(self.entries.len() - 1)
    }

    /// The text of a file, as the patch has made it so far.
    pub(super) fn text(&self, n: usize) -> Result<&str, Failure> {
        let entry = &self.entries[n];
        entry.new.as_deref().ok_or_else(|| {
            let message = format!("there is no file {}; nothing was changed", entry.at.path);
            Failure::new(Kind::NotFound, message)
        })
    }

    pub(super) fn exists(&self, n: usize) -> bool {
        self.entries[n].new.is_some()
    }

    pub(super) fn put(&mut self, n: usize, text: Option<String>) {
        self.entries[n].new = text;
    }

    /// Gives a file another name.
    pub(super) fn rename(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        if from == to {
            return Ok(());
        }
        if self.exists(to) {
            let message = format!("{} is there already; nothing was changed", self.entries[to].at.path);
            return Err(Failure::new(Kind::AlreadyExists, message));
        }
        let source = &mut self.entries[from];
        let text = source.new.take();
        let mode = source.at.stat.as_ref().map(|stat| stat.mode);
        let own = source.old.as_ref().map(|(content, _)| content.clone()).zip(mode);
        let manner = source.manner.take().or(own);
        let target = &mut self.entries[to];
        target.new = text;
        target.manner = manner;
        Ok(())
    }

    fn paths(&self, which: impl Fn(&Entry) -> bool) -> Vec<String> {
        self.entries.iter().filter(|entry| which(entry)).map(|entry| entry.at.path.clone()).collect()
    }

    pub(super) fn changed(&self) -> Vec<String> {
        self.paths(Entry::changes)
    }

    pub(super) fn created(&self) -> Vec<String> {
        self.paths(|entry| entry.old.is_none() && entry.new.is_some())
    }

    pub(super) fn modified(&self) -> Vec<String> {
        self.paths(|entry| entry.old.is_some() && entry.new.is_some() && entry.changes())
    }

    pub(super) fn deleted(&self) -> Vec<String> {
        self.paths(|entry| entry.old.is_some() && entry.new.is_none())
    }

    /// Those that are not what this task has last seen.
    pub(super) fn stale(&self) -> Vec<String> {
        self.paths(|entry| {
            let seen = self.room.tools.seen.get(&self.room.key(&entry.at));
            entry.changes() && seen.is_some_and(|seen| Some(seen) != entry.at.version())
        })
    }

    /// Path, old text and new text of what changes.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, Option<&str>, Option<&str>)> {
        let changing = self.entries.iter().filter(|entry| entry.changes());
        changing.map(|entry| (entry.at.path.as_str(), entry.old_text(), entry.new.as_deref()))
    }

    /// Writes everything. New content comes before what is removed, so that nothing is nowhere.
    pub(super) async fn apply(self) -> Result<(), Failure> {
        let room = self.room;
        let mut order: Vec<&Entry> = self.entries.iter().filter(|entry| entry.changes()).collect();
        order.sort_by_key(|entry| entry.new.is_none());
        let mut done: Vec<(&Entry, Step)> = Vec::new();
        for entry in order {
            match step(room, entry).await {
                Ok(step) => done.push((entry, step)),
                Err(failure) => return Err(taken_back(room, done, entry, failure).await),
            }
        }
        Ok(())
    }
}

async fn step(room: &Room<'_>, entry: &Entry) -> Result<Step, Failure> {
    match (entry.bytes(), &entry.old) {
        (Some(bytes), old) => {
            let mode = entry.manner.as_ref().map(|(_, mode)| *mode);
            let stat = room.write(&entry.at, &bytes, mode).await?;
            Ok(if old.is_some() { Step::Changed(stat) } else { Step::Made(stat) })
        }
        (None, _) => {
            let now = room.locate(&entry.at.path).await?;
            if now.version() != entry.at.version() {
                let message = format!(
                    "{} was changed by somebody else at this moment: it was not removed",
                    entry.at.path
                );
                return Err(Failure::new(Kind::Stale, message));
            }
            room.remove(&entry.at).await?;
            Ok(Step::Removed)
        }
    }
}

/// Undoes what was done, and says what is on disk.
async fn taken_back(room: &Room<'_>, done: Vec<(&Entry, Step)>, at: &Entry, failure: Failure) -> Failure {
    let mut left = Vec::new();
    for (entry, step) in done.into_iter().rev() {
        let mode = entry.at.stat.as_ref().map(|stat| stat.mode);
        let undone = match (step, &entry.old) {
            (Step::Made(stat), _) => {
                let now = room.locate(&entry.at.path).await;
                match now {
                    Ok(now) if now.version() == Some(stat.version) => room.remove(&entry.at).await,
                    Ok(_) => Err(Failure::new(Kind::Stale, "it was changed by somebody else")),
                    Err(failure) => Err(failure),
                }
            }
            (Step::Changed(stat), Some((_, bytes))) => {
                let now = Located { stat: Some(stat), ..entry.at.clone() };
                room.write(&now, bytes, mode).await.map(drop)
            }
            (Step::Removed, Some((_, bytes))) => {
                let now = Located { stat: None, ..entry.at.clone() };
                room.write(&now, bytes, mode).await.map(drop)
            }
            (Step::Changed(_) | Step::Removed, None) => Ok(()),
        };
        if let Err(why) = undone {
            left.push(format!("{} has its new state ({})", entry.at.path, why.error));
        }
    }
    let state = match left.is_empty() {
        true => "all other files are as they were".to_owned(),
        false => format!("what could not be taken back: {}", left.join("; ")),
    };
    let mut failure = failure;
    failure.error = format!("{}: {}. The patch was taken back: {state}", at.at.path, failure.error);
    failure
}
