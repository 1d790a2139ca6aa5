//! Putting the outpost where it can be run: once for each version, found by its content.

use farshell_bundle::Outpost;
use farshell_engine::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const WHAT: &str = "installing the outpost";

/// Installs the outpost below `home` unless it is there. Safe to do from many processes at once.
///
/// # Errors
/// The directory can't be made or written.
pub(crate) fn install(home: &Path, outpost: &Outpost) -> Result<PathBuf> {
    let dir = home.join("outposts").join(&outpost.hash[..16]);
    let path = dir.join("farshell-outpost");
    if let Ok(meta) = std::fs::symlink_metadata(&path)
        && meta.is_file()
        && meta.len() == outpost.bytes.len() as u64
        && meta.uid() == rustix::process::getuid().as_raw()
        && meta.mode() & 0o777 == 0o700
    {
        // It was renamed into place complete and nobody else may write here. Reading it all to compare would
        // cost more than a command.
        return Ok(path);
    }
    let io = |error: std::io::Error| {
        Error::io(format!("{WHAT} in {}", dir.display()), error)
            .with_hint("make the directory writable, or set HERMES_HOME to one that is")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io)?;
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).map_err(io)?;
    let temp = dir.join(format!(".new-{}-{:?}", std::process::id(), std::thread::current().id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&temp)?;
        file.write_all(outpost.bytes)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o700))?;
        file.sync_all()?;
        // A file that is open for writing can't be run, under whatever name.
        drop(file);
        std::fs::rename(&temp, &path)
    })();
    if let Err(error) = written {
        let _ = std::fs::remove_file(&temp);
        return Err(io(error));
    }
    verify(&path, outpost)?;
    Ok(path)
}

/// What is there is what was meant to be there: a full disk or a broken file system shows here.
fn verify(path: &Path, outpost: &Outpost) -> Result<()> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(WHAT, e))?;
    let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    if hash == outpost.hash {
        return Ok(());
    }
    let _ = std::fs::remove_file(path);
    let message = format!("{} does not hold what was written to it", path.display());
    Err(Error::new(farshell_engine::Kind::System, WHAT, message).with_hint("check the disk"))
}
