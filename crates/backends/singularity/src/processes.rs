//! The processes of an instance, as this machine's kernel knows them.
//!
//! ```text
//! parent            "Apptainer runtime parent": ends by itself, and cleans up, when what is below ends
//!   init            process 1 of the instance: what it takes with it when it ends is everything inside
//!     outpost …
//!   squashfuse …    file systems of the instance. If the parent is killed, they stay for ever
//! ```

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// One process: the number and the start time together are never used again on a machine until it restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) started: u64,
}

/// What was started for an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Family {
    pub(crate) parent: Option<Process>,
    /// Below it, without what runs inside.
    pub(crate) others: BTreeSet<Process>,
}

struct Stat {
    process: Process,
    parent: u32,
    dead: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows the last one is numbers.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        process: Process { pid, started: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        // The first thread may have ended while others still take the rest of the instance with them.
        dead: matches!(fields.first(), Some(&("Z" | "X")))
            && fields
                .get(17)
                .and_then(|threads| threads.parse::<u32>().ok())
                .is_none_or(|threads| threads <= 1),
    })
}

fn everything() -> Vec<Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| stat.process)
    }

    pub(crate) fn alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.process == self && !stat.dead)
    }

    /// It is process 1 of a namespace of its own.
    fn is_init(self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let mut numbers = numbers.split_whitespace();
        numbers.next().is_some() && numbers.next_back() == Some("1")
    }

    /// Kills exactly this one, and no other that may have got its number.
    fn kill(self) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.alive() {
            let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
        }
    }
}

impl Family {
    pub(crate) fn of(parent: u32) -> Option<Self> {
        Some(Self { parent: Some(Process::of(parent)?), others: BTreeSet::new() })
    }

    /// The instance runs.
    pub(crate) fn alive(&self) -> bool {
        self.parent.is_some_and(Process::alive)
    }

    /// Notes the parent's children of this moment.
    pub(crate) fn look(&mut self) {
        let Some(parent) = self.parent.filter(|parent| parent.alive()) else { return };
        let children = everything().into_iter().filter(|stat| stat.parent == parent.pid && !stat.dead);
        self.others.extend(children.map(|stat| stat.process));
        // It may have ended meanwhile, and another have got its number.
        if !parent.alive() {
            self.others.retain(|process| process.alive());
        }
    }

    fn left(&self) -> Vec<Process> {
        self.parent.iter().chain(&self.others).copied().filter(|process| process.alive()).collect()
    }

    /// Process 1 of the instance.
    fn init(&self) -> Option<Process> {
        self.others.iter().copied().find(|process| process.alive() && process.is_init())
    }

    /// A process inside the instance: the outpost.
    pub(crate) fn inner(&self) -> Option<u32> {
        let init = self.init()?;
        everything()
            .into_iter()
            .find(|stat| stat.parent == init.pid && !stat.dead)
            .map(|stat| stat.process.pid)
    }

    /// Ends everything. First what runs inside, so that the parent unmounts and cleans up; what is left after a while is
    /// killed, too. False if something withstands.
    pub(crate) async fn end(&mut self) -> bool {
        const GENTLE: Duration = Duration::from_secs(5);
        const FIRM: Duration = Duration::from_secs(10);
        let begun = Instant::now();
        loop {
            self.look();
            let left = self.left();
            if left.is_empty() {
                return true;
            }
            let init = self.init();
            if let Some(init) = init {
                init.kill();
            }
            // One that has not got so far that there is an inside, or whose parent is gone, has nothing to clean up.
            if !self.alive() || begun.elapsed() > GENTLE || (init.is_none() && self.others.is_empty()) {
                for process in left {
                    process.kill();
                }
            }
            if begun.elapsed() > FIRM {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn a_family_is_ended_and_nobody_else() {
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        let mut parent = Command::new("sh").args(["-c", "sleep 601 & sleep 602 & wait"]).spawn().unwrap();
        let mut family = Family::of(parent.id()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while family.others.len() < 2 {
            assert!(std::time::Instant::now() < deadline, "{family:?}");
            family.look();
        }
        assert!(family.alive());
        // As if the parent had been killed by somebody else: what it started is left.
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(!family.alive());
        assert!(family.end().await);
        assert!(family.others.iter().all(|process| !process.alive()));
        assert!(Process::of(stranger.id()).unwrap().alive());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[tokio::test]
    async fn a_number_that_was_used_again_is_somebody_else() {
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        let mut process = Process::of(stranger.id()).unwrap();
        process.started += 1;
        let mut family = Family { parent: Some(process), others: [process].into() };
        assert!(!family.alive() && family.end().await);
        assert!(Process::of(stranger.id()).unwrap().alive());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
