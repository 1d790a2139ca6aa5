//! What callers over TCP must show: 32 random bytes in a file that only the owner can read.

use crate::lock::Lock;
use crate::paths::Directory;
use farshell_engine::{Error, Kind, Result};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use subtle::ConstantTimeEq;

/// Hex digits.
const LENGTH: usize = 64;
const WHAT: &str = "preparing the token for TCP";

/// A secret. It is not shown, not even for debugging.
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The home's token, made if there is none yet.
    pub(crate) fn open(directory: &Directory, _held: &Lock) -> Result<Self> {
        let path = &directory.paths.token;
        let io = |error| Error::io(format!("{WHAT}: {}", path.display()), error);
        // The lock says that nobody else is at it. It has its name only when it is complete.
        if !std::fs::exists(directory.short("token")).map_err(io)? {
            let new = directory.short("token.new");
            let text = random()?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let written = options.open(&new).and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(0o600))?;
                file.write_all(text.as_bytes())?;
                file.sync_all()
            });
            written.and_then(|()| std::fs::rename(&new, directory.short("token"))).map_err(io)?;
        }
        let file = File::open(directory.short("token")).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            let message = format!("{} belongs to user {}", path.display(), meta.uid());
            return Err(Error::new(Kind::PermissionDenied, WHAT, message).with_hint("remove it"));
        }
        if meta.mode() & 0o777 != 0o600 {
            file.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
        }
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text).map_err(io)?;
        let text = text.trim();
        if text.len() != LENGTH || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            let message = format!("{} does not hold {LENGTH} hex digits", path.display());
            return Err(Error::new(Kind::Invalid, WHAT, message)
                .with_hint("remove it: the server makes a new one when it starts"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Takes as long for a wrong token as for the right one.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        shown.ct_eq(self.0.as_bytes()).into()
    }
}

fn random() -> Result<String> {
    let mut bytes = [0; LENGTH / 2];
    getrandom::fill(&mut bytes).map_err(|e| Error::new(Kind::System, WHAT, e.to_string()))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_made_once_and_closed_to_others() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let lock = Lock::take(&directory).await.unwrap();
        std::fs::write(directory.short("token.new"), "half").unwrap();
        let token = Token::open(&directory, &lock).unwrap();
        let path = &directory.paths.token;
        let mode = || std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(), 0o600);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(token.is(text.trim().as_bytes()));
        assert!(!token.is(b""));
        assert!(!token.is(&text.as_bytes()[..63]));
        assert!(!token.is("f".repeat(64).as_bytes()));
        assert!(!directory.paths.dir.join("token.new").exists());

        std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        assert!(Token::open(&directory, &lock).unwrap().is(text.trim().as_bytes()));
        assert_eq!(mode(), 0o600);
        assert_eq!(format!("{token:?}"), "Token");

        std::fs::write(path, "short").unwrap();
        assert_eq!(Token::open(&directory, &lock).unwrap_err().kind, Kind::Invalid);
    }
}
