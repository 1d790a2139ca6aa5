//! Can the engine serve here and now?

use crate::config::Config;
use crate::engine::Engine;
use crate::install::{install, outpost_for};
use farshell_engine::Error;
use farshell_engine::backend::Finding;

pub(crate) fn problem(error: &Error) -> Finding {
    let hint = error.hint.clone().unwrap_or_else(|| "see docs/backends/docker.md".into());
    Finding::problem(error.message.clone(), hint)
}

pub(crate) async fn findings(engine: &Engine, config: &Config) -> Vec<Finding> {
    let info = match engine.info().await {
        Ok(info) => info,
        Err(error) => return vec![problem(&error)],
    };
    let settings = &config.settings;
    let limits = &settings.container;
    let mut findings = Vec::new();
    let version = info.server_version.as_deref().unwrap_or("?");
    let system = info.operating_system.as_deref().unwrap_or("?");
    let (address, source) = (&engine.endpoint.address, &engine.endpoint.source);
    findings.push(Finding::good(format!("engine {version} on {system} at {address} ({source})")));

    let arch = info.architecture.as_deref().unwrap_or(std::env::consts::ARCH);
    match outpost_for(arch) {
        Ok(outpost) if engine.shares_files() => match install(&config.home, outpost) {
            Ok(_) => findings.push(Finding::good("outpost installed")),
            Err(error) => findings.push(problem(&error)),
        },
        Ok(_) => findings.push(Finding::good(format!("outpost for {arch} at hand"))),
        Err(error) => findings.push(problem(&error)),
    }
    match engine.image(&settings.image).await {
        Ok(Some(_)) => findings.push(Finding::good(format!("image {} is there", settings.image))),
        Ok(None) => findings.push(Finding::warning(
            format!("image {} is not there yet", settings.image),
            format!("it is pulled on first use; `docker pull {}` does it now", settings.image),
        )),
        Err(error) => findings.push(problem(&error)),
    }
    for (name, asked, can) in [
        ("container_cpu", limits.cpu.is_some(), info.cpu_cfs_quota),
        ("container_memory", limits.memory_mb.is_some(), info.memory_limit),
        ("docker_pids_limit", settings.pids_limit.is_some(), info.pids_limit),
    ] {
        if asked && can == Some(false) {
            let hint = format!("enable the control group it needs, or set {name} to 0");
            findings.push(Finding::problem(format!("the engine can't keep {name}"), hint));
        }
    }
    if limits.memory_mb.is_some() && info.swap_limit == Some(false) {
        findings.push(Finding::warning(
            "the engine can't limit swap: a container may use more memory than container_memory, by swapping",
            "boot the machine with swapaccount=1, or turn swap off",
        ));
    }
    #[expect(clippy::cast_precision_loss, reason = "machines have few processors")]
    if let (Some(cpu), Some(cpus)) = (limits.cpu, info.cpus)
        && cpu > cpus as f64
    {
        let message = format!("container_cpu is {cpu}, and the engine's machine has {cpus} processors");
        findings.push(Finding::problem(message, "lower container_cpu"));
    }
    if let Some(disk) = limits.disk_mb {
        let driver = info.driver.as_deref().unwrap_or("?");
        if !limits_disk(driver, &info.driver_status) {
            findings.push(Finding::warning(
                format!("container_disk ({disk} MB) is not enforced: the storage driver {driver} can't here"),
                "it can with overlay2 on xfs mounted with pquota, btrfs or zfs",
            ));
        }
    }
    findings
}

/// Whether a storage driver can limit a container's files.
fn limits_disk(driver: &str, status: &[Vec<String>]) -> bool {
    let backing = status.iter().find(|pair| pair.first().is_some_and(|name| name == "Backing Filesystem"));
    let xfs = backing.and_then(|pair| pair.get(1)).is_some_and(|name| name == "xfs");
    match driver {
        "btrfs" | "zfs" | "devicemapper" | "windowsfilter" => true,
        "overlay2" | "overlay" => xfs,
        _ => false,
    }
}
