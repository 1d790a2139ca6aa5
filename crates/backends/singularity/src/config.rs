//! What the Singularity backend needs to know.

use farshell_config::settings::SingularitySettings;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of the Singularity backend. Nothing else is read: not the environment of this process, nor its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Farshell's home: it owns the instances. What they share with this machine lies below it, or in scratch space.
    pub home: PathBuf,
    pub settings: SingularitySettings,
    /// Variables of whoever asks: `PATH`, `HOME`, `USER`, `APPTAINER_CACHEDIR` and so on. None of them reaches a
    /// command.
    pub environment: BTreeMap<String, String>,
    /// Files that the instance may read, as paths relative to `credential_root`, which they can't leave.
    pub credential_root: PathBuf,
    pub credential_files: Vec<PathBuf>,
}

impl Config {
    /// A variable that is set to something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
pub(crate) fn sample() -> Config {
    use farshell_config::choice::SingularityGpu;
    use farshell_config::settings::ContainerSettings;
    Config {
        home: "/home/me/.hermes/farshell".into(),
        settings: SingularitySettings {
            image: "/images/debian.sif".into(),
            binary: None,
            bind: Vec::new(),
            env: Vec::new(),
            gpu: SingularityGpu::None,
            extra_args: Vec::new(),
            pids_limit: Some(256),
            disk_image: false,
            slurm: None,
            scratch_dir: None,
            disk_warning_gb: 500.0,
            sandbox_dir: "/home/me/.hermes/sandboxes".into(),
            container: ContainerSettings { cpu: None, memory_mb: None, disk_mb: None, persistent: true },
        },
        environment: BTreeMap::new(),
        credential_root: "/home/me/.hermes".into(),
        credential_files: Vec::new(),
    }
}
