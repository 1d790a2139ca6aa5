//! Which shell a place has.

use std::path::PathBuf;

/// A shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub path: PathBuf,
    pub bash: bool,
}

impl Program {
    /// The one that `FARSHELL_SHELL` names; else bash if there is one, else sh.
    pub(crate) fn find() -> Option<Self> {
        if let Some(path) = std::env::var_os("FARSHELL_SHELL").map(PathBuf::from).filter(|p| p.is_absolute())
        {
            let bash = path.file_name().is_some_and(|name| name == "bash");
            return Some(Self { path, bash });
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let dirs: Vec<PathBuf> =
            std::env::split_paths(&path).filter(|d| d.is_absolute()).chain(usual).collect();
        for (name, bash) in [("bash", true), ("sh", false)] {
            for dir in &dirs {
                let path = dir.join(name);
                if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file() {
                    return Some(Self { path, bash });
                }
            }
        }
        None
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.bash { "bash" } else { "sh" }
    }
}
