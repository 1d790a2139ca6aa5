//! Small services to directories of a place, done by a user of the place who may: whoever asks from outside can't.

use rustix::fs::{Mode, OFlags, fchmod, open};
use std::io;
use std::path::Path;

/// Lets every user write into a directory, and remove there what is their own.
pub(crate) fn open_up(dir: &Path) -> io::Result<()> {
    let dir = open(dir, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fchmod(dir, Mode::from_raw_mode(0o1777))?)
}

/// Removes what is in a directory, and leaves the directory.
pub(crate) fn clear(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn directories_are_opened_and_cleared_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (dir, outside) = (root.path().join("dir"), root.path().join("outside"));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("x"), "").unwrap();
        symlink(&outside, dir.join("link")).unwrap();
        std::fs::write(dir.join("a/b/c"), "").unwrap();
        open_up(&dir).unwrap();
        assert!(open_up(&dir.join("link")).is_err());
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o1777);
        clear(&dir).unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        assert!(outside.join("x").exists());
    }
}
