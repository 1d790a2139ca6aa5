//! Can jobs be handed in here and now?

use super::control::{Control, PROGRAMS};
use super::options::Options;
use crate::check::problem;
use crate::config::Config;
use farshell_engine::backend::Finding;

/// The first release in which something can be run beside a job's other processes without taking their place.
const OLDEST: (u32, u32) = (20, 11);

pub(crate) async fn findings(config: &Config, options: &Options) -> Vec<Finding> {
    let control = Control::new(config);
    let missing: Vec<Finding> =
        PROGRAMS.iter().filter_map(|name| control.find(name).err()).map(|error| problem(&error)).collect();
    if !missing.is_empty() {
        return missing;
    }
    let mut findings = Vec::new();
    match control.ask("sbatch", &["--version"]).await {
        Ok(said) => match version(&said.stdout) {
            Some(version) if version < OLDEST => findings.push(Finding::problem(
                format!("{} is too old: jobs need Slurm 20.11 or later", said.stdout.trim()),
                "ask the administrator of this cluster for a newer one, or unset singularity_slurm",
            )),
            _ => findings.push(Finding::good(said.stdout.trim().to_owned())),
        },
        Err(error) => findings.push(problem(&error)),
    }
    findings.push(attempt(control, options).await);
    findings.extend(time(config));
    findings
}

/// What runs in a job is never ended by a lease, so that its time is the only end that is sure.
fn time(config: &Config) -> Option<Finding> {
    let unset = config.settings.slurm.as_ref().is_some_and(|slurm| slurm.time.is_none());
    unset.then(|| {
        Finding::warning(
            "singularity_slurm.time is not set: a job in which something still runs goes on until the partition's own \
             limit, also if Farshell is gone",
            "set singularity_slurm.time to the longest that a task should take, such as 4:00:00",
        )
    })
}

/// Asks Slurm whether it would take such a job, and hands in none.
async fn attempt(control: Control<'_>, options: &Options) -> Finding {
    let mut args = vec!["--test-only", "--chdir=/"];
    args.extend(options.arguments.iter().map(String::as_str));
    match control.tell("sbatch", &args, Some("#!/bin/sh\n")).await {
        Ok(said) if said.good => Finding::good(format!("Slurm takes such jobs: {}", said.why())),
        Ok(said) => Finding::problem(
            format!("Slurm refuses such jobs: {}", said.why()),
            "change singularity_slurm, or container_cpu and container_memory, which are asked for; `sinfo` shows partitions",
        ),
        Err(error) => problem(&error),
    }
}

/// `slurm 23.02.1`, `slurm-wlm 22.05.8`
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_without_a_time_are_warned_of() {
        use crate::config::sample;
        use farshell_config::settings::Slurm;
        let mut config = sample();
        config.settings.slurm = Some(Slurm::default());
        assert!(time(&config).unwrap().what.contains("singularity_slurm.time"));
        config.settings.slurm = Some(Slurm { time: Some("4:00:00".into()), ..Slurm::default() });
        assert!(time(&config).is_none());
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("slurm-wlm 22.05.8\n"), Some((22, 5)));
        assert!(version("slurm 20.02.7").unwrap() < OLDEST);
        assert_eq!(version("?"), None);
    }
}
