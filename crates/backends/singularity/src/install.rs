//! The outpost on this machine, in a directory of its own that instances see read-only.

use farshell_bundle::Outpost;
use farshell_engine::{Error, Kind, Result};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) const PROGRAM: &str = "farshell-outpost";

/// The outpost for this machine.
pub(crate) fn outpost() -> Result<&'static Outpost> {
    let arch = std::env::consts::ARCH;
    farshell_bundle::for_arch(arch).ok_or_else(|| {
        let message = format!("this build of farshell carries no outpost for {arch}");
        Error::new(Kind::Unavailable, "preparing the singularity backend", message)
            .with_hint("install a build of farshell that does")
    })
}

/// Installs the outpost below `home` unless it is there, and returns the directory that holds it and nothing else. Safe
/// to do from many processes at once.
pub(crate) fn install(home: &Path, outpost: &Outpost) -> Result<PathBuf> {
    let dir = home.join("outposts/instance").join(&outpost.hash[..16]);
    put(&dir, outpost).map_err(|error| {
        Error::io(format!("installing the outpost in {}", dir.display()), error)
            .with_hint("make the directory writable, or set HERMES_HOME to one that is")
    })?;
    Ok(dir)
}

fn put(dir: &Path, outpost: &Outpost) -> std::io::Result<()> {
    let path = dir.join(PROGRAM);
    // It was renamed into place complete, and nobody else may write there.
    let whole = std::fs::symlink_metadata(&path).is_ok_and(|meta| {
        meta.is_file() && meta.len() == outpost.bytes.len() as u64 && meta.mode() & 0o777 == 0o755
    });
    if whole {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The users of an instance with a root of its own see it, too.
    std::fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    // Beside the directory: what is in it is seen by instances.
    let temp = dir.with_file_name(format!(".new-{}-{:?}", std::process::id(), std::thread::current().id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&temp)?;
        file.write_all(outpost.bytes)?;
        file.set_permissions(Permissions::from_mode(0o755))?;
        file.sync_all()?;
        // A file that is open for writing can't be run, under whatever name.
        drop(file);
        std::fs::rename(&temp, &path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temp);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_there_once_and_alone() {
        let home = tempfile::tempdir().unwrap();
        let hash = &*Box::leak("a".repeat(64).into_boxed_str());
        let outpost = Outpost { arch: "x86_64", hash, bytes: b"program" };
        let dir = install(home.path(), &outpost).unwrap();
        let inode = |dir: &Path| std::fs::metadata(dir.join(PROGRAM)).unwrap().ino();
        let first = inode(&dir);
        assert_eq!(inode(&install(home.path(), &outpost).unwrap()), first);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::write(dir.join(PROGRAM), "half").unwrap();
        install(home.path(), &outpost).unwrap();
        assert_eq!(std::fs::read(dir.join(PROGRAM)).unwrap(), b"program");
    }
}
