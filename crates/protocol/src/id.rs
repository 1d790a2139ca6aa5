//! Names that travel: checked once, where they enter.

use serde::{Deserialize, Serialize};

/// Longest id or name, in bytes.
pub const MAX_LEN: usize = 64;

/// The text is not a usable id or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    what: &'static str,
    /// Its start only: it may come from a peer and be of any length.
    text: String,
}

impl InvalidName {
    fn new(what: &'static str, text: &str) -> Self {
        Self { what, text: crate::excerpt(text.as_bytes()) }
    }
}

impl std::fmt::Display for InvalidName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "\"{}\" is not a {}: 1 to {MAX_LEN} of the characters A-Z a-z 0-9 . _ - are needed, not starting with . or -",
            self.text, self.what
        )
    }
}

impl std::error::Error for InvalidName {}

fn valid(text: &str) -> bool {
    (1..=MAX_LEN).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text.
            ///
            /// # Errors
            /// It is empty, too long, or has a character that could mean something to a file system.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                if valid(&text) { Ok(Self(text)) } else { Err(InvalidName::new($what, &text)) }
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// One command, foreground or background. The caller chooses it, and an outpost never starts a second
    /// process under an id it has seen: that makes it the idempotency key of a start.
    ProcessId, "process id"
}

name! {
    /// A session within an outpost.
    SessionName, "session name"
}

name! {
    /// The caller's key for an environment.
    TaskName, "task name"
}
