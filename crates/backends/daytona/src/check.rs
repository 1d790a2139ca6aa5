//! Can Daytona serve here and now?

use crate::client::Client;
use crate::config::Config;
use crate::error::explain;
use farshell_engine::backend::Finding;
use farshell_engine::{Error, Result};
use std::collections::BTreeMap;

fn problem(error: &Error) -> Finding {
    let hint = error.hint.clone().unwrap_or_else(|| "see docs/backends/daytona.md".into());
    Finding::problem(error.message.clone(), hint)
}

pub(crate) async fn findings(client: Result<Client>, config: &Config) -> Vec<Finding> {
    let client = match client {
        Ok(client) => client,
        Err(error) => return vec![problem(&error)],
    };
    let mut findings = Vec::new();
    // Listing needs a key that is right, and costs nothing.
    match client.list(&BTreeMap::new(), Some(1)).await {
        Ok(_) => findings.push(Finding::good(format!("{} answers, and the key is right", client.host()))),
        Err(error) => return vec![problem(&explain("asking Daytona", error))],
    }
    let settings = &config.settings;
    let resources = config.resources();
    findings.push(Finding::good(format!(
        "sandboxes are made from {} with {} cores, {} GiB of memory and {} GiB of disk",
        settings.image, resources.cpu, resources.memory, resources.disk
    )));
    if let Some(note) = config.disk_note() {
        findings.push(Finding::warning(note, "set container_disk to 10240 or less"));
    }
    if settings.auto_stop_minutes == 0 {
        findings.push(Finding::warning(
            "Daytona never stops a sandbox by itself (daytona_auto_stop_minutes is 0): after a crash of Farshell it is paid for until somebody stops it",
            "set daytona_auto_stop_minutes to 15 or so",
        ));
    }
    if settings.auto_delete_minutes > 0 && settings.container.persistent {
        findings.push(Finding::warning(
            format!(
                "Daytona deletes a sandbox with its files {} minutes after it was stopped",
                settings.auto_delete_minutes
            ),
            "set daytona_auto_delete_minutes to 0 to keep them",
        ));
    }
    if farshell_bundle::for_arch("x86_64").is_none() {
        findings.push(Finding::problem(
            "this build of farshell carries no outpost for x86_64, which Daytona's sandboxes are",
            "install a build that does",
        ));
    }
    findings
}
