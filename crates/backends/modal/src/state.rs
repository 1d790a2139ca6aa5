//! What is known of a task's sandbox, in a file of its own: Hermes' record of snapshots stays as Hermes writes it.
//!
//! The file is written under the task's lock, before anything is made from a snapshot and after everything that was. Of a
//! sandbox that it does not name yet, whoever made it died at once: if it runs, it is found by its name, and named here before
//! anybody uses it; if it has ended, nobody has ever used it.

use crate::snapshots::replace;
use crate::tags::Keeps;
use farshell_engine::backend::TaskName;
use farshell_engine::lock::Lock;
use farshell_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a home has them; that there is such a directory says that the home has used Modal.
pub(crate) const DIR: &str = "run/modal";
/// Somebody else may take a snapshot of many gigabytes, or build an image.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The last sandbox that was made.
    pub(crate) sandbox: Option<String>,
    /// When it was made, in seconds since 1970.
    pub(crate) since: u64,
    /// The snapshot from which it was made.
    pub(crate) base: Option<String>,
    /// The snapshot that has everything of it. It is ended as soon as there is one, and nobody begins anything in it any
    /// more. If it could not be ended, what runs in it runs on, and what Modal saves at its end counts.
    pub(crate) saved: Option<String>,
    /// Who took that.
    pub(crate) taken: Taken,
    /// The last snapshot from which a sandbox came up: it is kept until one came up from a newer one.
    pub(crate) proven: Option<String>,
    /// All of it is to go: whoever finds this finishes that.
    pub(crate) removing: bool,
    /// What it was made from.
    pub(crate) spec: String,
    pub(crate) keeps: Keeps,
    /// Snapshots that were taken of this task's sandboxes, by us or for us, and are not known to be deleted. No others are
    /// ever deleted.
    pub(crate) ours: Vec<String>,
    /// Under this name a snapshot is being taken: whoever finds it there asks under that name once more, and deletes it.
    pub(crate) taking: Option<String>,
    /// The image from which the sandbox was made, if it was none of the task's snapshots.
    pub(crate) image: Option<String>,
    /// Modal's workspace in which all of this is. Another one knows nothing of it, and that means nothing.
    pub(crate) workspace: String,
}

/// Who took a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Taken {
    /// Farshell: it never expires.
    #[default]
    ByUs,
    /// Modal, when the sandbox ended otherwise.
    AtItsEnd,
}

/// How long Modal keeps what it took when a sandbox ended, as far as is known.
const KEPT: u64 = 30 * DAY;
/// A sandbox lives for a day at most.
const DAY: u64 = 86_400;

impl State {
    /// What is to be known of what was kept of a sandbox that is put away, for people.
    pub(crate) fn keepsake(&self, now: u64) -> Option<String> {
        if self.saved.is_none() || self.taken == Taken::ByUs {
            return None;
        }
        // Not when it ended, which nobody has noted, but a moment that is at most a day before.
        let from = if self.since > 0 { self.since } else { now.saturating_sub(DAY) };
        Some(format!(
            "its files are in a snapshot that Modal took when the sandbox ended, and keeps until {} or a day later, as far as is known: run a command in it before, and Farshell takes one that does not expire when it puts it away",
            date(from + KEPT)
        ))
    }

    /// There is nothing of the task: it could not be made.
    pub(crate) fn is_empty(&self) -> bool {
        let none = self.sandbox.is_none() && self.base.is_none() && self.saved.is_none();
        none && self.ours.is_empty() && !self.removing
    }

    /// The last snapshot that we know to have all files of the task.
    pub(crate) fn last(&self) -> Option<&String> {
        self.saved.as_ref().or(self.base.as_ref()).filter(|id| self.ours.contains(id))
    }

    /// Its sandbox came up. True if it is the first from what it was made from.
    pub(crate) fn prove(&mut self) -> bool {
        // Of one that was saved it is not known any more what it was made from.
        let news = self.saved.is_none() && self.base.is_some() && self.proven != self.base;
        if news {
            self.proven.clone_from(&self.base);
        }
        news
    }

    /// Another snapshot than the last one, from which a sandbox came up.
    pub(crate) fn before(&self) -> Option<&String> {
        self.proven.as_ref().filter(|id| self.ours.contains(id) && self.last() != Some(id))
    }

    pub(crate) fn owns(&mut self, image: &str) {
        if !self.ours.iter().any(|known| known == image) {
            self.ours.push(image.to_owned());
        }
    }

    /// Whether it needs this image.
    pub(crate) fn uses(&self, image: &str) -> bool {
        [&self.base, &self.saved, &self.proven, &self.image].into_iter().flatten().any(|used| used == image)
    }
}

/// The day of a second since 1970.
fn date(seconds: u64) -> String {
    // Years are counted from March, so that the odd day comes last.
    let days = seconds / DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The file of a task.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(crate) fn of(home: &Path) -> Self {
        Self { dir: home.join(DIR) }
    }

    pub(crate) fn path(&self, task: &TaskName) -> PathBuf {
        self.dir.join(format!("{}.json", task.as_str()))
    }

    /// Whoever makes, ends or puts away a task's sandbox is alone with it.
    pub(crate) async fn lock(&self, task: &TaskName) -> Result<Lock> {
        Lock::take(&self.dir.join(format!(".{}.lock", task.as_str())), PATIENCE, || ()).await
    }

    /// The same, if nobody else has it now.
    pub(crate) async fn try_lock(&self, task: &TaskName) -> Option<Lock> {
        let path = self.dir.join(format!(".{}.lock", task.as_str()));
        Lock::take(&path, Duration::ZERO, || ()).await.ok()
    }

    pub(crate) fn get(&self, task: &TaskName) -> Result<Option<State>> {
        let path = self.path(task);
        let what = || format!("reading {}", path.display());
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|_| {
                Error::new(Kind::Invalid, what(), "it is damaged").with_hint(
                    "it names the task's sandbox; remove it, and a sandbox that runs is found by its name",
                )
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(what(), error)),
        }
    }

    pub(crate) fn put(&self, task: &TaskName, state: &State) -> Result<()> {
        replace(&self.path(task), serde_json::to_string(state).unwrap_or_default().as_bytes())
    }

    pub(crate) fn remove(&self, task: &TaskName) -> Result<()> {
        match std::fs::remove_file(self.path(task)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("removing {}", self.path(task).display()), error))
            }
            _ => Ok(()),
        }
    }

    /// All tasks that have one.
    pub(crate) fn tasks(&self) -> Vec<TaskName> {
        let names = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut all: Vec<TaskName> = names
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                TaskName::new(name.strip_suffix(".json")?).ok()
            })
            .collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_modal_took_has_a_date() {
        // The last second of a February of 29 days, less the time that it is kept.
        let mut state = State { since: 1_709_251_199 - KEPT, ..State::default() };
        assert_eq!(state.keepsake(0), None);
        state.saved = Some("im-1".into());
        assert_eq!(state.keepsake(0), None, "of our own");
        state.taken = Taken::AtItsEnd;
        assert!(state.keepsake(0).unwrap().contains("until 2024-02-29 or a day later"));
        state.since = 0;
        assert!(state.keepsake(1_709_251_200 - KEPT + DAY).unwrap().contains("until 2024-03-01 "));
    }
}
