//! What a host holds of ours: the directories of outposts that live, that were killed, and of earlier starts of it.
//!
//! A directory is called `task-owner-mark`. The mark is of the machine and its start; a note beside the directories
//! says which, since several machines may share the account's home.

use crate::host::Host;
use crate::place::SshPlace;
use crate::script::{Answers, Wish};
use farshell_engine::backend::{Found, Place, TaskName};
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;

/// Task and mark of a directory's name.
fn parse<'a>(name: &'a str, owner: &str) -> Option<(TaskName, &'a str)> {
    let (rest, mark) = name.rsplit_once('-')?;
    let task = rest.strip_suffix(owner)?.strip_suffix('-')?;
    let digits = !mark.is_empty() && mark.bytes().all(|b| b.is_ascii_digit());
    Some((TaskName::new(task).ok()?, mark)).filter(|_| digits)
}

/// The mark is of this machine, before it was started again: nothing can run in its directories.
fn is_earlier_start(answers: &Answers, mark: &str) -> bool {
    let note = |mark: &str| {
        let note = answers.all("host").iter().find_map(|line| line.strip_prefix(mark)?.strip_prefix(' '))?;
        note.split_once(' ')
    };
    let here = match (answers.get("machine"), answers.get("name")) {
        ("", name) => name,
        (machine, _) => machine,
    };
    let boot = answers.get("boot");
    note(mark).is_some_and(|(machine, started)| machine == here && started != boot && !boot.is_empty())
}

pub(crate) async fn all(host: &Host) -> Result<Vec<Found>> {
    let owner = host.owner()?;
    let (facts, answers) = host.ask("", &Wish::List { owner: &owner }).await?;
    let mut found = Vec::new();
    for line in answers.all("found") {
        let mut parts = line.splitn(3, ' ');
        let (Some(alive), Some(age), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let Some((task, mark)) = parse(name, &owner) else { continue };
        let here = mark == facts.mark;
        if !here && !is_earlier_start(&answers, mark) {
            // Another machine's, which shares the home.
            continue;
        }
        found.push(Found {
            id: format!("{}:{}/run/{name}", host.config.destination(), facts.base),
            name: name.to_owned(),
            task: here.then_some(task),
            owner: host.config.home.to_string_lossy().into_owned(),
            spec_hash: None,
            age: age.parse().ok().map(Duration::from_secs),
            alive: here && alive == "yes",
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Ends and removes one of them. If it is gone already, that is no error.
pub(crate) async fn remove(host: &Host, name: &str) -> Result<()> {
    let what = || format!("removing {name}");
    let owner = host.owner()?;
    let Some((task, mark)) = parse(name, &owner) else {
        return Err(Error::new(Kind::NotFound, what(), "it is not a directory of this home's")
            .with_hint("`farshell gc` shows what there is"));
    };
    let (facts, answers) = host.ask("", &Wish::List { owner: &owner }).await?;
    if mark == facts.mark {
        let facts = host.look(&task).await?;
        return SshPlace::new(host.clone(), task, Duration::from_secs(60), facts, None).destroy().await;
    }
    if !is_earlier_start(&answers, mark) {
        return Err(Error::new(Kind::NotFound, what(), "no earlier start of this host left it")
            .with_hint("another machine may have; `farshell gc` shows what there is on this one"));
    }
    host.ask("", &Wish::RemoveOld { name }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let task = |name: &str| TaskName::new(name).unwrap();
        assert_eq!(parse("default-00ff00ff-123", "00ff00ff"), Some((task("default"), "123")));
        assert_eq!(parse("a-b-00ff00ff-1", "00ff00ff"), Some((task("a-b"), "1")));
        for other in
            ["default-00ff0000-123", "default-00ff00ff-x", "00ff00ff-1", "../a-00ff00ff-1", "a-00ff00ff-"]
        {
            assert_eq!(parse(other, "00ff00ff"), None, "{other}");
        }
    }

    #[test]
    fn only_an_earlier_start_of_this_machine_is_old() {
        let mut answers = Answers::default();
        for line in ["machine m1", "name h", "boot b2", "host 1 m1 b1", "host 2 m1 b2", "host 3 m2 b0"] {
            answers.add(line);
        }
        let old: Vec<bool> =
            ["1", "2", "3", "4"].iter().map(|mark| is_earlier_start(&answers, mark)).collect();
        assert_eq!(old, [true, false, false, false]);
    }
}
