//! Can the host serve here and now?

use crate::host::Host;
use crate::script::Wish;
use crate::{client, error};
use farshell_engine::Error;
use farshell_engine::backend::Finding;
use std::time::Duration;

fn problem(error: &Error) -> Finding {
    let hint = error.hint.clone().unwrap_or_else(|| "see docs/backends/ssh.md".into());
    Finding::problem(error.message.clone(), hint)
}

pub(crate) async fn findings(host: &Host) -> Vec<Finding> {
    let config = &host.config;
    let mut findings = Vec::new();
    match client::run(config, "asking ssh for its version", &["-V".into()], Duration::from_secs(5)).await {
        Ok(Some((_, version))) => findings.push(Finding::good(error::plain(&version))),
        Ok(None) => findings.push(Finding::warning("ssh does not say its version", "is it OpenSSH's?")),
        Err(error) => return vec![problem(&error)],
    }
    if let Err(error) = config.check() {
        findings.push(problem(&error));
        return findings;
    }
    let (facts, answers) = match host.ask("", &Wish::Check).await {
        Ok(asked) => asked,
        Err(error) => {
            findings.push(problem(&error));
            return findings;
        }
    };
    let to = config.destination();
    findings.push(Finding::good(format!("{to} is {}, {} on {}", facts.name, facts.system, facts.arch)));
    match facts.check(config) {
        Ok(()) if facts.have => findings.push(Finding::good(format!("outpost installed in {}", facts.base))),
        Ok(()) => {
            findings.push(Finding::good(format!("outpost at hand; it will be installed in {}", facts.base)));
        }
        Err(error) => findings.push(problem(&error)),
    }
    if answers.has("bash") {
        findings.push(Finding::good("bash found"));
    } else {
        findings.push(Finding::warning(
            "no bash on the host: sessions use sh, which can't keep functions when a command ends the shell",
            "install bash there",
        ));
    }
    if !answers.has("proc") {
        findings.push(Finding::problem(
            "/proc is not mounted on the host",
            "mount it: sessions and kills need it",
        ));
    }
    if answers.has("killer") {
        findings.push(Finding::warning(
            "the host ends what an account runs when its last login ends (KillUserProcesses=yes)",
            "on the host: `loginctl enable-linger`, or KillUserProcesses=no in logind.conf; otherwise processes and \
             sessions do not outlive a lost connection",
        ));
    }
    findings
}
