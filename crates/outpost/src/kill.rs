//! Killing: everything that descends from a command, and nothing else.
//!
//! # Who belongs to a command
//! A command's descendants can leave its process group, its session, its parent (double fork) and its
//! environment. Two things they can't leave: the outpost is their subreaper, so they stay visible, and they
//! inherit resource limits. So each command gets a number of its own as a limit that the kernel ignores and passes
//! on through fork and exec: the *tag*. Tags only ever go down and are set as the hard limit as well, so that nobody
//! without privileges can take on another one. Only descendants of the outpost are looked at: others on the same
//! machine count their tags the same way.
//! A command may set that limit itself, to a number that no outpost gives. Whoever has such a number and is younger than
//! the command belongs to it if it is a child of the command's shell, or nobody's child any more.
//! Where the kernel has no such limit (or hides it), what remains is descent: children of the command's
//! process, and for a command in a session's shell the shell's children that are younger than the command.
//!
//! # How they end
//! TERM to all, a grace period that ends early when all are gone, then: freeze everything (so that nothing
//! forks away), look again until nobody new appears, KILL, and look once more. The answer counts what is gone
//! and what is left. One thread does this for all commands that are to be killed at a time, so that a
//! thousand kills cost a few looks at `/proc` and not a thousand.

use crate::daemon::Children;
use crate::sys;
use crate::worker::Waker;
use farshell_protocol::process::Killed;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// The signal on which a session's shell ends its command with status 137, keeping its state.
pub(crate) const SHELL_TERM: i32 = 63;
/// Likewise with status 130: the user pressed Ctrl-C.
pub(crate) const SHELL_INT: i32 = 62;

/// How long a frozen and killed process may take to disappear before it is counted as left.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// How long a shell may take to act on [`SHELL_TERM`] once its children are gone.
const SHELL_WAIT: Duration = Duration::from_millis(1000);

/// Tags that one outpost uses at most.
const MOST_TAGS: u64 = 1 << 31;

/// A limit that carries tags, and its name in `/proc`.
type Carrier = (Resource, &'static str);

/// Linux has ignored both since 2.6. gVisor refuses to set the first.
const CARRIERS: [Carrier; 2] = [(Resource::Locks, "Max file locks"), (Resource::Rss, "Max resident set")];

/// A command's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    number: u64,
    carrier: Carrier,
    /// Where its outpost began to count.
    first: u64,
}

impl Tag {
    fn limit(&self) -> Rlimit {
        Rlimit { current: Some(self.number), maximum: Some(self.number) }
    }

    /// No outpost gives such numbers: one that was started by a command of another begins to count above a half of what it
    /// finds.
    fn is_foreign(&self, number: u64) -> bool {
        number < self.first / 4 || number == UNLIMITED
    }
}

/// What is read where there is no limit.
const UNLIMITED: u64 = u64::MAX;

/// Gives each command its tag.
#[derive(Debug)]
pub(crate) struct Tags {
    /// Where this outpost began to count. Below it are [`MOST_TAGS`] numbers that nobody else uses.
    pub first: u64,
    next: u64,
    /// Absent if nothing can carry tags here.
    carrier: Option<Carrier>,
}

impl Tags {
    pub(crate) fn new() -> Self {
        CARRIERS.into_iter().map(Self::carried_by).find(Self::working).unwrap_or(Self {
            first: 0,
            next: 0,
            carrier: None,
        })
    }

    fn carried_by(carrier: Carrier) -> Self {
        let current = rustix::process::getrlimit(carrier.0);
        let most = [current.current, current.maximum].into_iter().flatten().min().unwrap_or(1 << 62);
        // Begun at random, so that the tags of two outposts differ.
        let mut random = [0; 8];
        let _ = getrandom::fill(&mut random);
        let first = most.saturating_sub(u64::from_le_bytes(random) >> 16).max(most / 2);
        let mut tags = Self { first, next: first, carrier: Some(carrier) };
        let tag = tags.mark_self();
        if tag.is_none_or(|tag| read_tag(std::process::id(), carrier) != Some(tag.number)) {
            tags.carrier = None;
        }
        tags
    }

    pub(crate) fn working(&self) -> bool {
        self.carrier.is_some()
    }

    fn next(&mut self) -> Option<Tag> {
        self.next = self.next.saturating_sub(1);
        Some(Tag { number: self.next, carrier: self.carrier?, first: self.first })
    }

    /// What the outpost starts from now on is tagged.
    pub(crate) fn mark_self(&mut self) -> Option<Tag> {
        let tag = self.next()?;
        rustix::process::setrlimit(tag.carrier.0, tag.limit()).ok().map(|()| tag)
    }

    /// What this shell starts from now on is tagged, unless it has set the limit itself, below what we may set: then what it
    /// starts is known by that.
    pub(crate) fn mark(&mut self, pid: u32) -> Option<Tag> {
        let tag = self.next()?;
        let _ = rustix::process::prlimit(Pid::from_raw(pid.cast_signed()), tag.carrier.0, tag.limit());
        Some(tag)
    }
}

fn read_tag(pid: u32, (_, name): Carrier) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find(|l| l.starts_with(name))?;
    match line.split_ascii_whitespace().nth(3)? {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    }
}

/// What is to be killed for one process.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The process's key in the outpost.
    pub key: u32,
    pub tag: Option<Tag>,
    /// What the outpost itself has started, and nobody else's orphans.
    pub children: Children,
    /// The process itself; for a session command the shell, which is not killed at first.
    pub root: u32,
    /// The root is a session's shell: ask it to end the command, and kill it only if it doesn't.
    pub shell: bool,
    /// The root still runs this command (otherwise only what it left behind is killed).
    pub running: bool,
    /// Kernel ticks since boot when the command began: descent is believed only from then on.
    pub since: u64,
    pub grace: Duration,
    /// What a user's Ctrl-C does: INT and no further.
    pub first: i32,
}

/// A finished kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub key: u32,
    pub killed: Killed,
}

struct Job {
    target: Target,
    seen: HashMap<u32, u64>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// TERM was sent; KILL at the instant.
    Grace(Instant),
    /// KILL was sent; given up at the instant.
    Killing(Instant),
}

/// Body of the killer's thread.
pub(crate) fn run(targets: &Receiver<Target>, outcomes: &Sender<Outcome>, waker: &Waker) {
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        let mut fresh = Vec::new();
        if jobs.is_empty() {
            match targets.recv() {
                Ok(target) => fresh.push(target),
                Err(_) => return,
            }
        }
        fresh.extend(targets.try_iter());
        let now = Instant::now();
        for target in fresh {
            // The shell first: when its child dies, it must not go on to the next command of the list.
            if target.shell && target.running {
                sys::kill_child(
                    target.root,
                    if target.first == libc::SIGINT { SHELL_INT } else { SHELL_TERM },
                );
            }
            let until = now + target.grace;
            jobs.push(Job { target, seen: HashMap::new(), phase: Phase::Grace(until) });
        }
        step(&mut jobs, outcomes, waker);
    }
}

/// One look at all processes, and what follows from it for each job.
fn step(jobs: &mut Vec<Job>, outcomes: &Sender<Outcome>, waker: &Waker) {
    let table = Table::read(jobs);
    let now = Instant::now();
    let mut watch: Vec<OwnedFd> = Vec::new();
    let mut wake = now + Duration::from_secs(1);
    let mut done = Vec::new();
    for (i, job) in jobs.iter_mut().enumerate() {
        let members = table.members(&job.target);
        let fresh: Vec<&Entry> =
            members.iter().copied().filter(|m| job.seen.get(&m.pid) != Some(&m.start)).collect();
        for member in &fresh {
            job.seen.insert(member.pid, member.start);
        }
        let shell_alive = job.target.shell && job.target.running && table.get(job.target.root).is_some();
        if members.is_empty() && !shell_alive {
            let killed = Killed { killed: job.seen.len() as u32, left: 0 };
            let _ = outcomes.send(Outcome { key: job.target.key, killed });
            done.push(i);
            continue;
        }
        if let Phase::Grace(until) = job.phase {
            // A shell that has nobody to wait for should act at once; one that does not is stuck.
            let until = if members.is_empty() { until.min(now + SHELL_WAIT) } else { until };
            job.phase = Phase::Grace(until);
            if now < until {
                signal_all(&fresh, job.target.first, &mut watch);
                signal_all(&fresh, libc::SIGCONT, &mut Vec::new());
                for member in &members {
                    watch.extend(member.open());
                }
                if shell_alive {
                    watch.extend(table.get(job.target.root).and_then(Entry::open));
                }
                wake = wake.min(until);
                continue;
            }
            job.phase = Phase::Killing(now + LAST_WAIT);
        }
        if let Phase::Killing(until) = job.phase {
            if now >= until {
                let left = members.len() as u32 + u32::from(shell_alive);
                let killed = Killed { killed: (job.seen.len() as u32).saturating_sub(left), left };
                let _ = outcomes.send(Outcome { key: job.target.key, killed });
                done.push(i);
                continue;
            }
            // Frozen processes can't fork; those that were born meanwhile are found by the next look.
            signal_all(&members, libc::SIGSTOP, &mut Vec::new());
            signal_all(&members, libc::SIGKILL, &mut watch);
            if shell_alive {
                sys::kill_child(job.target.root, libc::SIGKILL);
                watch.extend(table.get(job.target.root).and_then(Entry::open));
            }
            wake = wake.min(now + Duration::from_millis(if fresh.is_empty() { 20 } else { 2 })).min(until);
        }
    }
    let reported = !done.is_empty();
    for i in done.into_iter().rev() {
        jobs.swap_remove(i);
    }
    if reported {
        waker.wake();
    }
    if !jobs.is_empty() {
        wait_for_any(&watch, wake.saturating_duration_since(Instant::now()));
    }
}

fn signal_all(members: &[&Entry], signal: i32, watch: &mut Vec<OwnedFd>) {
    for member in members {
        if let Some(fd) = member.open() {
            let _ = sys::pidfd_signal(fd.as_fd(), signal);
            watch.push(fd);
        }
    }
}

/// Returns when one of the processes has ended, or after the time. A few milliseconds more let the others
/// end too, so that the next look serves all of them.
fn wait_for_any(watch: &[OwnedFd], most: Duration) {
    let spec =
        |t: Duration| Timespec { tv_sec: t.as_secs().cast_signed(), tv_nsec: i64::from(t.subsec_nanos()) };
    let mut fds: Vec<PollFd<'_>> = watch.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // A new target must not wait long for the jobs before it.
    let most = most.min(Duration::from_millis(50));
    if matches!(rustix::event::poll(&mut fds, Some(&spec(most))), Ok(1..)) && watch.len() > 1 {
        std::thread::sleep(Duration::from_millis(2).min(most));
    }
}

/// One process, as a look at `/proc` found it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    pid: u32,
    start: u64,
    tag: Option<u64>,
}

impl Entry {
    /// A handle on exactly this process: `None` if it is gone or its number was given to another.
    fn open(&self) -> Option<OwnedFd> {
        let fd =
            rustix::process::pidfd_open(Pid::from_raw(self.pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        let (_, start, dead) = read_stat(self.pid)?;
        (start == self.start && !dead).then_some(fd)
    }
}

struct Table {
    /// What descends from this outpost and lives.
    entries: HashMap<u32, Entry>,
    children: HashMap<u32, Vec<u32>>,
}

impl Table {
    fn of(target: &Target) -> Self {
        let job = Job { target: target.clone(), seen: HashMap::new(), phase: Phase::Grace(Instant::now()) };
        Self::read(std::slice::from_ref(&job))
    }

    fn read(jobs: &[Job]) -> Self {
        let carrier = jobs.iter().find_map(|j| j.target.tag).map(|tag| tag.carrier);
        let oldest = jobs.iter().map(|j| j.target.since).min().unwrap_or(0);
        let mut table = Self { entries: HashMap::new(), children: HashMap::new() };
        let Ok(dir) = std::fs::read_dir("/proc") else { return table };
        let mut all = HashMap::new();
        for item in dir.flatten() {
            let Some(pid) = item.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Some((parent, start, dead)) = read_stat(pid) else { continue };
            all.insert(pid, (Entry { pid, start, tag: None }, dead));
            table.children.entry(parent).or_default().push(pid);
        }
        // Whatever the tags say: what does not descend from this outpost belongs to somebody else. The dead are
        // passed through, since a corpse that nobody buried keeps its children.
        let mut queue = table.children.get(&std::process::id()).cloned().unwrap_or_default();
        while let Some(pid) = queue.pop() {
            queue.extend(table.children.get(&pid).into_iter().flatten());
            let Some((mut entry, dead)) = all.remove(&pid) else { continue };
            if !dead {
                // Older than any command that is being killed: not worth another read.
                entry.tag = carrier.filter(|_| entry.start + 1 >= oldest).and_then(|c| read_tag(pid, c));
                table.entries.insert(pid, entry);
            }
        }
        table
    }

    fn get(&self, pid: u32) -> Option<&Entry> {
        self.entries.get(&pid)
    }

    /// Everything that belongs to the target, without the shell of a session.
    fn members(&self, target: &Target) -> Vec<&Entry> {
        let mut found = HashSet::new();
        let mut queue: Vec<u32> = Vec::new();
        let spared = |pid: u32| target.shell && pid == target.root;
        if let Some(tag) = target.tag {
            queue.extend(self.entries.values().filter(|e| e.tag == Some(tag.number)).map(|e| e.pid));
        }
        if target.running {
            // With a tag of ours it is known to which command a process belongs.
            let untagged = |entry: &Entry| {
                let foreign = |tag: Tag| entry.tag.is_some_and(|number| tag.is_foreign(number));
                entry.start >= target.since && target.tag.is_none_or(foreign)
            };
            let untagged = |pid: &&u32| self.get(**pid).is_some_and(untagged);
            let children_of = |pid: u32| self.children.get(&pid).into_iter().flatten().filter(untagged);
            if target.shell {
                queue.extend(children_of(target.root));
            } else {
                queue.push(target.root);
            }
            if target.tag.is_some() {
                let own = target.children.lock().unwrap_or_else(PoisonError::into_inner);
                queue.extend(children_of(std::process::id()).filter(|pid| !own.contains_key(pid)));
            }
        }
        while let Some(pid) = queue.pop() {
            if spared(pid) || !self.entries.contains_key(&pid) || !found.insert(pid) {
                continue;
            }
            queue.extend(self.children.get(&pid).into_iter().flatten());
        }
        found.into_iter().filter_map(|pid| self.get(pid)).collect()
    }
}

/// Parent, start time in ticks, and whether it is only a corpse.
fn read_stat(pid: u32) -> Option<(u32, u64, bool)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything, parentheses included.
    let after = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(after + 2..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some((parent, start, matches!(state, "Z" | "X" | "x")))
}

/// Now, in the unit of [`Target::since`].
pub(crate) fn ticks_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.cast_unsigned() * per_second + now.tv_nsec.cast_unsigned() * per_second / 1_000_000_000
}

/// Whom a signal has reached, and what program it was then.
pub(crate) type Reached = HashMap<u32, Option<PathBuf>>;

/// Sends a signal to everything that belongs to the target, without the shell of a session.
pub(crate) fn signal_members(target: &Target, signal: i32) -> Reached {
    let table = Table::of(target);
    let members = table.members(target);
    signal_all(&members, signal, &mut Vec::new());
    members.iter().map(|entry| (entry.pid, program(entry.pid))).collect()
}

/// Sends it to those children of a session's shell whom it has not reached: who was not there yet, or was still a
/// copy of the shell, whose traps swallowed it.
pub(crate) fn signal_latecomers(target: &Target, signal: i32, reached: &mut Reached) {
    let table = Table::of(target);
    let children = table.children.get(&target.root).map(Vec::as_slice).unwrap_or_default();
    let mut late = table.members(target);
    late.retain(|entry| {
        children.contains(&entry.pid)
            && reached.insert(entry.pid, program(entry.pid)) != Some(program(entry.pid))
    });
    signal_all(&late, signal, &mut Vec::new());
}

fn program(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Is anything alive that the outpost started, besides these processes?
pub(crate) fn has_descendants_besides(known: &HashSet<u32>) -> bool {
    Table::read(&[]).entries.keys().any(|pid| !known.contains(pid))
}

/// The last act: nothing that descends from the outpost survives it. Frozen first, then killed.
pub(crate) fn kill_all_descendants(most: Duration) {
    let deadline = Instant::now() + most;
    while Instant::now() < deadline {
        let table = Table::read(&[]);
        let members: Vec<&Entry> = table.entries.values().collect();
        if members.is_empty() {
            return;
        }
        signal_all(&members, libc::SIGSTOP, &mut Vec::new());
        let mut watch = Vec::new();
        signal_all(&members, libc::SIGKILL, &mut watch);
        wait_for_any(&watch, Duration::from_millis(20));
        while sys::next_child().is_some() {}
    }
}

/// Ends what an outpost left behind that was killed before it could do so itself: `first` is where it counted from.
pub(crate) fn kill_tagged(first: u64) {
    let range = first.saturating_sub(MOST_TAGS)..first;
    let deadline = Instant::now() + LAST_WAIT;
    while Instant::now() < deadline {
        let Ok(dir) = std::fs::read_dir("/proc") else { return };
        let pids = dir.flatten().filter_map(|item| item.file_name().to_str()?.parse::<u32>().ok());
        let left: Vec<Entry> = pids
            .filter(|pid| {
                let tagged = |carrier| read_tag(*pid, carrier).is_some_and(|tag| range.contains(&tag));
                *pid != std::process::id() && CARRIERS.into_iter().any(tagged)
            })
            .filter_map(|pid| match read_stat(pid)? {
                (_, start, false) => Some(Entry { pid, start, tag: None }),
                _ => None,
            })
            .collect();
        if left.is_empty() {
            return;
        }
        let all: Vec<&Entry> = left.iter().collect();
        signal_all(&all, libc::SIGSTOP, &mut Vec::new());
        let mut watch = Vec::new();
        signal_all(&all, libc::SIGKILL, &mut watch);
        wait_for_any(&watch, Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::Child;
    use std::process::{Command, Stdio};

    /// Whoever of these is a member of a command with this tag and root.
    fn members(tag: Option<Tag>, children: &Children, since: u64) -> HashSet<u32> {
        let children = Children::clone(children);
        let grace = Duration::ZERO;
        let (key, root, shell, first) = (1, u32::MAX, true, libc::SIGTERM);
        let target = Target { key, tag, children, root, shell, running: true, since, grace, first };
        Table::of(&target).members(&target).iter().map(|entry| entry.pid).collect()
    }

    #[test]
    fn each_carrier_marks_what_is_started_and_nothing_else() {
        for carrier in CARRIERS {
            let mut tags = Tags::carried_by(carrier);
            assert!(tags.working(), "{carrier:?}");
            let since = ticks_now();
            let start = || Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
            let first = tags.mark_self();
            let mut one = start();
            let second = tags.mark_self();
            let mut two = start();
            // It takes on a number that no outpost gives, and is nobody else's.
            let mut stray = start();
            let low = Rlimit { current: Some(5), maximum: Some(5) };
            rustix::process::prlimit(Pid::from_raw(stray.id().cast_signed()), carrier.0, low).unwrap();
            let children = Children::default();
            children.lock().unwrap().extend([one.id(), two.id()].map(|pid| (pid, Child::Process(0))));
            assert_eq!(members(first, &children, since), [one.id(), stray.id()].into(), "{carrier:?}");
            assert_eq!(members(second, &children, since), [two.id(), stray.id()].into(), "{carrier:?}");
            // Known to the outpost: not the command's.
            children.lock().unwrap().insert(stray.id(), Child::Process(0));
            assert_eq!(members(second, &children, since), [two.id()].into());
            for child in [&mut one, &mut two, &mut stray] {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}
