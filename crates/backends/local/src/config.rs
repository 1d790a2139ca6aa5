//! What the local backend needs to know.

use std::path::PathBuf;

/// Settings of the local backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Farshell's home: outposts are installed and run below it.
    pub home: PathBuf,
}
