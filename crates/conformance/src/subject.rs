//! The backends under test.

use farshell_engine::backend::{Backend, TaskName};
use farshell_local::{Config, Local};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All backends that the suite knows: a new one adds its line.
#[must_use]
pub fn subjects() -> &'static [&'static dyn Subject] {
    &[&OnThisMachine]
}

/// A backend under test.
pub trait Subject: Send + Sync + std::fmt::Debug {
    /// As configuration calls it; the first part of each case's name.
    fn name(&self) -> &'static str;

    /// Is everything here that it needs? If not: what is missing.
    ///
    /// # Errors
    /// The reason, which becomes part of the names of the skipped cases.
    fn probe(&self) -> Result<(), String>;

    /// The backend, with this directory as Farshell's home.
    fn backend(&self, home: &Path) -> Box<dyn Backend>;

    /// What its places are made of: images, limits.
    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Processes of its places are seen in this machine's `/proc`, so that the suite can look for survivors
    /// after a place is gone.
    fn shares_kernel(&self) -> bool {
        false
    }

    /// Process numbers mean the same inside and outside.
    fn shares_pids(&self) -> bool {
        false
    }

    /// The outpost's socket on this machine, where there is one.
    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        let _ = (home, task);
        None
    }

    /// What is still there of a place after its end. Nothing should be.
    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let _ = (home, task);
        Vec::new()
    }
}

#[derive(Debug)]
struct OnThisMachine;

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

    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        Some(farshell_local::run_dir(home, task).join("sock"))
    }

    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let dir = farshell_local::run_dir(home, task);
        if dir.exists() { vec![format!("directory {}", dir.display())] } else { Vec::new() }
    }
}
