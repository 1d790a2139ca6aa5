//! This machine itself.

use super::Subject;
use farshell_engine::backend::{Backend, TaskName};
use farshell_local::{Config, Local};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct OnThisMachine;

impl Subject for OnThisMachine {
    fn name(&self) -> &'static str {
        "local"
    }

    fn probe(&self) -> Result<(), String> {
        let found = ["/bin/bash", "/usr/bin/bash"].iter().any(|path| Path::new(path).exists());
        if found { Ok(()) } else { Err("no bash on this machine".into()) }
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        Box::new(Local::new(Config { home: home.to_owned() }))
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    fn shares_pids(&self) -> bool {
        true
    }

    fn has_socket(&self) -> bool {
        true
    }

    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        Some(farshell_local::run_dir(home, task).join("sock"))
    }

    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let dir = farshell_local::run_dir(home, task);
        if dir.exists() { vec![format!("directory {}", dir.display())] } else { Vec::new() }
    }
}
