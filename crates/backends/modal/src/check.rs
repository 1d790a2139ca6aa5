//! Can Modal serve here and now?

use crate::client::Client;
use crate::config::Config;
use crate::error::explain;
use crate::install;
use farshell_engine::backend::Finding;
use farshell_engine::{Error, Result};

fn problem(error: &Error) -> Finding {
    let hint = error.hint.clone().unwrap_or_else(|| "see docs/backends/modal.md".into());
    Finding::problem(error.message.clone(), hint)
}

pub(crate) async fn findings(client: Result<Client>, config: &Config) -> Vec<Finding> {
    let client = match client {
        Ok(client) => client,
        Err(error) => return vec![problem(&error)],
    };
    let mut findings = Vec::new();
    match client.hello().await {
        Ok(warnings) => {
            findings.push(Finding::good(format!("{} answers, and the token is right", client.hosts())));
            for warning in warnings.into_iter().chain(client.warnings()) {
                findings.push(Finding::warning(format!("Modal says: {warning}"), "see modal.com"));
            }
        }
        Err(error) => return vec![problem(&explain("asking Modal", error))],
    }
    let settings = &config.settings;
    let resources = config.resources();
    let amount = |value: u32, unit: &str| match value {
        0 => format!("Modal's least of {unit}"),
        value => format!("{value} {unit}"),
    };
    findings.push(Finding::good(format!(
        "sandboxes are made from {} with {} and {}",
        settings.image,
        amount(resources.milli_cpu, "thousandths of a physical core"),
        amount(resources.memory_mb, "MB of memory"),
    )));
    if let Some(note) = config.disk_note() {
        findings.push(Finding::good(note));
    }
    if let Err(error) = install::outpost() {
        findings.push(problem(&error));
    }
    findings
}
