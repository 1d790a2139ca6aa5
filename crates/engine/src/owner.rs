//! Whose things they are in a place that others use too: a random number in Farshell's home.
//!
//! Two machines may have homes of the same path and reach the same account. Their tasks have the same names and must
//! not meet.

use crate::error::{Error, Result};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const NAME: &str = "owner";
const DIGITS: usize = 8;

/// The owner's number in hex, made once.
///
/// # Errors
/// The home can't be written to, or holds something else under that name.
pub fn of(home: &Path) -> Result<String> {
    let path = home.join(NAME);
    find_or_make(home, &path).map_err(|e| Error::io(format!("reading {}", path.display()), e))
}

fn find_or_make(home: &Path, path: &Path) -> io::Result<String> {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let text = text.trim();
                if text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Ok(text.to_owned());
                }
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it does not hold eight digits in hex",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
        let mut random = [0; DIGITS / 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // A link fails if there is one by now: whoever was first counts.
        let temp = home.join(format!(".{NAME}-{text}"));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        writeln!(file, "{text}")?;
        let linked = std::fs::hard_link(&temp, path);
        let _ = std::fs::remove_file(&temp);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("new");
        let all: Vec<String> = std::thread::scope(|scope| {
            let made: Vec<_> = (0..8).map(|_| scope.spawn(|| of(&dir).unwrap())).collect();
            made.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|owner| *owner == all[0]), "{all:?}");
        assert_ne!(of(&home.path().join("other")).unwrap(), all[0]);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    }
}
