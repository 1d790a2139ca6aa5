//! `modal_snapshots.json` of Hermes' home: which snapshot a task goes on from. Hermes reads and writes it too.
//!
//! ```json
//! { "direct:default": "im-0123" }
//! ```
//! Older releases wrote the task's bare name; such an entry is read, and moves to the new name when it is written.

use farshell_engine::backend::TaskName;
use farshell_engine::lock::Lock;
use farshell_engine::random::hex;
use farshell_engine::{Error, Kind, Result};
use serde_json::{Map, Value};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

const NAME: &str = "modal_snapshots.json";
const LOCK: &str = ".modal_snapshots.lock";
/// Somebody else writes a small file.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long somebody may take who writes it in place.
const TORN: Duration = Duration::from_secs(1);

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    path: PathBuf,
}

fn key(task: &TaskName) -> String {
    format!("direct:{}", task.as_str())
}

impl Snapshots {
    pub(crate) fn of(hermes_home: &Path) -> Self {
        Self { path: hermes_home.join(NAME) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it. One that is damaged is an error: to begin anew would lose what it says. Hermes writes it in place, so
    /// whoever looks meanwhile finds it empty, or a part of it: that is looked at again.
    async fn read(&self) -> Result<Map<String, Value>> {
        let what = || format!("reading {}", self.path.display());
        let deadline = Instant::now() + TORN;
        loop {
            let text = match std::fs::read_to_string(&self.path) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
                Err(error) => return Err(Error::io(what(), error)),
            };
            if let Ok(all) = serde_json::from_str(&text) {
                return Ok(all);
            }
            if Instant::now() < deadline {
                tokio::time::sleep(TORN / 20).await;
                continue;
            }
            if text.trim().is_empty() {
                return Ok(Map::new());
            }
            return Err(Error::new(Kind::Invalid, what(), "it is damaged").with_hint(
                "it says which snapshot each task goes on from, as in {\"direct:default\": \"im-…\"}: mend it, or remove it to begin anew",
            ));
        }
    }

    /// Whether any other task goes on from this snapshot.
    pub(crate) async fn of_others(&self, task: &TaskName, image: &str) -> Result<bool> {
        let own = [key(task), task.as_str().to_owned()];
        Ok(self.read().await?.iter().any(|(name, id)| !own.contains(name) && id.as_str() == Some(image)))
    }

    /// The snapshot of a task.
    pub(crate) async fn get(&self, task: &TaskName) -> Result<Option<String>> {
        let all = self.read().await?;
        let found = all.get(&key(task)).or_else(|| all.get(task.as_str()));
        Ok(found.and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned))
    }

    /// Sets the snapshot of a task, or removes it, in one step, and gives what was there before.
    pub(crate) async fn set(&self, task: &TaskName, image: Option<&str>) -> Result<Option<String>> {
        let _alone = Lock::take(&self.path.with_file_name(LOCK), PATIENCE, || ()).await?;
        let mut all = self.read().await?;
        let legacy = all.shift_remove(task.as_str());
        let before = match image {
            Some(image) => all.insert(key(task), image.into()),
            None => all.shift_remove(&key(task)),
        };
        let before = before.or_else(|| legacy.clone()).and_then(|value| value.as_str().map(str::to_owned));
        if before.as_deref() != image || legacy.is_some() {
            let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
            text.push('\n');
            replace(&self.path, text.as_bytes())?;
        }
        Ok(before)
    }
}

/// Puts a file in the place of another in one step: a reader sees the old or the new, and so does a crash.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io(format!("writing {}", path.display()), error);
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = dir.join(format!(".{name}.{}", hex(6)));
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)?;
        File::open(dir)?.sync_all()
    };
    written().map_err(|error| {
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(text: &str) -> TaskName {
        TaskName::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_bare_name_is_read_and_moves_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        std::fs::write(&path, r#"{"old": "im-1", "direct:other": "im-2", "managed:x": {"a": 1}}"#).unwrap();
        let snapshots = Snapshots::of(home.path());
        assert_eq!(snapshots.get(&task("old")).await.unwrap().as_deref(), Some("im-1"));
        assert_eq!(snapshots.set(&task("old"), Some("im-3")).await.unwrap().as_deref(), Some("im-1"));
        let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let expected =
            serde_json::json!({"direct:other": "im-2", "managed:x": {"a": 1}, "direct:old": "im-3"});
        assert_eq!(all, expected);
        assert_eq!(snapshots.set(&task("old"), None).await.unwrap().as_deref(), Some("im-3"));
        assert_eq!(
            (snapshots.get(&task("old")).await.unwrap(), snapshots.set(&task("old"), None).await.unwrap()),
            (None, None)
        );
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "the file and its lock");
    }

    #[tokio::test]
    async fn many_who_write_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::of(&home.path().join("new"));
        let one = |n: u32| {
            let snapshots = snapshots.clone();
            async move { snapshots.set(&task(&format!("t{n}")), Some(&format!("im-{n}"))).await.unwrap() }
        };
        tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5));
        for n in 0..6 {
            assert_eq!(snapshots.get(&task(&format!("t{n}"))).await.unwrap(), Some(format!("im-{n}")));
        }
    }

    #[tokio::test]
    async fn what_hermes_is_writing_is_not_lost() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        let snapshots = Snapshots::of(home.path());
        let own = task("a");
        for torn in ["", "{\"direct:oth"] {
            std::fs::write(&path, torn).unwrap();
            let (set, ()) = tokio::join!(snapshots.set(&own, Some("im-1")), async {
                tokio::time::sleep(TORN / 4).await;
                std::fs::write(&path, "{\"direct:other\": \"im-2\"}").unwrap();
            });
            assert_eq!(set.unwrap(), None);
            let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(all, serde_json::json!({"direct:other": "im-2", "direct:a": "im-1"}), "{torn:?}");
        }
        assert!(snapshots.of_others(&task("a"), "im-2").await.unwrap());
        assert!(!snapshots.of_others(&task("other"), "im-2").await.unwrap());
    }

    #[tokio::test]
    async fn a_damaged_file_is_an_error_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        std::fs::write(&path, "{\"direct:a\": ").unwrap();
        let snapshots = Snapshots::of(home.path());
        assert!(snapshots.get(&task("a")).await.is_err());
        assert!(snapshots.set(&task("a"), Some("im-1")).await.unwrap_err().hint.unwrap().contains("mend it"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"direct:a\": ");
    }
}
