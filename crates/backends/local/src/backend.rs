//! [`Backend`] for this machine.

use crate::config::Config;
use crate::install::install;
use crate::place::{LocalPlace, run_dir};
use crate::survey;
use farshell_engine::backend::{
    Backend, BoxFuture, Capabilities, Finding, Found, Place, Progress, Spec, Support,
};
use farshell_engine::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// This machine.
#[derive(Clone, Debug)]
pub struct Local {
    config: Config,
}

impl Local {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    fn place(&self, spec: &Spec) -> Result<LocalPlace> {
        let arch = std::env::consts::ARCH;
        let outpost = farshell_bundle::for_arch(arch).ok_or_else(|| {
            let message = format!("this build of farshell carries no outpost for {arch}");
            Error::new(Kind::Unavailable, "preparing the local backend", message)
        })?;
        let program = install(&self.config.home, outpost)?;
        let dir = run_dir(&self.config.home, &spec.task);
        survey::note_machine(&self.config.home);
        Ok(LocalPlace::new(program, dir, spec.lease))
    }
}

impl Backend for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits_cpu: Support::NotEnforced,
            limits_memory: Support::NotEnforced,
            limits_disk: Support::NotEnforced,
            limits_processes: Support::NotEnforced,
            isolates: false,
            persists_files: true,
            suspends: false,
        }
    }

    fn provision<'a>(&'a self, spec: &'a Spec, _: &'a dyn Progress) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        Box::pin(async move { Ok(Box::new(self.place(spec)?) as Box<dyn Place>) })
    }

    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        Box::pin(async move {
            // A directory without an outpost counts: something that a killed one started may still run.
            if !run_dir(&self.config.home, &spec.task).exists() {
                return Ok(None);
            }
            Ok(Some(Box::new(self.place(spec)?) as Box<dyn Place>))
        })
    }

    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(survey::all(&self.config.home))
    }

    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match survey::task_here(&found.name) {
                // A new outpost finds what a killed one left, and ends it.
                Some(task) => {
                    let spec = Spec { task, lease: Duration::from_secs(60), settings: BTreeMap::new() };
                    self.place(&spec)?.destroy().await
                }
                None => survey::remove_old(&self.config.home, &found.name),
            }
        })
    }

    fn check(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move {
            let mut findings = Vec::new();
            match farshell_bundle::for_arch(std::env::consts::ARCH) {
                Some(outpost) => match install(&self.config.home, outpost) {
                    Ok(path) => {
                        findings.push(Finding::good(format!("outpost installed at {}", path.display())));
                    }
                    Err(error) => findings.push(Finding::problem(
                        error.to_string(),
                        error.hint.unwrap_or_else(|| {
                            "make the directory writable, or set HERMES_HOME to one that is".into()
                        }),
                    )),
                },
                None => findings.push(Finding::problem(
                    format!("this build carries no outpost for {}", std::env::consts::ARCH),
                    "install a build of farshell for this architecture",
                )),
            }
            let shells = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
            let on_path = std::env::var_os("PATH")
                .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("bash").is_file()));
            if on_path || shells.iter().any(|shell| Path::new(shell).is_file()) {
                findings.push(Finding::good("bash found"));
            } else {
                findings.push(Finding::warning(
                    "no bash: sessions use sh, which can't keep functions when a command ends the shell",
                    "install bash",
                ));
            }
            if !Path::new("/proc/self/fd").is_dir() {
                findings
                    .push(Finding::problem("/proc is not mounted", "mount it: sessions and kills need it"));
            }
            findings
        })
    }
}
