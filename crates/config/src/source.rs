//! Where a value came from.

use std::fmt;
use std::path::PathBuf;

/// The place a value was written in. Ordered by precedence: a later variant beats an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of the `.env` file.
    DotEnv {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The variable.
        variable: String,
    },
    /// A line of `config.yaml`.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A variable of the process environment.
    Environment {
        /// The variable.
        variable: String,
    },
    /// The caller, for this one run.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::DotEnv { path, line, variable } => {
                write!(f, "{variable} in {} line {line}", path.display())
            }
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Environment { variable } => write!(f, "{variable} in the environment"),
            Self::CommandLine => f.write_str("the command line"),
        }
    }
}
