//! `credential_files`: files below the Hermes home that the user has named, put below `~/.hermes` of a place. They travel
//! over the place's stream and are for their owner's eyes only.

use crate::backend::Place;
use crate::client::Outpost;
use crate::{Error, Kind, Result};
use farshell_protocol::file::{FileOp, Write};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A credential is small; what is larger is something else.
const LARGEST: u64 = 1 << 20;
const HOME: &[u8] = b"~/.hermes/";

/// A file, named as below the home, and its content.
pub type Credential = (PathBuf, Vec<u8>);

/// Reads them here, before anything is asked of the place. `what` is done with them.
///
/// # Errors
/// One is not there, or not below the home, or no file of a credential's size.
pub fn read(root: &Path, files: &[PathBuf], what: &str) -> Result<Vec<Credential>> {
    let home = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    files.iter().map(|file| Ok((file.clone(), read_one(&home, file, what)?))).collect()
}

fn read_one(home: &Path, file: &Path, what: &str) -> Result<Vec<u8>> {
    let path = home.join(file);
    let wrong = |why: &str| {
        Error::new(Kind::Invalid, what, format!("{} {why}", path.display()))
            .with_hint("change credential_files")
    };
    let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
    // Resolved: a link must not lead to another file of the user's.
    let real = std::fs::canonicalize(&path).ok().filter(|real| inside && real.starts_with(home));
    let real = real.ok_or_else(|| wrong("is not there, or outside of the Hermes home"))?;
    let meta = std::fs::metadata(&real).map_err(|e| Error::io(what, e))?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(wrong("is no file, or has more than a megabyte"));
    }
    std::fs::read(&real).map_err(|e| Error::io(format!("{what}: reading {}", path.display()), e))
}

/// Puts them there by the place's outpost. What has their names there is replaced.
///
/// # Errors
/// The place can't be reached, or refuses it.
pub async fn put(place: Arc<dyn Place>, files: Vec<Credential>) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let outpost = Outpost::new(place);
    let put = async {
        for (file, content) in files {
            let path = [HOME, file.as_os_str().as_bytes()].concat();
            // Directories that are made for it are their owner's alone, too; those that are there stay as they are.
            for at in (HOME.len() - 1..path.len()).filter(|at| path[*at] == b'/') {
                let path = ByteBuf::from(&path[..at]);
                outpost.file(None, FileOp::MakeDir { path, parents: true, mode: Some(0o700) }).await?;
            }
            let write = Write {
                path: ByteBuf::from(path),
                mode: Some(0o600),
                set_mode: true,
                parents: false,
                create_only: false,
                expect: None,
            };
            outpost.write_file(None, write, &content).await?;
        }
        Ok(())
    };
    let done = put.await;
    outpost.disconnect();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_below_the_home_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("hermes");
        std::fs::create_dir_all(home.join("keys")).unwrap();
        std::fs::write(home.join("keys/token"), "t").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("../secret", home.join("link")).unwrap();
        let home = std::fs::canonicalize(home).unwrap();
        assert_eq!(read_one(&home, Path::new("keys/token"), "reading").unwrap(), b"t");
        for wrong in ["../secret", "link", "keys", "missing", "/etc/passwd", "keys/../keys/token"] {
            let error = read_one(&home, Path::new(wrong), "reading").unwrap_err();
            assert_eq!(error.kind, Kind::Invalid, "{wrong}");
            assert!(error.hint.is_some());
        }
    }
}
