//! How a script's Python is started, and what it is sent first.

use crate::failure::Failure;
use farshell_engine::Kind;
use farshell_engine::client::new_process_id;
use serde_json::json;

const STARTER: &str = include_str!("starter.py");
const HARNESS: &str = include_str!("harness.py");

/// Ids of scripts begin like this, so that whoever reads their logs knows what is in them.
const PREFIX: &str = "code_";

/// What the shell says if there is no Python. Both are tried as the session's `PATH` has them, so a virtual environment
/// that was activated there is the script's, too.
const MISSING: &str = "neither python3 nor python is on the PATH of the session";

/// Whether it is the id of a script.
pub(crate) fn is_run(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// An id for a script.
pub(super) fn new_id() -> String {
    let id = new_process_id();
    format!("{PREFIX}{}", id.as_str().trim_start_matches("proc_"))
}

/// By which messages are known among other output: nobody can guess it.
///
/// # Errors
/// The system has no randomness to give.
pub(super) fn new_mark() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Kind::System, format!("no random number is to be had: {error}")))?;
    Ok(format!("\0farshell:{:032x}", u128::from_be_bytes(bytes)))
}

/// The command of the shell that becomes the script's Python.
pub(super) fn command(workdir: Option<&str>) -> String {
    let enter = workdir.map(|dir| format!("CDPATH= command cd -- {} || exit 126\n", place(dir)));
    let starter = quoted(STARTER);
    let attempt = |name: &str| format!("command -v {name} >/dev/null 2>&1 && exec {name} -c {starter}\n");
    format!(
        "# execute_code\n{}{}{}echo {} >&2\nexit 127",
        enter.unwrap_or_default(),
        attempt("python3"),
        attempt("python"),
        quoted(MISSING),
    )
}

/// The first input: our harness, and what it is to run.
pub(super) fn input(mark: &str, code: &str) -> Vec<u8> {
    let first = json!({ "mark": mark, "code": code });
    format!("{}\n{HARNESS}{first}\n", HARNESS.len()).into_bytes()
}

/// A directory as one word, with the home directory for `~`.
fn place(dir: &str) -> String {
    match dir.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("\"$HOME\"{}", quoted(rest)),
        _ => quoted(dir),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        assert_eq!(place("a b'c"), "'a b'\\''c'");
        assert_eq!(place("~"), "\"$HOME\"''");
        assert_eq!(place("~/x y"), "\"$HOME\"'/x y'");
        assert_eq!(place("~other"), "'~other'");
        assert!(is_run(&new_id()) && !is_run("proc_1"));
        assert_ne!(new_mark().unwrap(), new_mark().unwrap());
    }
}
