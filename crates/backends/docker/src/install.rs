//! The outpost in the form in which containers share it: readable for any user, under a name that stays.
//!
//! A container is made once and started many times. It starts `run-<arch>`, a link to the newest outpost that was
//! installed, so that an update of Farshell reaches containers that are there already.

use farshell_bundle::Outpost;
use farshell_engine::{Error, Kind, Result};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const WHAT: &str = "installing the outpost";
const PROGRAM: &str = "farshell-outpost";

/// The outpost for an engine's architecture.
pub(crate) fn outpost_for(arch: &str) -> Result<&'static Outpost> {
    farshell_bundle::for_arch(arch).ok_or_else(|| {
        let message =
            format!("this build of farshell carries no outpost for the engine's architecture, {arch}");
        Error::new(Kind::Unavailable, "preparing the docker backend", message)
            .with_hint("install a build of farshell that does")
    })
}

/// Where the outpost lies below the shared directory: a directory named after its content, and the program.
pub(crate) fn relative(outpost: &Outpost) -> (String, String) {
    let dir = outpost.hash[..16].to_owned();
    let program = format!("{dir}/{PROGRAM}");
    (dir, program)
}

/// Installs the outpost below `home` unless it is there. Safe to do from many processes at once.
pub(crate) fn install(home: &Path, outpost: &Outpost) -> Result<PathBuf> {
    let shared = home.join("outposts/shared");
    put(&shared, outpost).map_err(|error| {
        Error::io(format!("{WHAT} in {}", shared.display()), error)
            .with_hint("make the directory writable, or set HERMES_HOME to one that is")
    })?;
    Ok(shared)
}

fn put(shared: &Path, outpost: &Outpost) -> io::Result<()> {
    let (dir, target) = relative(outpost);
    let program = shared.join(&target);
    let link = shared.join(format!("run-{}", outpost.arch));
    let whole = std::fs::symlink_metadata(&program).is_ok_and(|meta| {
        meta.is_file() && meta.len() == outpost.bytes.len() as u64 && meta.mode() & 0o777 == 0o755
    });
    if whole && std::fs::read_link(&link).is_ok_and(|to| to.as_os_str() == target.as_str()) {
        return Ok(());
    }
    let mut made = DirBuilder::new();
    made.recursive(true).mode(0o700).create(shared.parent().unwrap_or(shared))?;
    // A bind mount shows what is below, and that has to be readable for the container's users.
    for dir in [shared.to_owned(), shared.join(&dir)] {
        DirBuilder::new().recursive(true).mode(0o755).create(&dir)?;
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    }
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    if !whole {
        let temp = shared.join(&dir).join(format!(".new-{unique}"));
        let written = (|| {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&temp)?;
            file.write_all(outpost.bytes)?;
            file.set_permissions(Permissions::from_mode(0o755))?;
            file.sync_all()?;
            // A file that is open for writing can't be run, under whatever name.
            drop(file);
            std::fs::rename(&temp, &program)
        })();
        if let Err(error) = written {
            let _ = std::fs::remove_file(&temp);
            return Err(error);
        }
    }
    let temp = shared.join(format!(".link-{unique}"));
    let _ = std::fs::remove_file(&temp);
    symlink(&target, &temp)?;
    std::fs::rename(&temp, &link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_behind_the_name_and_all_may_run_it() {
        let home = tempfile::tempdir().unwrap();
        let (old, new) = (b"old".as_slice(), b"newer".as_slice());
        let outpost = |bytes: &'static [u8], hash| Outpost { arch: "x86_64", hash, bytes };
        let hashes = ["a".repeat(64), "b".repeat(64)].map(|hash| &*Box::leak(hash.into_boxed_str()));
        for (bytes, hash) in [(old, hashes[0]), (new, hashes[1]), (new, hashes[1])] {
            let shared = install(home.path(), &outpost(bytes, hash)).unwrap();
            let link = shared.join("run-x86_64");
            assert_eq!(std::fs::read(&link).unwrap(), bytes);
            let program = std::fs::canonicalize(&link).unwrap();
            assert_eq!(program.parent().unwrap().file_name().unwrap(), &hash[..16]);
            for path in [shared.as_path(), program.parent().unwrap(), &program] {
                assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o755, "{}", path.display());
            }
        }
    }
}
