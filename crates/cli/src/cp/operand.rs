//! What a word of the command line means.

use crate::output::invalid;
use farshell_engine::{Error, TaskName};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A file or directory, here or there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// What comes in or goes out here.
    Standard,
    Here(PathBuf),
    There {
        /// The one of `--task` if absent.
        task: Option<String>,
        path: Vec<u8>,
    },
}

impl Operand {
    pub(super) fn new(word: &OsStr) -> Result<Self, Error> {
        let bytes = word.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Standard);
        }
        let first = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(at) = first.iter().position(|byte| *byte == b':') else {
            return match bytes {
                b"" => Err(invalid("reading the paths", "one of them is empty")),
                _ => Ok(Self::Here(word.into())),
            };
        };
        let (task, path) = (String::from_utf8_lossy(&bytes[..at]).into_owned(), &bytes[at + 1..]);
        if !task.is_empty() {
            TaskName::new(task.as_str()).map_err(|e| {
                invalid("reading the paths", format!("{:?}: {e}", word.to_string_lossy())).with_hint(
                    "a task stands before the colon; a file here with a colon in its name is written ./a:b",
                )
            })?;
        }
        let path = if path.is_empty() { b"." } else { path };
        Ok(Self::There { task: Some(task).filter(|task| !task.is_empty()), path: path.to_vec() })
    }
}

/// The last name of a path, and what is before it. `None` if it has none: `/`, `.`, `..`.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let path = &path[..end];
    let (before, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    let no_name = matches!(name, b"." | b"..") || before == b"." && name == b"~";
    (!no_name).then_some((before, name))
}

/// Below a path, or the name itself.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match (path, name) {
        (b"", _) => name.to_vec(),
        (_, b"") => path.to_vec(),
        _ => [path, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(task: Option<&str>, path: &str) -> Operand {
        Operand::There { task: task.map(str::to_owned), path: path.into() }
    }

    #[test]
    fn a_colon_before_any_slash_is_elsewhere() {
        let of = |word: &str| Operand::new(OsStr::new(word)).unwrap();
        assert_eq!(of(":/a:b"), there(None, "/a:b"));
        assert_eq!(of("build:x/y"), there(Some("build"), "x/y"));
        assert_eq!(of(":"), there(None, "."));
        assert_eq!(of("./a:b"), Operand::Here("./a:b".into()));
        assert_eq!(of("a/b:c"), Operand::Here("a/b:c".into()));
        assert_eq!(of("-"), Operand::Standard);
        for wrong in ["", "no task:x", "\n:x"] {
            assert!(Operand::new(OsStr::new(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_of_paths() {
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a//"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"a"), Some((&b"."[..], &b"a"[..])));
        assert_eq!(split(b"~/a"), Some((&b"~"[..], &b"a"[..])));
        for nameless in [&b"/"[..], b"", b".", b"..", b"a/..", b"~", b"//"] {
            assert_eq!(split(nameless), None, "{nameless:?}");
        }
    }
}
