//! Where a command is going to run.

use serde::{Deserialize, Serialize};

/// The kind of place, by how much it shields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    Local,
    Ssh,
    Docker,
    Singularity,
    Modal,
    Daytona,
}

/// What the verdict depends on besides the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub backend: BackendKind,
    /// Directories of the user's machine are mounted into the place: docker volumes, a mounted working
    /// directory, a singularity bind.
    pub host_paths: bool,
    /// The working directory the command starts in; absolute, or `None` if it is not known.
    pub cwd: Option<String>,
    /// The home directory in the place.
    pub home: Option<String>,
    /// Its input can be written to once it runs: what an interpreter reads there was not looked at.
    pub open_input: bool,
    /// Where Farshell has its settings, secrets and records, if commands can reach it.
    pub farshell_home: Option<String>,
}

impl Context {
    pub fn new(backend: BackendKind) -> Self {
        Self { backend, host_paths: false, cwd: None, home: None, open_input: false, farshell_home: None }
    }

    #[must_use]
    pub fn with_cwd(mut self, cwd: impl Into<String>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    #[must_use]
    pub fn with_home(mut self, home: impl Into<String>) -> Self {
        self.home = Some(home.into());
        self
    }

    #[must_use]
    pub fn with_farshell_home(mut self, home: impl Into<String>) -> Self {
        self.farshell_home = Some(home.into());
        self
    }

    #[must_use]
    pub fn with_host_paths(mut self) -> Self {
        self.host_paths = true;
        self
    }

    /// Whether nothing of the user's is in reach: what happens there can be thrown away with the place. An ssh
    /// host is somebody's machine, and a container with the user's directories in it is a door.
    pub fn is_isolated(&self) -> bool {
        match self.backend {
            BackendKind::Local | BackendKind::Ssh => false,
            BackendKind::Docker | BackendKind::Singularity | BackendKind::Modal | BackendKind::Daytona => {
                !self.host_paths
            }
        }
    }
}
