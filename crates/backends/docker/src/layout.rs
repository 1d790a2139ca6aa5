//! Names and files: what a container is called, and what it shares with this machine.
//!
//! On this machine, below Farshell's home:
//! ```text
//! outposts/shared/run-x86_64            the outpost, as containers see it (read-only at /.farshell/b)
//! run/docker/farshell-default-1a2b3c4d  private (0700): nobody else gets any further
//!   s/                                  shared with the container (/.farshell/s): anybody there may write
//!     sock                              the outpost's socket
//! ```
//! and below `sandbox_dir`, private again: `docker/<task>/workspace` and `docker/<task>/home`.
//!
//! Whatever lies in a shared directory is the container's word. It is looked at without following links.

use crate::config::Config;
use crate::endpoint::Endpoint;
use farshell_engine::backend::TaskName;
use farshell_engine::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) const OWNER: &str = "farshell.owner";
pub(crate) const TASK: &str = "farshell.task";
pub(crate) const SPEC: &str = "farshell.spec";
pub(crate) const LEASE: &str = "farshell.lease";
pub(crate) const VERSION: &str = "farshell.version";
/// How the outpost got into the container, and how it is reached: [`Way::name`].
pub(crate) const WAY: &str = "farshell.way";

/// The architecture of the outpost in it, as this build names it.
pub(crate) const ARCH: &str = "farshell.arch";

/// Everything of ours in a container lies here.
pub(crate) const ROOT: &str = "/.farshell";
pub(crate) const SOCKET: &str = "sock";

/// How a container gets the outpost, and how that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The engine sees this machine's files: directories are shared.
    Shared,
    /// It does not: the outpost is uploaded into a volume, and reached by an exec.
    Uploaded,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Uploaded => "uploaded",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Shared, Self::Uploaded].into_iter().find(|way| way.name() == text)
    }

    /// The outpost's program in the container.
    pub(crate) fn program(arch: &str) -> String {
        format!("{ROOT}/b/run-{arch}")
    }

    /// The outpost's own directory in the container. Its parent is open to all users, since the image says which
    /// one the outpost runs as.
    pub(crate) fn data() -> String {
        format!("{ROOT}/d/t/o")
    }

    /// The arguments that say where the outpost listens.
    pub(crate) fn door(self) -> Vec<String> {
        let mut args = vec!["--dir".into(), Self::data()];
        if self == Self::Shared {
            args.extend(["--socket".into(), format!("{ROOT}/s/{SOCKET}")]);
        }
        args
    }
}

/// Names and paths of one task's container.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) owner: String,
    /// Private to us, on this machine.
    pub(crate) private: PathBuf,
    /// Holds the files that are kept, on this machine.
    pub(crate) kept: PathBuf,
}

impl Layout {
    pub(crate) fn new(config: &Config, endpoint: &Endpoint, task: &TaskName) -> Self {
        let owner = owner(config, endpoint);
        let digest = Sha256::digest(format!("{owner}\n{}", task.as_str()));
        let mark: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
        let name = format!("farshell-{}-{mark}", task.as_str());
        let private = private_dir(config, &name);
        let kept = config.settings.sandbox_dir.join("docker").join(task.as_str());
        Self { name, owner, private, kept }
    }

    /// Shared with the container: its socket appears here.
    pub(crate) fn socket_dir(&self) -> PathBuf {
        self.private.join("s")
    }

    pub(crate) fn kept_workspace(&self) -> PathBuf {
        self.kept.join("workspace")
    }

    /// What is `/root` in the container, under the name that Hermes gives it.
    pub(crate) fn kept_home(&self) -> PathBuf {
        self.kept.join("home")
    }

    pub(crate) fn volume(&self, what: &str) -> String {
        format!("{}-{what}", self.name)
    }

    /// Makes what the container shares with this machine, as far as it is not there.
    pub(crate) fn make_shared(&self) -> Result<()> {
        let shared = self.socket_dir();
        let fail = |e| Error::io(format!("preparing {}", shared.display()), e);
        make_private(&self.private).map_err(fail)?;
        make_open(&shared).map_err(fail)
    }

    pub(crate) fn make_kept(&self) -> Result<()> {
        let fail = |e| Error::io(format!("preparing {}", self.kept.display()), e);
        make_private(&self.kept).map_err(fail)?;
        make_open(&self.kept_workspace()).map_err(fail)?;
        make_open(&self.kept_home()).map_err(fail)
    }

    /// Removes what was shared, once nobody uses it.
    pub(crate) fn remove_shared(&self) {
        // What another user of the container made in there may be in the way. It is private still, and moved aside
        // when the container is made again.
        let _ = std::fs::remove_dir_all(&self.private);
    }
}

/// Who owns containers: the home that they were made for. An engine elsewhere may serve homes of the same name.
pub(crate) fn owner(config: &Config, endpoint: &Endpoint) -> String {
    let home = std::fs::canonicalize(&config.home).unwrap_or_else(|_| config.home.clone());
    let home = home.to_string_lossy();
    if endpoint.may_be_here() {
        return home.into_owned();
    }
    format!("{home}@{}", rustix::system::uname().nodename().to_string_lossy())
}

pub(crate) fn private_dir(config: &Config, name: &str) -> PathBuf {
    config.home.join("run/docker").join(name)
}

/// A directory that only this user enters.
fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = std::fs::symlink_metadata(dir)?;
    if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
        let text = format!("{} is not a directory of this user", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if meta.mode() & 0o7777 != 0o700 {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A directory, inside a private one, in which every user of the container may write: which user number that is, and
/// which it is on this machine, depends on image and engine.
fn make_open(dir: &Path) -> io::Result<()> {
    let user = rustix::process::getuid();
    match std::fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() && meta.mode() & 0o777 == 0o777 => return Ok(()),
        Ok(meta) if meta.is_dir() && (meta.uid() == user.as_raw() || user.is_root()) => {}
        // The container made it its own.
        Ok(_) => {
            let aside = dir.with_extension(format!("aside-{}", std::process::id()));
            std::fs::rename(dir, aside)?;
            DirBuilder::new().create(dir)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match DirBuilder::new().create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        },
        Err(error) => return Err(error),
    }
    std::fs::set_permissions(dir, Permissions::from_mode(0o777))
}
