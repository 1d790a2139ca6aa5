//! Names and files: what an instance is called, and what it shares with this machine.
//!
//! Below Farshell's home:
//! ```text
//! outposts/instance/…                        the outpost (read-only at /.farshell/b)
//! run/singularity/farshell-default-1a2b.lock held by whoever starts, ends or removes the instance
//! run/singularity/farshell-default-1a2b      private (0700): nobody else gets any further
//!   state.json, log                          what is noted about it, and what apptainer said; not seen inside
//!   job, waiting                             the Slurm job that is wanted, and who waits for it
//!   s/                                       the outpost's socket (/.farshell/s); of a job, a directory in its node's /tmp
//!   d/                                       the outpost's own files (/.farshell/d)
//! ```
//! and in scratch space, which is large on clusters and may be slow or far away:
//! ```text
//! images/                                    images that were built from a registry's
//! tasks/farshell-default-1a2b                private again
//!   workspace/, home/                        /workspace and /root
//!   layer/                                   what else was written
//!   disk.img                                 all of these three in one file of a fixed size, if asked for
//!   tmp/                                     /tmp and /var/tmp, emptied with each start
//! tasks/farshell-default-1a2b.once           the same for an instance whose files are not kept
//! ```

use crate::config::Config;
use farshell_engine::backend::TaskName;
use farshell_engine::{Error, Kind, Result};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Everything of ours in an instance lies here.
pub(crate) const ROOT: &str = "/.farshell";
pub(crate) const SOCKET: &str = "sock";
pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const HOME: &str = "/root";

const WHAT: &str = "preparing the singularity backend";

/// Names and paths of one task's instance.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) owner: String,
    /// Private to us, and not seen inside as a whole.
    pub(crate) private: PathBuf,
    /// Holds the instance's files.
    pub(crate) files: PathBuf,
    /// Holds the task's files that are kept, whether or not this instance keeps any.
    pub(crate) kept: PathBuf,
}

impl Layout {
    pub(crate) fn new(config: &Config, task: &TaskName) -> Result<Self> {
        let owner = owner(config);
        let name = Self::name_of(&owner, task.as_str());
        let private = all(config).join(&name);
        let kept = scratch(config).join("tasks").join(&name);
        // What is not kept is removed as a whole, and must not take along what was kept before.
        let files = match config.settings.container.persistent {
            true => kept.clone(),
            false => once(&kept),
        };
        for path in [&private, &files] {
            speakable(path)?;
        }
        Ok(Self { name, owner, private, files, kept })
    }

    /// All files of the task, kept or not.
    pub(crate) fn all_files(&self) -> [PathBuf; 2] {
        [self.kept.clone(), once(&self.kept)]
    }

    pub(crate) fn name_of(owner: &str, task: &str) -> String {
        let digest = Sha256::digest(format!("{owner}\n{task}"));
        let mark: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
        format!("farshell-{task}-{mark}")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.private.with_file_name(format!("{}.lock", self.name))
    }

    pub(crate) fn socket_dir(&self) -> PathBuf {
        self.private.join("s")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.private.join("d")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.private.join("log")
    }

    /// Holds the mark of the Slurm job that is wanted.
    pub(crate) fn job(&self) -> PathBuf {
        self.private.join("job")
    }

    /// Is locked by those who wait until that job runs.
    pub(crate) fn waiting(&self) -> PathBuf {
        self.private.join("waiting")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.files.join("workspace")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.files.join("home")
    }

    pub(crate) fn layer(&self) -> PathBuf {
        self.files.join("layer")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.files.join("disk.img")
    }

    /// The name that a new one has while it is made: another one each time, since whoever made the last one may still be
    /// at it. What is left of those is removed.
    pub(crate) fn new_disk(&self) -> Result<PathBuf> {
        const NEW: &str = "disk-";
        for entry in std::fs::read_dir(&self.files).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                remove(&entry.path())?;
            }
        }
        Ok(self.files.join(format!("{NEW}{}.img", random()?)))
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.files.join("tmp")
    }
}

/// Where the files are that are not kept.
fn once(kept: &Path) -> PathBuf {
    kept.with_added_extension("once")
}

/// Part of a name that nobody else has, or can guess.
pub(crate) fn random() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|e| Error::new(Kind::System, WHAT, format!("no random number: {e}")))?;
    Ok(random.iter().map(|b| format!("{b:02x}")).collect())
}

/// The directory of all instances of a home.
pub(crate) fn all(config: &Config) -> PathBuf {
    config.home.join("run/singularity")
}

/// Who owns instances: the home that they were made for.
pub(crate) fn owner(config: &Config) -> String {
    let home = std::fs::canonicalize(&config.home).unwrap_or_else(|_| config.home.clone());
    home.to_string_lossy().into_owned()
}

/// Where much may be written.
pub(crate) fn scratch(config: &Config) -> PathBuf {
    scratch_below(config, Path::new("/scratch"))
}

fn scratch_below(config: &Config, cluster: &Path) -> PathBuf {
    if let Some(dir) = &config.settings.scratch_dir {
        return dir.clone();
    }
    // As clusters have it.
    let user = config.variable("USER").or_else(|| config.variable("LOGNAME"));
    let plain = |user: &&str| !user.contains('/') && !user.starts_with('.');
    if let Some(dir) = user.filter(plain).map(|user| cluster.join(user))
        && rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
    {
        return dir.join("farshell");
    }
    config.settings.sandbox_dir.join("singularity")
}

/// Where images are kept that were built from a registry's.
pub(crate) fn images(config: &Config) -> PathBuf {
    let own =
        ["APPTAINER_CACHEDIR", "SINGULARITY_CACHEDIR"].into_iter().find_map(|name| config.variable(name));
    match own {
        Some(dir) => Path::new(dir).join("farshell"),
        None => scratch(config).join("images"),
    }
}

/// Apptainer's arguments cut paths at colons and commas.
pub(crate) fn speakable(path: &Path) -> Result<()> {
    let text = path.to_str();
    if text.is_some_and(|text| {
        text.starts_with('/') && !text.contains([':', ',', '\\', '"']) && !text.contains(char::is_control)
    }) {
        return Ok(());
    }
    let message = format!(
        "{path:?} can't be shared with an instance: Apptainer takes no path with a colon, a comma, a quote or \
         a backslash, and none that is not absolute"
    );
    Err(Error::new(Kind::Invalid, WHAT, message).with_hint(
        "use another directory: HERMES_HOME, scratch_dir, sandbox_dir or singularity_bind name it",
    ))
}

/// A directory that only this user enters.
pub(crate) fn make_private(dir: &Path) -> Result<()> {
    let make = || {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let meta = std::fs::symlink_metadata(dir)?;
        if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
            let text = "it is not a directory of this user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        if meta.mode() & 0o7777 != 0o700 {
            std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    make().map_err(|e| Error::io(format!("preparing {}", dir.display()), e))
}

/// A directory as it is inside.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|e| Error::io(format!("preparing {}", dir.display()), e))
}

/// Removes a directory or file with all that is in it. If it is not there, that is no error. Directories that their
/// owner locked are opened.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up(path);
                std::fs::remove_dir_all(path)
            }
            other => other,
        },
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()), error).with_hint(
                "with --fakeroot, files of other users of the instance are left: `apptainer exec --fakeroot` removes them",
            ))
        }
        _ => Ok(()),
    }
}

/// Gives this user all rights to the directories below, without following links.
fn open_up(dir: &Path) {
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        let _ = std::fs::set_permissions(&dir, Permissions::from_mode(0o700));
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    #[test]
    fn scratch_space_is_looked_for_in_three_places() {
        let cluster = tempfile::tempdir().unwrap();
        let mut config = sample();
        let shared = || Path::new("/home/me/.hermes/sandboxes/singularity").to_owned();
        assert_eq!(scratch_below(&config, cluster.path()), shared());
        config.environment.insert("USER".into(), "me".into());
        assert_eq!(scratch_below(&config, cluster.path()), shared(), "there is no directory of theirs");
        std::fs::create_dir(cluster.path().join("me")).unwrap();
        assert_eq!(scratch_below(&config, cluster.path()), cluster.path().join("me/farshell"));
        config.environment.insert("USER".into(), "../me".into());
        assert_eq!(scratch_below(&config, cluster.path()), shared());
        config.settings.scratch_dir = Some("/big".into());
        assert_eq!(scratch_below(&config, cluster.path()), Path::new("/big"));
        assert_eq!(images(&config), Path::new("/big/images"));
        config.environment.insert("APPTAINER_CACHEDIR".into(), "/cache".into());
        assert_eq!(images(&config), Path::new("/cache/farshell"));
    }

    #[test]
    fn two_homes_and_two_tasks_never_meet() {
        let mut config = sample();
        config.settings.scratch_dir = Some("/big".into());
        let files =
            |config: &Config, task: &str| Layout::new(config, &TaskName::new(task).unwrap()).unwrap().files;
        let first = files(&config, "a");
        assert_ne!(files(&config, "b"), first);
        assert_eq!(files(&config, "a"), first);
        config.home = "/other".into();
        assert_ne!(files(&config, "a"), first);
    }

    #[test]
    fn what_is_kept_and_what_is_not_never_meet() {
        let mut config = sample();
        config.settings.scratch_dir = Some("/big".into());
        let layout = |config: &Config| Layout::new(config, &TaskName::new("a.b").unwrap()).unwrap();
        let kept = layout(&config);
        config.settings.container.persistent = false;
        let once = layout(&config);
        assert_eq!(kept.files, kept.kept);
        assert_eq!((once.kept.clone(), once.private.clone()), (kept.kept, kept.private));
        assert_ne!(once.files, once.kept);
        assert_eq!(once.all_files(), [once.kept.clone(), once.files]);
    }

    #[test]
    fn paths_that_apptainer_would_cut_are_refused() {
        for path in ["/a:b", "/a,b", "/a\"b", "relative", "/a\nb", "/a\\b"] {
            assert_eq!(speakable(Path::new(path)).unwrap_err().kind, Kind::Invalid, "{path}");
        }
        speakable(Path::new("/with blank/$x/ü")).unwrap();
    }

    #[test]
    fn a_tree_that_was_locked_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("a");
        std::fs::create_dir_all(tree.join("b/c")).unwrap();
        std::fs::write(tree.join("b/c/file"), "").unwrap();
        std::os::unix::fs::symlink("/", tree.join("b/link")).unwrap();
        std::fs::set_permissions(tree.join("b/c"), Permissions::from_mode(0o0)).unwrap();
        std::fs::set_permissions(tree.join("b"), Permissions::from_mode(0o500)).unwrap();
        remove(&tree).unwrap();
        remove(&tree).unwrap();
        assert!(!tree.exists());
    }
}
