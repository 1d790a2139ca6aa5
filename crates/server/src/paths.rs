//! Where a home's server keeps its things, and the directory that only its owner may enter.

use farshell_engine::{Error, Kind, Result};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where a home's server keeps its things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Mode 0700.
    pub dir: PathBuf,
    /// Mode 0600. There while a server listens, or if one was killed.
    pub socket: PathBuf,
    /// Locked by the running server for its life; holds its pid.
    pub lock: PathBuf,
    /// What callers over TCP must show. Mode 0600; made when a server first listens there.
    pub token: PathBuf,
    /// What a server in the background has to say.
    pub log: PathBuf,
}

/// The server's files in a home (`$HERMES_HOME`).
#[must_use]
pub fn paths(home: &Path) -> Paths {
    let dir = home.join("farshell").join("server");
    let file = |name: &str| dir.join(name);
    Paths { socket: file("sock"), lock: file("lock"), token: file("token"), log: file("log"), dir }
}

/// The server's directory, held open: what is done in it stays in it, wherever its name leads later.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: File,
    pub(crate) paths: Paths,
}

impl Directory {
    /// Makes it if need be, and sees to it that nobody else can enter.
    pub(crate) fn open(home: &Path) -> Result<Self> {
        let paths = paths(home);
        let what = || format!("preparing {}", paths.dir.display());
        let io = |error| {
            Error::io(what(), error)
                .with_hint("make the directory writable, or set HERMES_HOME to one that is")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&paths.dir).map_err(io)?;
        let flags = (rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed();
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(&paths.dir).map_err(io)?;
        let meta = handle.metadata().map_err(io)?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            let message = format!("it belongs to user {}", meta.uid());
            return Err(Error::new(Kind::PermissionDenied, what(), message)
                .with_hint("a server keeps its files in a directory of its own user"));
        }
        if meta.mode() & 0o777 != 0o700 {
            handle.set_permissions(Permissions::from_mode(0o700)).map_err(io)?;
        }
        Ok(Self { handle, paths })
    }

    /// A path of any length becomes one that fits into a socket's address.
    pub(crate) fn short(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()).into()
    }
}
