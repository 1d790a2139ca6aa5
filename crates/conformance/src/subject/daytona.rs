//! Sandboxes of an emulated Daytona, which `scripts/rig/daytona.sh` brings up.

use super::Subject;
use farshell_config::settings::{ContainerSettings, DaytonaSettings};
use farshell_daytona::{Config, Daytona};
use farshell_engine::backend::{Backend, TaskName};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Everything works.
pub(super) const CALM: Emulated = Emulated { name: "daytona", url: "FARSHELL_TEST_DAYTONA", patience: 3 };

/// No websocket comes through.
pub(super) const SLOWER: Emulated =
    Emulated { name: "daytona-slower", url: "FARSHELL_TEST_DAYTONA_SLOWER", patience: 6 };

/// Requests fail and connections break at any moment.
pub(super) const STORM: Emulated =
    Emulated { name: "daytona-storm", url: "FARSHELL_TEST_DAYTONA_STORM", patience: 6 };

/// Each has its sandboxes below it, in a directory of its name.
const DIR: &str = "FARSHELL_TEST_DAYTONA_DIR";

#[derive(Debug)]
pub(super) struct Emulated {
    name: &'static str,
    /// The variable that holds its address.
    url: &'static str,
    patience: u32,
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("no {name}; scripts/test daytona sets it"))
}

impl Subject for Emulated {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Result<(), String> {
        variable(self.url).and(variable(DIR)).map(|_| ())
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        let environment = [
            ("DAYTONA_API_URL", variable(self.url).unwrap_or_default()),
            ("DAYTONA_API_KEY", "dtn_test".into()),
        ];
        Box::new(Daytona::new(Config {
            home: home.to_owned(),
            settings: DaytonaSettings {
                image: "debian:12".into(),
                target: None,
                auto_stop_minutes: 15,
                auto_archive_minutes: 10_080,
                auto_delete_minutes: 0,
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(1024),
                    disk_mb: Some(3072),
                    persistent: true,
                },
            },
            environment: environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            files: BTreeMap::new(),
        }))
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("daytona_image".to_owned(), "debian:12".to_owned())])
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    /// A terminal passes on four kilobytes at a time, and an emulator is at its other end.
    fn patience(&self) -> u32 {
        self.patience
    }

    /// A terminal outlives whoever was connected to it, and so does a bridge between two pipes. They wait for a sign of
    /// life.
    fn notices(&self) -> Duration {
        Duration::from_secs(if self.url == SLOWER.url { 61 } else { 16 })
    }

    /// The sandbox itself is Daytona's to stop, some minutes later.
    fn awake(&self, _: &Path, _: &TaskName) -> Vec<String> {
        Vec::new()
    }

    fn leftovers(&self, _: &Path, task: &TaskName) -> Vec<String> {
        // The emulator notes in each sandbox's directory what it is called.
        let dirs = std::fs::read_dir(Path::new(&variable(DIR).unwrap_or_default()).join(self.name));
        let named = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("name")).ok();
        let names = dirs.into_iter().flatten().flatten().filter_map(named);
        names.filter(|name| name.ends_with(task.as_str())).map(|name| format!("sandbox {name}")).collect()
    }
}
