//! Sandboxes of an emulated Modal, which `scripts/rig/modal.sh` brings up.

use super::Subject;
use farshell_config::choice::ModalMode;
use farshell_config::settings::{ContainerSettings, ModalSettings};
use farshell_config::table::DEFAULT_IMAGE;
use farshell_engine::backend::{Backend, TaskName};
use farshell_modal::{Config, Modal};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Emulated;

const URL: &str = "FARSHELL_TEST_MODAL";
const DIR: &str = "FARSHELL_TEST_MODAL_DIR";

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("no {name}; scripts/test modal sets it"))
}

impl Subject for Emulated {
    fn name(&self) -> &'static str {
        "modal"
    }

    fn probe(&self) -> Result<(), String> {
        variable(URL).and(variable(DIR)).map(|_| ())
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        let environment = [
            ("MODAL_SERVER_URL", variable(URL).unwrap_or_default()),
            ("MODAL_TOKEN_ID", "ak-test".into()),
            ("MODAL_TOKEN_SECRET", "as-test".into()),
        ];
        Box::new(Modal::new(Config::new(
            home.to_owned(),
            ModalSettings {
                image: DEFAULT_IMAGE.into(),
                mode: ModalMode::Auto,
                gpu: None,
                region: None,
                timeout: Duration::from_secs(86_400),
                idle_timeout: Duration::from_secs(300),
                network: true,
                network_allow: Vec::new(),
                managed_connect_timeout: Duration::from_secs(1),
                managed_poll_read_timeout: Duration::from_secs(5),
                managed_cancel_read_timeout: Duration::from_secs(5),
                container: ContainerSettings {
                    cpu: Some(1.0),
                    memory_mb: Some(1024),
                    disk_mb: Some(3072),
                    persistent: true,
                },
            },
            environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            BTreeMap::new(),
        )))
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("modal_image".to_owned(), DEFAULT_IMAGE.to_owned())])
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    /// Every stream is text, and an emulator is at its other end.
    fn patience(&self) -> u32 {
        3
    }

    /// A process in a sandbox outlives whoever reads from it. The outpost's end of the stream waits for a sign of life.
    fn notices(&self) -> Duration {
        Duration::from_secs(16)
    }

    /// The sandbox itself is Modal's to end, some minutes later.
    fn awake(&self, _: &Path, _: &TaskName) -> Vec<String> {
        Vec::new()
    }

    fn leftovers(&self, _: &Path, task: &TaskName) -> Vec<String> {
        // The emulator notes in each sandbox's directory what it is called.
        let dirs = std::fs::read_dir(Path::new(&variable(DIR).unwrap_or_default()).join("sandboxes"));
        let named = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("name")).ok();
        let names = dirs.into_iter().flatten().flatten().filter_map(named);
        names
            .filter(|name| name.trim().ends_with(task.as_str()))
            .map(|name| format!("sandbox {name}"))
            .collect()
    }
}
