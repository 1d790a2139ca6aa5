//! Signals, by name and by number.

use farshell_engine::{Error, Kind, Result};

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The highest number there is.
const MOST: i32 = 64;

/// The usual name of a signal.
pub(crate) fn name(number: i32) -> Option<&'static str> {
    NAMES.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// The signal that is meant by `INT`, `SIGINT` or `2`.
///
/// # Errors
/// There is none.
pub(crate) fn number(text: &str) -> Result<i32> {
    let upper = text.trim().to_ascii_uppercase();
    let named = |name: &&str| **name == upper || name.strip_prefix("SIG") == Some(upper.as_str());
    let found = match upper.parse::<i32>() {
        Ok(number) => Some(number).filter(|n| (1..=MOST).contains(n)),
        Err(_) => NAMES.iter().position(named).and_then(|at| i32::try_from(at + 1).ok()),
    };
    found.ok_or_else(|| {
        let shown: String = text.chars().take(32).collect();
        Error::new(Kind::Invalid, "reading signal", format!("{shown:?} is not a signal"))
            .with_hint(format!("give a name such as INT or SIGTERM, or a number from 1 to {MOST}"))
    })
}

/// Whether it is meant to end whoever gets it.
pub(crate) fn ends(number: i32) -> bool {
    matches!(name(number), Some("SIGHUP" | "SIGINT" | "SIGQUIT" | "SIGKILL" | "SIGTERM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_linux_names() {
        for (number, text) in
            [(1, "SIGHUP"), (9, "SIGKILL"), (15, "SIGTERM"), (19, "SIGSTOP"), (31, "SIGSYS")]
        {
            assert_eq!(name(number), Some(text));
        }
        assert_eq!((name(0), name(-1), name(34)), (None, None, None));
    }

    #[test]
    fn names_and_numbers_are_understood() {
        for (text, signal) in
            [("INT", 2), ("SIGINT", 2), ("sigint", 2), (" 2 ", 2), ("64", 64), ("winch", 28)]
        {
            assert_eq!(number(text).unwrap(), signal, "{text}");
        }
        for text in ["", "0", "65", "-1", "SIG", "SIGNOPE", "2x", "SIGSIGINT"] {
            let error = number(text).unwrap_err();
            assert_eq!((error.kind, error.operation.as_str()), (Kind::Invalid, "reading signal"), "{text}");
        }
    }
}
