//! The private directory in which control sockets are.
//!
//! A socket's address has at most 107 bytes, and `ssh` needs some for a name of its own while it binds. The first of
//! these that is ours alone, short enough, and has nothing in its name that `ssh` takes for more than a name, is taken:
//! the user's runtime directory, Farshell's home, `/tmp`.

use crate::config::Config;
use farshell_engine::{Error, Kind, Result};
use sha2::{Digest, Sha256};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The longest address of a socket.
pub(crate) const ADDRESS: usize = 107;
/// What our names and what `ssh` appends to them take at most.
pub(crate) const NAMES: usize = 40;

/// The directory, made if it is not there.
pub(crate) fn find(config: &Config) -> Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let runtime = config.variable("XDG_RUNTIME_DIR").map(Path::new).filter(|dir| is_private(dir, uid));
    let candidates = [
        runtime.map(|dir| dir.join("farshell")),
        Some(config.home.join("run/ssh")),
        Some(PathBuf::from(format!("/tmp/farshell-{uid}"))),
    ];
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    for dir in candidates.into_iter().flatten() {
        let name = dir.as_os_str().as_bytes();
        if !dir.is_absolute() || name.len() > ADDRESS - NAMES || !name.iter().all(is_plain) {
            continue;
        }
        match make(&dir, uid) {
            Ok(()) => return Ok(dir),
            Err(error) => last = error,
        }
    }
    let hint = "set XDG_RUNTIME_DIR or HERMES_HOME to a directory of yours with a short path";
    Err(Error::new(Kind::Unavailable, "making a directory for control sockets", last.to_string())
        .with_hint(hint))
}

/// Not a sign for `ssh`, which puts other text in the place of `%` and `$`, and takes paths apart at `:`.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-+@,=~".contains(byte) || !byte.is_ascii()
}

fn is_private(dir: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(dir)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0)
}

fn make(dir: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let meta = std::fs::symlink_metadata(dir)?;
    if !meta.is_dir() || meta.uid() != uid {
        let text = format!("{} is not a directory of this user", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Names what belongs to connections with these settings.
pub(crate) fn key(config: &Config) -> String {
    let home = config.home.canonicalize().unwrap_or_else(|_| config.home.clone());
    let mut hasher = Sha256::new();
    hasher.update(home.as_os_str().as_bytes());
    // Everything that decides where a connection leads, and how.
    hasher.update(format!("{:?}{:?}", config.settings, config.ssh_config));
    hex(&hasher.finalize()[..6])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    #[test]
    fn a_long_home_is_no_obstacle() {
        let temp = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.home = temp.path().join("h");
        assert_eq!(find(&config).unwrap(), config.home.join("run/ssh"));
        assert_eq!(std::fs::metadata(config.home.join("run/ssh")).unwrap().mode() & 0o777, 0o700);

        let runtime = temp.path().join("r");
        DirBuilder::new().mode(0o700).create(&runtime).unwrap();
        config.environment.insert("XDG_RUNTIME_DIR".into(), runtime.to_string_lossy().into());
        assert_eq!(find(&config).unwrap(), runtime.join("farshell"));
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(find(&config).unwrap(), config.home.join("run/ssh"), "others may write there");
        config.environment.clear();
        for odd in ["100%", "a:b", "a b", "$x", "it's"] {
            config.home = temp.path().join(odd);
            let uid = rustix::process::getuid().as_raw();
            assert_eq!(find(&config).unwrap(), Path::new(&format!("/tmp/farshell-{uid}")), "{odd}");
        }
    }

    #[test]
    fn connections_differ_when_settings_do() {
        let config = sample();
        let mut other = sample();
        assert_eq!(key(&config), key(&other));
        other.settings.port = 2222;
        assert_ne!(key(&config), key(&other));
        let mut other = sample();
        other.home = "/elsewhere".into();
        assert_ne!(key(&config), key(&other));
    }
}
