//! Whether the kernel has killed because the memory of the place had run out.
//!
//! The control group counts that, and it can be read where a place has one of its own: in a container. The count after
//! a command that was killed is compared with the one before it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old a count may be that a command begins with. Looking costs as much as a tenth of a short command, and what
/// runs out of memory takes longer than this to do so.
const FRESH: Duration = Duration::from_millis(50);
/// The count when it was last looked at.
static SEEN: Mutex<Option<(Instant, Option<u64>)>> = Mutex::new(None);

/// The second and the first version of control groups.
const COUNTS: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

fn count() -> Option<u64> {
    COUNTS.iter().find_map(|path| parse(&std::fs::read_to_string(path).ok()?))
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The count as a command begins.
pub(crate) fn before(now: Instant) -> Option<u64> {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    match *seen {
        Some((at, count)) if now.duration_since(at) < FRESH => count,
        _ => {
            let count = count();
            *seen = Some((now, count));
            count
        }
    }
}

/// True if that has happened since.
pub(crate) fn ran_out(before: Option<u64>) -> bool {
    before.is_some_and(|before| count().is_some_and(|count| count > before))
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
