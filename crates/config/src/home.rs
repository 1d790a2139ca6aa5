//! The Hermes home: which directory it is and what lies where in it.

use std::path::{Component, Path, PathBuf};

/// The variable that moves the Hermes home.
pub const HOME_VARIABLE: &str = "HERMES_HOME";

/// The directory that holds settings and state, and the paths that start from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HermesHome {
    root: PathBuf,
    user_home: Option<PathBuf>,
}

impl HermesHome {
    /// A home at this directory. `user_home` is what `~` means.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, user_home: Option<PathBuf>) -> Self {
        Self { root: root.into(), user_home }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `config.yaml`.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.root.join("config.yaml")
    }

    /// `.env`.
    #[must_use]
    pub fn env_file(&self) -> PathBuf {
        self.root.join(".env")
    }

    /// `~` and `~/…` replaced by the user's home directory; anything else as it is.
    #[must_use]
    pub fn expand_tilde(&self, path: &str) -> PathBuf {
        expand_tilde(path, self.user_home.as_deref())
    }
}

pub(crate) fn expand_tilde(path: &str, user_home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~'), user_home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}

/// Whether a relative path stays below the directory it starts from, judged by its text alone.
pub(crate) fn stays_below(path: &Path) -> bool {
    let mut depth = 0_usize;
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    depth > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tilde() {
        let home = HermesHome::new("/h/.hermes", Some("/h".into()));
        assert_eq!(home.expand_tilde("~"), Path::new("/h"));
        assert_eq!(home.expand_tilde("~/.ssh/id"), Path::new("/h/.ssh/id"));
        assert_eq!(home.expand_tilde("~other/x"), Path::new("~other/x"));
        assert_eq!(home.expand_tilde("/a/~"), Path::new("/a/~"));
    }

    #[test]
    fn escaping_paths_are_seen() {
        assert!(stays_below(Path::new("a/b")));
        assert!(stays_below(Path::new("a/../b")));
        for bad in ["..", "a/../..", "/etc/passwd", "", ".", "../x", "a/../../b"] {
            assert!(!stays_below(Path::new(bad)), "{bad}");
        }
    }
}
