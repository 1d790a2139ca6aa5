//! What lies under `run`: the directories of outposts that live, that were killed, and of earlier starts of this
//! machine.
//!
//! A directory's name ends with a hash of host and boot, from which neither can be read back. A note beside the
//! directories says it, so that what an earlier start left is told apart from what another machine, which shares the
//! home, uses at this moment. Directories without such a note are left alone.

use crate::place::{LocalPlace, mark_of};
use farshell_engine::backend::{Found, TaskName};
use farshell_engine::machine::Machine;
use farshell_engine::{Error, Kind, Result};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The end of a directory's name: a hyphen and eight digits.
const MARK: usize = 9;

fn note_path(home: &Path, mark: &str) -> PathBuf {
    home.join("run").join(format!(".machine-{mark}"))
}

/// Writes down whose directories end with this machine's mark. Without the note they are only not cleaned up.
pub(crate) fn note_machine(home: &Path) {
    let machine = Machine::this();
    let path = note_path(home, &mark_of(&machine));
    if path.exists() {
        return;
    }
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.join("run"));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    if let Ok(mut file) = file {
        use std::io::Write;
        let _ = write!(file, "{}\n{}\n", machine.host, machine.boot);
    }
}

fn noted(home: &Path, mark: &str) -> Option<Machine> {
    let text = std::fs::read_to_string(note_path(home, mark)).ok()?;
    let (host, boot) = text.trim_end().split_once('\n')?;
    let machine = Machine { host: host.to_owned(), boot: boot.to_owned() };
    (mark_of(&machine) == mark).then_some(machine)
}

/// Task and mark of a directory's name.
fn parse(name: &str) -> Option<(TaskName, &str)> {
    let (task, mark) = name.split_at_checked(name.len().checked_sub(MARK)?)?;
    let mark = mark.strip_prefix('-')?;
    let digits = mark.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
    Some((TaskName::new(task).ok()?, mark)).filter(|_| digits)
}

/// The task whose directory of this start of this machine it is.
pub(crate) fn task_here(name: &str) -> Option<TaskName> {
    parse(name).filter(|(_, mark)| *mark == mark_of(&Machine::this())).map(|(task, _)| task)
}

/// The machine is this one, before it was started again: nothing can run in its directories.
fn is_earlier_start(home: &Path, mark: &str) -> bool {
    let this = Machine::this();
    !this.boot.is_empty()
        && noted(home, mark).is_some_and(|m| m.host == this.host && m.boot != this.boot && !m.boot.is_empty())
}

pub(crate) async fn all(home: &Path) -> Result<Vec<Found>> {
    let run = home.join("run");
    let entries = match std::fs::read_dir(&run) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("looking through {}", run.display()), error)),
    };
    let here = mark_of(&Machine::this());
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((task, mark)) = parse(&name) else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let (task, alive) = if mark == here {
            let place = LocalPlace::new(PathBuf::new(), path.clone(), Duration::ZERO);
            (Some(task), place.try_connect().await.is_ok())
        } else if is_earlier_start(home, mark) {
            (None, false)
        } else {
            continue;
        };
        // The socket is as old as the outpost.
        let made = std::fs::metadata(path.join("sock")).or_else(|_| entry.metadata());
        let age = made.and_then(|meta| meta.modified()).ok();
        found.push(Found {
            id: path.to_string_lossy().into_owned(),
            name,
            task,
            owner: home.to_string_lossy().into_owned(),
            spec_hash: None,
            age: age.map(|made| SystemTime::now().duration_since(made).unwrap_or_default()),
            alive,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Removes a directory that an earlier start of this machine left.
pub(crate) fn remove_old(home: &Path, name: &str) -> Result<()> {
    let what = || format!("removing {name}");
    let mark = match parse(name) {
        Some((_, mark)) if is_earlier_start(home, mark) => mark,
        _ => return Err(Error::new(Kind::NotFound, what(), "no earlier start of this machine left it")),
    };
    let run = home.join("run");
    let dir = run.join(name);
    match std::fs::symlink_metadata(&dir) {
        Ok(meta) if meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw() => {
            std::fs::remove_dir_all(&dir).map_err(|e| Error::io(what(), e))?;
        }
        Ok(_) => {
            return Err(Error::new(Kind::PermissionDenied, what(), "it is not a directory of this user"));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(what(), error)),
    }
    let left = std::fs::read_dir(&run).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if !left.into_iter().any(|n| parse(&n.to_string_lossy()).is_some_and(|(_, other)| other == mark)) {
        let _ = std::fs::remove_file(note_path(home, mark));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(host: &str, boot: &str) -> Machine {
        Machine { host: host.into(), boot: boot.into() }
    }

    fn note(home: &Path, machine: &Machine) {
        std::fs::create_dir_all(home.join("run")).unwrap();
        let path = note_path(home, &mark_of(machine));
        std::fs::write(path, format!("{}\n{}\n", machine.host, machine.boot)).unwrap();
    }

    #[tokio::test]
    async fn only_what_an_earlier_start_left_is_found_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let this = Machine::this();
        let (earlier, other) = (machine(&this.host, "earlier"), machine("another-host", "boot"));
        note(home, &earlier);
        note(home, &other);
        let dir = |task: &str, machine: &Machine| {
            let name = format!("{task}-{}", mark_of(machine));
            std::fs::create_dir_all(home.join("run").join(&name).join("logs")).unwrap();
            name
        };
        let (old, killed) = (dir("default", &earlier), dir("default", &this));
        let (foreign, unknown) = (dir("default", &other), dir("x", &machine("y", "z")));
        std::fs::create_dir(home.join("run/stray")).unwrap();

        let mut expected = vec![old.clone(), killed];
        expected.sort();
        let found = all(home).await.unwrap();
        assert_eq!(found.iter().map(|f| f.name.clone()).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|f| !f.alive && f.task.is_some() == (f.name != old)));

        for name in [&foreign, &unknown, "stray", "../outposts", &format!("../{old}")] {
            assert!(remove_old(home, name).is_err(), "{name}");
        }
        remove_old(home, &old).unwrap();
        assert!(!home.join("run").join(&old).exists());
        assert!(!note_path(home, &mark_of(&earlier)).exists());
        assert!(home.join("run").join(&foreign).exists() && note_path(home, &mark_of(&other)).exists());
    }

    #[test]
    fn the_note_is_written_once_and_names_this_machine() {
        let home = tempfile::tempdir().unwrap();
        note_machine(home.path());
        note_machine(home.path());
        let this = Machine::this();
        assert_eq!(noted(home.path(), &mark_of(&this)), Some(this.clone()));
        assert!(!is_earlier_start(home.path(), &mark_of(&this)));
        let name = format!("a-b-{}", mark_of(&this));
        assert_eq!(task_here(&name), TaskName::new("a-b").ok());
    }
}
