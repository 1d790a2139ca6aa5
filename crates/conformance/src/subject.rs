//! The backends under test.

mod daytona;
mod docker;
mod local;
mod modal;
mod singularity;
mod ssh;

use farshell_engine::backend::{Backend, TaskName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All backends that the suite knows: a new one adds its line.
#[must_use]
pub fn subjects() -> &'static [&'static dyn Subject] {
    &[
        &local::OnThisMachine,
        &docker::DEBIAN,
        &docker::BUSYBOX,
        &docker::BY_EXEC,
        &docker::PODMAN,
        &ssh::STOCK,
        &ssh::BY_SESSION,
        &ssh::BEHIND,
        &singularity::DEBIAN,
        &singularity::BUSYBOX,
        &singularity::SLURM,
        &daytona::CALM,
        &daytona::SLOWER,
        &daytona::STORM,
        &modal::Emulated,
    ]
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

    /// Its shell is bash. Elsewhere it is some `sh`, which has no arrays and can't write its functions down.
    fn bash(&self) -> bool {
        true
    }

    /// A directory in the place that outlives the outpost: the cases' own directories are made in it.
    fn scratch(&self) -> &'static str {
        "/tmp"
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

    /// Outposts have a socket on this machine.
    fn has_socket(&self) -> bool {
        false
    }

    /// How many times as long as usual a case may take. Limits are there to find what hangs.
    fn patience(&self) -> u32 {
        1
    }

    /// How long an outpost may take to notice that somebody who was connected is dead.
    fn notices(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    /// Whoever connects to a place whose outpost has ended starts another. Elsewhere the place is gone then, and is to
    /// be provisioned anew.
    fn wakes(&self) -> bool {
        true
    }

    /// The outpost's socket on this machine, where there is one.
    fn socket(&self, home: &Path, task: &TaskName) -> Option<PathBuf> {
        let _ = (home, task);
        None
    }

    /// What still runs of a place whose outpost has ended because nobody needed it. Nothing should.
    fn awake(&self, home: &Path, task: &TaskName) -> Vec<String> {
        self.leftovers(home, task)
    }

    /// What is still there of a place after its end. Nothing should be.
    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let _ = (home, task);
        Vec::new()
    }
}
