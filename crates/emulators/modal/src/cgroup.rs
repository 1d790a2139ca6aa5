//! Limits of a sandbox, and a pause for its snapshots: control groups of its own, where they can be made.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOP: &str = "/sys/fs/cgroup";
/// Of processor time, in microseconds.
const PERIOD: u64 = 100_000;

/// Groups of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    freezer: Option<PathBuf>,
}

/// What is to be enforced; zero is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) memory_mb: u32,
    /// Of physical cores, each of which is two processors.
    pub(crate) milli_cpu: u32,
}

/// Of an emulator that was killed: groups that nobody is in.
pub(crate) fn sweep() {
    for controller in ["memory", "cpu", "freezer"] {
        let Some(parent) = parent(controller) else { continue };
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix("farshell-modal-").and_then(|rest| rest.split('-').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
}

/// Where this process is itself, so that whoever limits it limits its sandboxes as well.
fn parent(controller: &str) -> Option<PathBuf> {
    let all = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = all.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        names.split(',').any(|name| name == controller).then_some(path)
    })?;
    Some(Path::new(TOP).join(controller).join(path.trim_start_matches('/')))
}

impl Cgroup {
    /// What can't be made is said, and not enforced.
    pub(crate) fn make(id: &str, limits: Limits, say: &dyn Fn(&str)) -> Self {
        let group = |controller: &str| -> io::Result<PathBuf> {
            let parent =
                parent(controller).ok_or_else(|| io::Error::other("no such controller (cgroup v1)"))?;
            let dir = parent.join(format!("farshell-modal-{}-{id}", std::process::id()));
            std::fs::create_dir(&dir)?;
            Ok(dir)
        };
        let limited = |controller: &str, files: &[(&str, u64)]| match group(controller) {
            Ok(dir) => {
                for (file, value) in files {
                    if let Err(error) = std::fs::write(dir.join(file), value.to_string()) {
                        say(&format!("{id}: {file} is not enforced: {error}"));
                    }
                }
                Some(dir)
            }
            Err(error) => {
                say(&format!("{id}: the limit of {controller} is not enforced: {error}"));
                None
            }
        };
        let memory = u64::from(limits.memory_mb) << 20;
        let quota = (u64::from(limits.milli_cpu) * 2 * PERIOD / 1000).max(1000);
        Self {
            memory: (limits.memory_mb > 0)
                .then(|| limited("memory", &[("memory.limit_in_bytes", memory)]))
                .flatten(),
            cpu: (limits.milli_cpu > 0)
                .then(|| limited("cpu", &[("cpu.cfs_period_us", PERIOD), ("cpu.cfs_quota_us", quota)]))
                .flatten(),
            // Without it a snapshot is taken of a filesystem that goes on changing.
            freezer: group("freezer").ok(),
        }
    }

    /// The first process of a sandbox, and with it all others.
    pub(crate) fn join(&self, pid: u32) -> io::Result<()> {
        for dir in [&self.memory, &self.cpu].into_iter().flatten() {
            std::fs::write(dir.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Joined by each process when it starts.
    pub(crate) fn freezer(&self) -> Option<&Path> {
        self.freezer.as_deref()
    }

    /// Whether a process was killed because there was no memory left.
    pub(crate) fn out_of_memory(&self) -> bool {
        let Some(dir) = &self.memory else { return false };
        let text = std::fs::read_to_string(dir.join("memory.oom_control")).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// Nothing runs in the sandbox until what this returns is dropped. Blocks.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        let Some(dir) = self.freezer.as_deref() else { return Frozen(None) };
        let state = dir.join("freezer.state");
        if std::fs::write(&state, "FROZEN").is_err() {
            return Frozen(None);
        }
        // A process that can't be frozen (in a call to a dead disk, say) must not hold up a snapshot for ever.
        for _ in 0..500 {
            if std::fs::read_to_string(&state).is_ok_and(|now| now.trim() == "FROZEN") {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Frozen(Some(dir))
    }
}

pub(crate) fn thaw(freezer: &Path) {
    let _ = std::fs::write(freezer.join("freezer.state"), "THAWED");
}

/// Puts the caller there.
pub(crate) fn enter(freezer: &Path) -> io::Result<()> {
    std::fs::write(freezer.join("cgroup.procs"), "0")
}

/// Thaws when dropped.
#[derive(Debug)]
pub(crate) struct Frozen<'a>(Option<&'a Path>);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            thaw(dir);
        }
    }
}

impl Cgroup {
    /// Once nobody is in them any more.
    pub(crate) fn remove(&self) {
        for dir in [&self.memory, &self.cpu, &self.freezer].into_iter().flatten() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}
