//! Processes of a case that are still there, as this machine's kernel sees them.

use crate::env::MARK;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// One process: the number and the start time together are never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub pid: u32,
    started: u64,
}

struct Entry {
    seen: Seen,
    parent: u32,
    zombie: bool,
}

fn entry(pid: u32) -> Option<Entry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows the last one is numbers.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let started = fields.get(19)?.parse().ok()?;
    let parent = fields.get(1)?.parse().ok()?;
    Some(Entry { seen: Seen { pid, started }, parent, zombie: fields.first() == Some(&"Z") })
}

fn pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// A process and everything that descends from it.
pub(crate) fn tree(root: u32) -> HashSet<Seen> {
    let all: HashMap<u32, Entry> = pids().into_iter().filter_map(|pid| Some((pid, entry(pid)?))).collect();
    let mut found = HashSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let Some(entry) = all.get(&pid) else { continue };
        if found.insert(entry.seen.clone()) {
            next.extend(all.values().filter(|e| e.parent == pid).map(|e| e.seen.pid));
        }
    }
    found
}

/// Which of these are still there, and which others carry the case's mark in arguments or environment.
pub(crate) fn survivors(known: &HashSet<Seen>, mark: &str) -> Vec<(u32, String)> {
    let variable = format!("{MARK}={mark}");
    let mut left = Vec::new();
    for pid in pids() {
        let Some(entry) = entry(pid) else { continue };
        if entry.zombie || pid == std::process::id() {
            continue;
        }
        let read =
            |name| std::fs::read(Path::new("/proc").join(pid.to_string()).join(name)).unwrap_or_default();
        let args = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let marked =
            args.contains(mark) || read("environ").split(|b| *b == 0).any(|v| v == variable.as_bytes());
        if known.contains(&entry.seen) || marked {
            left.push((pid, args));
        }
    }
    left
}
