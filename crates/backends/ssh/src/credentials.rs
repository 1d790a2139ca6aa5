//! `credential_files`: files below the Hermes home that the user has named, put below `~/.hermes` on the host. They
//! travel over the outpost's stream and are for their owner's eyes only.

use crate::config::Config;
use crate::place::SshPlace;
use farshell_engine::{Error, Kind, Outpost, Result};
use farshell_protocol::file::{FileOp, Write};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

const WHAT: &str = "putting credential_files on the host";
/// A credential is small; what is larger is something else.
const LARGEST: u64 = 1 << 20;
const HOME: &[u8] = b"~/.hermes/";

/// A file and its content.
pub(crate) type Credential = (PathBuf, Vec<u8>);

/// Reads them here, before anything is asked of the host.
pub(crate) fn read(config: &Config) -> Result<Vec<Credential>> {
    let root = &config.credential_root;
    let home = std::fs::canonicalize(root).unwrap_or_else(|_| root.clone());
    config.credential_files.iter().map(|file| Ok((file.clone(), read_one(&home, file)?))).collect()
}

fn read_one(home: &Path, file: &Path) -> Result<Vec<u8>> {
    let path = home.join(file);
    let wrong = |why: &str| {
        Error::new(Kind::Invalid, WHAT, format!("{} {why}", path.display()))
            .with_hint("change credential_files")
    };
    let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
    // Resolved: a link must not lead to another file of the user's.
    let real = std::fs::canonicalize(&path).ok().filter(|real| inside && real.starts_with(home));
    let real = real.ok_or_else(|| wrong("is not there, or outside of the Hermes home"))?;
    let meta = std::fs::metadata(&real).map_err(|e| Error::io(WHAT, e))?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(wrong("is no file, or has more than a megabyte"));
    }
    std::fs::read(&real).map_err(|e| Error::io(format!("{WHAT}: reading {}", path.display()), e))
}

/// Puts them there. What has their names there is replaced.
pub(crate) async fn put(place: &SshPlace, files: Vec<Credential>) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let outpost = Outpost::new(Arc::new(place.clone()));
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
        assert_eq!(read_one(&home, Path::new("keys/token")).unwrap(), b"t");
        for wrong in ["../secret", "link", "keys", "missing", "/etc/passwd", "keys/../keys/token"] {
            let error = read_one(&home, Path::new(wrong)).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid, "{wrong}");
            assert!(error.hint.is_some());
        }
    }
}
