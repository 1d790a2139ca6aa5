//! Whether the kernel has killed because the memory of the place had run out.
//!
//! The control group counts that, and it can be read where a place has one of its own: in a container. The count is
//! looked at when something was killed, and at no other time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing has been counted yet.
const NEVER: u64 = u64::MAX;
/// The count when it was last looked at.
static SEEN: AtomicU64 = AtomicU64::new(NEVER);

/// The second and the first version of control groups.
const COUNTS: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

fn count() -> Option<u64> {
    COUNTS.iter().find_map(|path| parse(&std::fs::read_to_string(path).ok()?))
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// What was killed before this is not told of.
pub(crate) fn watch() {
    if SEEN.load(Ordering::Relaxed) == NEVER
        && let Some(count) = count()
    {
        SEEN.store(count, Ordering::Relaxed);
    }
}

/// True if that has happened since the last time.
pub(crate) fn ran_out() -> bool {
    let Some(count) = count() else { return false };
    let before = SEEN.swap(count, Ordering::Relaxed);
    before != NEVER && count > before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(parse("low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(parse("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(parse("oom_kill_disable 0\n"), None);
    }
}
