//! Whose sandboxes they are: the random number in Farshell's home that other backends use too.
//!
//! Two homes may use the same account, and their tasks have the same names.

use farshell_engine::{Error, Result};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const NAME: &str = "owner";
const DIGITS: usize = 8;

/// The owner's number in hex, made once.
pub(crate) fn of(home: &Path) -> Result<String> {
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
        let text = random(DIGITS / 2);
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

/// Random digits in hex.
pub(crate) fn random(bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let _ = getrandom::fill(&mut all);
    all.iter().map(|byte| format!("{byte:02x}")).collect()
}
