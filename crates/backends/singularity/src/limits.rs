//! How limits are kept: by control groups where Apptainer can have them, otherwise as far as the kernel's limits of
//! single processes go. What holds is read back from the instance, and told.

use crate::arguments::SMALLEST_DISK;
use crate::config::Config;
use crate::layout::{HOME, Layout};
use crate::slurm::Options;
use farshell_engine::backend::{Limit, Support};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Since this release the kernel counts processes for each user namespace, which an instance has of its own. Before, the
/// limit would count whatever the user runs on the machine.
const COUNTS_BY_NAMESPACE: (u32, u32) = (5, 14);

/// What is said about the limits of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits(Vec<Held>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    name: Name,
    value: String,
    support: String,
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Cpu,
    Memory,
    Disk,
    Processes,
}

/// Who keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    ControlGroups,
    /// Nobody but the limits of single processes, and why.
    Processes(String),
    /// A batch system on another machine, and there the limits of single processes: so many kilobytes, if it is known how
    /// many the batch system gives.
    Node(Option<u64>),
}

/// Why there can be no control groups here, as far as a look tells. Apptainer has the last word.
pub(crate) fn no_control_groups() -> Option<&'static str> {
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return Some("this machine has no unified control groups (cgroup v2)");
    }
    (!Path::new("/run/systemd/system").exists()).then_some("systemd does not run on this machine")
}

/// Why cores can't be limited by control groups that limit everything else. Many systems are set up like this, and
/// Apptainer would refuse all of it.
pub(crate) const NO_CPU: &str = "systemd does not delegate the controller cpu to users on this machine";

/// Systemd gives this user the controller of processors, as far as a look tells.
pub(crate) fn has_cpu() -> bool {
    let uid = rustix::process::getuid();
    let path = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers");
    // Root asks the system's own, which has all of them.
    uid.is_root() || std::fs::read_to_string(path).map_or(true, |all| names_cpu(&all))
}

fn names_cpu(controllers: &str) -> bool {
    controllers.split_whitespace().any(|name| name == "cpu")
}

/// The arguments that ask for control groups. None if no limit is asked for.
pub(crate) fn arguments(config: &Config) -> Vec<String> {
    arguments_with(config, has_cpu())
}

fn arguments_with(config: &Config, has_cpu: bool) -> Vec<String> {
    let limits = &config.settings.container;
    let mut args = Vec::new();
    if let Some(cores) = limits.cpu.filter(|_| has_cpu) {
        args.push(format!("--cpus={cores}"));
    }
    if let Some(mb) = limits.memory_mb {
        // As much as memory alone: no swap on top of it.
        args.extend([format!("--memory={mb}M"), format!("--memory-swap={mb}M")]);
    }
    if let Some(most) = config.settings.pids_limit {
        args.push(format!("--pids-limit={most}"));
    }
    args
}

/// What the instance's first shell does before it becomes the outpost: takes back what Apptainer sets for a person at a
/// prompt or keeps of this machine, and limits itself where nobody else does. In a namespace that is not its own it leaves the number of
/// processes alone.
pub(crate) fn script(config: &Config, keeper: &Keeper) -> String {
    let mut script = format!("unset PS1 PROMPT_COMMAND\nexport HOME={HOME}\n");
    if *keeper != Keeper::ControlGroups {
        // What another machine's kernel does has to be looked at there.
        let node = matches!(keeper, Keeper::Node(_));
        if let Some(most) = config.settings.pids_limit.filter(|_| node || counts_by_namespace()) {
            let (major, minor) = COUNTS_BY_NAMESPACE;
            let kernel = match node {
                true => format!("&& [ \"$a\" -gt {major} -o \"$a\" -eq {major} -a \"$b\" -ge {minor} ]"),
                false => String::new(),
            };
            if node {
                script += "IFS=.- read -r a b _ </proc/sys/kernel/osrelease\n";
            }
            // Shells differ in the letter.
            script += &format!(
                "read -r _ _ n </proc/self/uid_map\n\
                 if [ \"$n\" != 4294967295 ] {kernel}; then\n\
                 (ulimit -u {most}) 2>/dev/null && ulimit -u {most} || ulimit -p {most} 2>/dev/null\n\
                 fi\n"
            );
        }
        let kilobytes = match keeper {
            Keeper::Node(given) => *given,
            _ => config.settings.container.memory_mb.map(|mb| mb.saturating_mul(1024)),
        };
        if let Some(kilobytes) = kilobytes {
            script += &format!("ulimit -d {kilobytes} 2>/dev/null\n");
        }
    }
    script + "exec \"$@\"\n"
}

fn counts_by_namespace() -> bool {
    let release = rustix::system::uname();
    parse_release(&release.release().to_string_lossy()).is_some_and(|release| release >= COUNTS_BY_NAMESPACE)
}

fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A soft limit of a process, from `/proc/PID/limits`.
fn soft(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn held(name: Name, asked: Option<String>, support: Support, note: Option<String>) -> Held {
    match asked {
        Some(value) => Held { name, value, support: support.name().into(), note },
        None => {
            Held { name, value: "no limit".into(), support: Support::NotEnforced.name().into(), note: None }
        }
    }
}

/// The megabytes of the file that all files are in, if there is one.
fn disk_made(layout: &Layout) -> Option<u64> {
    std::fs::metadata(layout.disk()).ok().map(|meta| meta.len() >> 20)
}

/// One that was made earlier keeps its size, whatever is asked for now.
fn disk(config: &Config, made: Option<u64>) -> Held {
    let asked = config.settings.container.disk_mb;
    let made = made.filter(|_| config.settings.disk_image);
    let (size, support, note) = match (made, asked) {
        (None, _) => {
            let note = "singularity_disk_image: true keeps it, with all files in one file of that size";
            (asked, Support::NotEnforced, note.to_owned())
        }
        (Some(made), Some(asked)) if made != asked.max(SMALLEST_DISK) => {
            let note = format!(
                "container_disk is {asked} MB now, and the disk was made with {made} MB: `farshell env rm --files` \
                 removes it with all files, and the next call makes another; /tmp is not counted"
            );
            (Some(made), Support::Enforced, note)
        }
        (Some(made), _) => (Some(made), Support::Enforced, "/tmp is not counted".to_owned()),
    };
    held(Name::Disk, size.map(|mb| format!("{mb} MB")), support, Some(note))
}

impl Limits {
    /// How they hold in an instance, one of whose processes has this number.
    pub(crate) fn held(config: &Config, layout: &Layout, keeper: &Keeper, inner: Option<u32>) -> Self {
        let table = inner.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok());
        Self::from_table(config, disk_made(layout), keeper, &table.unwrap_or_default())
    }

    fn from_table(config: &Config, made: Option<u64>, keeper: &Keeper, table: &str) -> Self {
        let settings = &config.settings;
        let limits = &settings.container;
        let cores = limits.cpu.map(|cores| format!("{cores} cores"));
        let memory = limits.memory_mb.map(|mb| format!("{mb} MB"));
        let processes = settings.pids_limit.map(|most| most.to_string());
        let mut all = match keeper {
            Keeper::ControlGroups => vec![
                match arguments(config).iter().any(|arg| arg.starts_with("--cpus=")) {
                    true => held(Name::Cpu, cores, Support::Enforced, None),
                    false => held(Name::Cpu, cores, Support::NotEnforced, Some(NO_CPU.into())),
                },
                held(Name::Memory, memory, Support::Enforced, None),
                held(Name::Processes, processes, Support::Enforced, None),
            ],
            Keeper::Node(_) => Vec::new(),
            Keeper::Processes(why) => {
                let data = limits.memory_mb.map(|mb| mb << 20);
                let (support, note) = match data.is_some() && soft(table, "Max data size") == data {
                    true => (Support::Approximated, format!("for each process by itself: {why}")),
                    false => (Support::NotEnforced, why.clone()),
                };
                let memory = held(Name::Memory, memory, support, Some(note));
                let counted =
                    settings.pids_limit.is_some() && soft(table, "Max processes") == settings.pids_limit;
                let (support, note) = match counted {
                    // Other users inside, where there are any, are counted by themselves.
                    true if settings.extra_args.iter().any(|arg| arg == "--fakeroot" || arg == "-f") => {
                        (Support::Approximated, Some("for each user of the instance by itself".to_owned()))
                    }
                    true => (Support::Enforced, None),
                    false => (Support::NotEnforced, Some(why.clone())),
                };
                let processes = held(Name::Processes, processes, support, note);
                vec![held(Name::Cpu, cores, Support::NotEnforced, Some(why.clone())), memory, processes]
            }
        };
        all.insert(2.min(all.len()), disk(config, made));
        Self(all)
    }

    /// How they hold in a job, where Slurm keeps cores and memory or does not.
    pub(crate) fn of_job(
        config: &Config,
        layout: &Layout,
        options: &Options,
        (cores, memory): (bool, bool),
    ) -> Self {
        let by_slurm = |kept: bool| match kept {
            true => (Support::Enforced, Some("by Slurm".to_owned())),
            false => {
                (Support::NotEnforced, Some("Slurm counts it, and does not keep jobs to it here".to_owned()))
            }
        };
        let (support, note) = by_slurm(cores);
        let cpu = held(Name::Cpu, options.cpus.clone(), support, note);
        let (support, note) = match options.memory_kb {
            Some(_) if !memory => (
                Support::Approximated,
                Some("Slurm does not keep jobs to it here; for each process by itself".to_owned()),
            ),
            _ => by_slurm(memory),
        };
        let memory = held(Name::Memory, options.memory.clone(), support, note);
        let note = "by nodes with Linux 5.14 or later".to_owned();
        let most = config.settings.pids_limit.map(|most| most.to_string());
        let processes = held(Name::Processes, most, Support::Approximated, Some(note));
        Self(vec![cpu, memory, disk(config, disk_made(layout)), processes])
    }

    /// Control groups keep them: nothing else enforces these two on this machine.
    pub(crate) fn are_in_control_groups(&self) -> bool {
        let by_groups = |held: &Held| {
            matches!(held.name, Name::Cpu | Name::Memory) && held.support == Support::Enforced.name()
        };
        self.0.iter().any(by_groups)
    }

    pub(crate) fn told(&self) -> Vec<Limit> {
        let support = |text: &str| {
            let all = [Support::Enforced, Support::Approximated];
            all.into_iter().find(|support| support.name() == text).unwrap_or(Support::NotEnforced)
        };
        let one = |held: &Held| Limit {
            name: match held.name {
                Name::Cpu => "cpu",
                Name::Memory => "memory",
                Name::Disk => "disk",
                Name::Processes => "processes",
            },
            value: held.value.clone(),
            support: support(&held.support),
            note: held.note.clone(),
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_engine::backend::TaskName;

    fn shown(config: &Config, keeper: &Keeper, table: &str) -> String {
        let one = |l: Limit| format!("{} {} {}", l.name, l.value, l.support.name());
        Limits::from_table(config, Some(100), keeper, table)
            .told()
            .into_iter()
            .map(one)
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn what_holds_is_what_was_read_back() {
        let mut config = sample();
        config.settings.container.cpu = Some(1.5);
        config.settings.container.memory_mb = Some(64);
        config.settings.container.disk_mb = Some(100);
        let nobody = Keeper::Processes("no systemd".into());
        assert_eq!(
            shown(&config, &Keeper::ControlGroups, ""),
            "cpu 1.5 cores enforced, memory 64 MB enforced, disk 100 MB not enforced, processes 256 enforced"
        );
        assert!(Limits::from_table(&config, None, &Keeper::ControlGroups, "").are_in_control_groups());
        assert!(!Limits::from_table(&config, None, &nobody, "").are_in_control_groups());
        assert_eq!(
            shown(&config, &nobody, ""),
            "cpu 1.5 cores not enforced, memory 64 MB not enforced, disk 100 MB not enforced, processes 256 not enforced"
        );
        let table = "Limit  Soft Limit\nMax data size             67108864   67108864   bytes\n\
                     Max processes             256        256        processes\n";
        config.settings.disk_image = true;
        assert_eq!(
            shown(&config, &nobody, table),
            "cpu 1.5 cores not enforced, memory 64 MB approximated, disk 100 MB enforced, processes 256 enforced"
        );
        config.settings.extra_args = vec!["--fakeroot".into()];
        assert!(shown(&config, &nobody, table).ends_with("processes 256 approximated"));
        config.settings.pids_limit = None;
        assert!(shown(&config, &nobody, table).ends_with("processes no limit not enforced"));
    }

    #[test]
    fn cores_alone_are_left_out_where_users_have_no_such_controller() {
        assert!(names_cpu("cpuset cpu io memory pids\n") && !names_cpu("cpuset memory pids\n"));
        let mut config = sample();
        config.settings.container.cpu = Some(1.5);
        config.settings.container.memory_mb = Some(64);
        let all = ["--cpus=1.5", "--memory=64M", "--memory-swap=64M", "--pids-limit=256"];
        assert_eq!(arguments_with(&config, true), all);
        assert_eq!(arguments_with(&config, false), all[1..]);
    }

    #[test]
    fn a_disk_is_told_with_the_size_that_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.settings.scratch_dir = Some(dir.path().into());
        config.settings.container.disk_mb = Some(200);
        let layout = Layout::new(&config, &TaskName::new("t").unwrap()).unwrap();
        std::fs::create_dir_all(&layout.files).unwrap();
        let told = |config: &Config| {
            let held = disk(config, disk_made(&layout));
            (held.value, held.support, held.note.unwrap())
        };
        config.settings.disk_image = true;
        assert_eq!(told(&config).1, "not enforced");
        std::fs::File::create(layout.disk()).unwrap().set_len(100 << 20).unwrap();
        let (value, support, note) = told(&config);
        assert_eq!((value.as_str(), support.as_str()), ("100 MB", "enforced"));
        assert!(note.contains("container_disk is 200 MB now"), "{note}");
        config.settings.container.disk_mb = Some(100);
        assert_eq!(told(&config).2, "/tmp is not counted");
        config.settings.disk_image = false;
        assert_eq!(told(&config).1, "not enforced");
    }

    #[test]
    fn a_process_of_a_job_may_have_as_much_memory_as_the_job() {
        use farshell_config::settings::Slurm;
        let told = |memory: Option<&str>, extra: &[&str]| {
            let mut config = sample();
            config.settings.container.memory_mb = Some(5120);
            let extra = extra.iter().map(|arg| (*arg).to_owned()).collect();
            config.settings.slurm = Some(Slurm { memory: memory.map(Into::into), extra, ..Slurm::default() });
            let options = Options::of(&config).unwrap().unwrap();
            let script = script(&config, &Keeper::Node(options.memory_kb));
            let limit = script.lines().find_map(|line| line.strip_prefix("ulimit -d "));
            let limit = limit.map(|limit| limit.trim_end_matches(" 2>/dev/null").to_owned());
            let layout = Layout::new(&config, &TaskName::new("t").unwrap()).unwrap();
            let memory = Limits::of_job(&config, &layout, &options, (false, false)).told().swap_remove(1);
            (limit, format!("{} {}", memory.value, memory.support.name()))
        };
        let some = |kb: &str, told: &str| (Some(kb.to_owned()), told.to_owned());
        assert_eq!(told(None, &[]), some("5242880", "5120M approximated"));
        assert_eq!(told(Some("32G"), &[]), some("33554432", "32G approximated"));
        assert_eq!(told(Some("0"), &[]), (None, "0 not enforced".into()));
        assert_eq!(told(Some("1.5G"), &[]), (None, "1.5G not enforced".into()));
        assert_eq!(told(None, &["--mem-per-cpu=1G"]), (None, "no limit not enforced".into()));
    }

    #[test]
    fn kernels_are_compared_by_number() {
        for (text, expected) in [
            ("6.18.44-fc", Some((6, 18))),
            ("5.4.0-100-generic", Some((5, 4))),
            ("4.18.0-553.el8", Some((4, 18))),
            ("x", None),
        ] {
            assert_eq!(parse_release(text), expected, "{text}");
        }
    }
}
