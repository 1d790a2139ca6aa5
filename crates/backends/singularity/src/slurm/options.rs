//! What a job is asked for: the options of `sbatch`.
//!
//! They are arguments of a program, and nothing of them gets into a script. What would name another job, move its output
//! or run something else is refused by name; so is what this release does not know.

use crate::config::Config;
use farshell_engine::{Error, Kind, Result};

const FLAGS: [&str; 9] = [
    "--contiguous",
    "--exclusive",
    "--oversubscribe",
    "-s",
    "--reboot",
    "--spread-job",
    "--use-min-nodes",
    "--gpu-freq",
    "--nice",
];

const VALUED: [&str; 44] = [
    "--acctg-freq",
    "--batch",
    "--begin",
    "-b",
    "--constraint",
    "-C",
    "--core-spec",
    "-S",
    "--cores-per-socket",
    "--cpu-freq",
    "--cpus-per-gpu",
    "--deadline",
    "--delay-boot",
    "--dependency",
    "-d",
    "--exclude",
    "-x",
    "--extra-node-info",
    "-B",
    "--gpu-bind",
    "--gpus-per-node",
    "--gres",
    "--gres-flags",
    "--hint",
    "--licenses",
    "-L",
    "--mail-type",
    "--mail-user",
    "--mcs-label",
    "--mem-bind",
    "--mem-per-cpu",
    "--mem-per-gpu",
    "--mincpus",
    "--nodelist",
    "-w",
    "--prefer",
    "--priority",
    "--qos",
    "-q",
    "--reservation",
    "--switches",
    "--threads-per-core",
    "--tmp",
    "--wckey",
];

/// What to use in the place of options that have a setting.
const INSTEAD: [(&str, &str); 13] = [
    ("--partition", "singularity_slurm.partition"),
    ("-p", "singularity_slurm.partition"),
    ("--time", "singularity_slurm.time"),
    ("-t", "singularity_slurm.time"),
    ("--cpus-per-task", "singularity_slurm.cpus"),
    ("-c", "singularity_slurm.cpus"),
    ("--mem", "singularity_slurm.memory"),
    ("--gpus", "singularity_slurm.gpus"),
    ("-G", "singularity_slurm.gpus"),
    ("--account", "singularity_slurm.account"),
    ("-A", "singularity_slurm.account"),
    ("--nodes", "nothing: an instance is on one node"),
    ("-N", "nothing: an instance is on one node"),
];

/// The settings as arguments, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) arguments: Vec<String>,
    /// For people: `2 cores`, `4G`.
    pub(crate) cpus: Option<String>,
    pub(crate) memory: Option<String>,
    /// The same as a number, where that is certain.
    pub(crate) memory_kb: Option<u64>,
}

impl Options {
    /// `None`: instances are no jobs.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>> {
        let Some(slurm) = &config.settings.slurm else { return Ok(None) };
        let limits = &config.settings.container;
        let mut arguments: Vec<String> = ["--nodes=1", "--ntasks=1", "--no-requeue"].map(Into::into).into();
        let mut add = |name: &str, key: &str, value: Option<&str>, takes: &str| -> Result<()> {
            let Some(value) = value else { return Ok(()) };
            let fits = |c: char| c.is_ascii_alphanumeric() || takes.contains(c);
            if value.is_empty() || value.starts_with('-') || !value.chars().all(fits) {
                let message =
                    format!("singularity_slurm.{key} is {value:?}, which Slurm would not understand");
                return Err(invalid(message));
            }
            arguments.push(format!("--{name}={value}"));
            Ok(())
        };
        // What the container is limited to is asked for, unless something else is.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked when it was read"
        )]
        let cores = slurm.cpus.or_else(|| limits.cpu.map(|cores| cores.ceil().max(1.0) as u64));
        let memory = slurm.memory.clone().or_else(|| {
            let by_extra = |arg: &String| arg.starts_with("--mem-per-");
            limits.memory_mb.filter(|_| !slurm.extra.iter().any(by_extra)).map(|mb| format!("{mb}M"))
        });
        add("partition", "partition", slurm.partition.as_deref(), "_.,-+")?;
        add("time", "time", slurm.time.as_deref(), ":-")?;
        add("cpus-per-task", "cpus", cores.map(|cores| cores.to_string()).as_deref(), "")?;
        add("mem", "memory", memory.as_deref(), ".")?;
        add("gpus", "gpus", slurm.gpus.as_deref(), "_.:,-")?;
        add("account", "account", slurm.account.as_deref(), "_.@-")?;
        check(&slurm.extra)?;
        arguments.extend(slurm.extra.iter().cloned());
        let memory_kb = memory.as_deref().and_then(kilobytes);
        Ok(Some(Self { arguments, cpus: cores.map(|cores| format!("{cores} cores")), memory, memory_kb }))
    }
}

/// `32G`, `500`: megabytes unless it says otherwise. Nothing if it is all of a node's memory, or not understood.
fn kilobytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = match unit.to_ascii_uppercase().as_str() {
        "K" => 0,
        "" | "M" => 1,
        "G" => 2,
        "T" => 3,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1024_u64.pow(power)).filter(|kilobytes| *kilobytes > 0)
}

fn check(args: &[String]) -> Result<()> {
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let refuse = |why: &str| Err(invalid(format!("singularity_slurm.extra holds {arg:?}: {why}")));
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg.as_str(), None),
        };
        if arg.contains(char::is_control) {
            return refuse("it holds control characters");
        }
        // Some flags may have a value: --exclusive=user.
        if FLAGS.contains(&name) {
            continue;
        }
        if VALUED.contains(&name) {
            let bad = |value: &str| value.starts_with('-') || value.contains(char::is_control);
            if value.is_none() && rest.next().is_none_or(|value| bad(value)) {
                return refuse("its value is missing");
            }
            continue;
        }
        if let Some((_, instead)) = INSTEAD.iter().find(|(other, _)| *other == name) {
            return refuse(&format!("use {instead}"));
        }
        return refuse("it is not among those that are passed on; see docs/backends/singularity.md");
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(Kind::Invalid, "preparing the singularity backend", message)
        .with_hint("change singularity_slurm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_config::settings::Slurm;

    fn of(change: impl FnOnce(&mut Slurm)) -> Result<Vec<String>> {
        let mut config = sample();
        let mut slurm = Slurm::default();
        change(&mut slurm);
        config.settings.slurm = Some(slurm);
        Ok(Options::of(&config)?.unwrap().arguments)
    }

    #[test]
    fn each_setting_is_one_argument() {
        let args = of(|s| {
            s.partition = Some("gpu,debug".into());
            s.time = Some("1-02:30:00".into());
            s.cpus = Some(4);
            s.memory = Some("8G".into());
            s.gpus = Some("a100:2".into());
            s.account = Some("lab_1".into());
            s.extra = ["--qos", "high", "--exclusive=user", "--constraint=a&b"].map(Into::into).into();
        });
        assert_eq!(
            args.unwrap()[3..],
            [
                "--partition=gpu,debug",
                "--time=1-02:30:00",
                "--cpus-per-task=4",
                "--mem=8G",
                "--gpus=a100:2",
                "--account=lab_1",
                "--qos",
                "high",
                "--exclusive=user",
                "--constraint=a&b"
            ]
        );
    }

    #[test]
    fn the_containers_limits_are_asked_for_unless_something_else_is() {
        let mut config = sample();
        assert_eq!(Options::of(&config).unwrap(), None);
        config.settings.slurm = Some(Slurm::default());
        config.settings.container.cpu = Some(1.5);
        config.settings.container.memory_mb = Some(512);
        let args = |config: &Config| Options::of(config).unwrap().unwrap().arguments[3..].to_vec();
        assert_eq!(args(&config), ["--cpus-per-task=2", "--mem=512M"]);
        config.settings.slurm.as_mut().unwrap().extra = vec!["--mem-per-cpu=1G".into()];
        assert_eq!(args(&config), ["--cpus-per-task=2", "--mem-per-cpu=1G"]);
    }

    #[test]
    fn memory_is_understood_as_slurm_does_or_not_at_all() {
        for (text, expected) in [
            ("500", Some(500 << 10)),
            ("500K", Some(500)),
            ("500m", Some(500 << 10)),
            ("32G", Some(32 << 20)),
            ("2T", Some(2 << 30)),
            ("0", None),
            ("1.5G", None),
            ("4GB", None),
            ("G", None),
            ("99999999999999999999", None),
            ("99999999999999999T", None),
        ] {
            assert_eq!(kilobytes(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_hostile_is_refused() {
        let hostile = ["", "-p", "a b", "a\n#SBATCH --wrap=x", "$(id)", "a;b", "--wrap=x", "a'b", "ü"];
        for text in hostile {
            for set in [
                (|s, t| s.partition = Some(t)) as fn(&mut Slurm, String),
                |s, t| s.time = Some(t),
                |s, t| s.memory = Some(t),
                |s, t| s.gpus = Some(t),
                |s, t| s.account = Some(t),
            ] {
                assert_eq!(of(|s| set(s, text.into())).unwrap_err().kind, Kind::Invalid, "{text}");
            }
        }
        for extra in [
            "--wrap=id",
            "--output=/tmp/x",
            "--job-name=x",
            "--comment=x",
            "--array=1-9",
            "--uid=0",
            "--export=ALL",
            "--qos",
            "--requeue",
            "--clusters=other",
            "script.sh",
            "",
            "--qos=a\n#SBATCH --wrap=x",
        ] {
            assert_eq!(of(|s| s.extra = vec![extra.into()]).unwrap_err().kind, Kind::Invalid, "{extra}");
        }
        let error = of(|s| s.extra = vec!["-t".into(), "5".into()]).unwrap_err();
        assert!(error.message.contains("use singularity_slurm.time"), "{error}");
    }
}
