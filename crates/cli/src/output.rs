//! What a person or a program is told: errors, notices, tables. Colours only where somebody looks at them.

use farshell_api::ApiError;
use farshell_engine::{Error, Kind, Retry};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};

/// Exit codes of Farshell itself.
pub(crate) mod code {
    /// The answer is no.
    pub(crate) const NO: i32 = 1;
    /// What was typed makes no sense (but see [`FAILED`] for `run`).
    pub(crate) const USAGE: i32 = 2;
    /// The command's time was up.
    pub(crate) const TIMED_OUT: i32 = 124;
    /// Farshell itself failed; the command may not have run.
    pub(crate) const FAILED: i32 = 125;
    /// The workdir could not be entered, so the command did not run.
    pub(crate) const NO_WORKDIR: i32 = 126;
    /// The command was not allowed to run: what a shell says of a program that may not be executed.
    pub(crate) const DENIED: i32 = 126;
    /// Nobody reads our output: what a shell says of a program that SIGPIPE ended.
    pub(crate) const BROKEN_PIPE: i32 = signal(13);

    /// What stands for an error.
    pub(crate) fn of(error: &farshell_api::ApiError) -> i32 {
        if error.kind == "denied" { DENIED } else { FAILED }
    }

    /// What a shell says of a program that a signal ended.
    pub(crate) const fn signal(number: i32) -> i32 {
        128 + number
    }
}

/// Why a subcommand did not come to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something failed, and the reader is told.
    Failed(Box<ApiError>),
    /// Nobody reads our output.
    BrokenPipe,
}

pub(crate) type Outcome = Result<i32, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(api_error(error)))
    }
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// An error while writing to our own standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Error::io("writing to standard output", error).into(),
        }
    }
}

/// Words in colour, or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn stdout() -> Self {
        Self { colours: io::stdout().is_terminal() && colours_wanted() }
    }

    pub(crate) fn stderr() -> Self {
        Self { colours: io::stderr().is_terminal() && colours_wanted() }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colours: false }
    }

    fn paint(self, escape: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{escape}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// <https://no-color.org>, and terminals that can't.
fn colours_wanted() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Tells a person what failed and what to do.
pub(crate) fn print_error(error: &ApiError) {
    let style = Style::stderr();
    let mut text = format!("{} {}: {}\n", style.red("farshell:"), error.operation, error.message);
    for line in error.hint.iter().flat_map(|hint| hint.lines()) {
        text.push_str(&format!("{} {line}\n", style.bold("hint:")));
    }
    // If even that can't be said, the exit code says it.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The same for a program.
pub(crate) fn error_json(error: &ApiError) -> Value {
    json!({"error": {
        "kind": error.kind,
        "operation": error.operation,
        "message": error.message,
        "hint": error.hint,
        "retry": error.retry,
    }})
}

/// An error of this process, in the words that the server's have too.
pub(crate) fn api_error(error: Error) -> ApiError {
    let retry = match error.retry() {
        Retry::Never => "never",
        Retry::Safe => "safe",
        Retry::Unsafe => "unsafe",
    };
    ApiError {
        kind: error.kind.name().into(),
        operation: error.operation,
        message: error.message,
        hint: error.hint,
        retry: retry.into(),
    }
}

/// Does what it is asked for, and tells a program about a failure in the way that it expects.
pub(crate) fn told(json: bool, outcome: Outcome) -> Outcome {
    match outcome {
        Err(Stop::Failed(error)) if json => {
            print_json(&error_json(&error))?;
            Ok(code::of(&error))
        }
        other => other,
    }
}

/// Tells a person at a terminal something that is no error. Programs find it in the JSON object. A line end at its
/// beginning ends the line that the cursor is in.
pub(crate) fn notice(text: &str) {
    if io::stderr().is_terminal() {
        let (begin, text) = text.strip_prefix('\n').map_or(("", text), |text| ("\n", text));
        let _ = writeln!(io::stderr(), "{begin}{}", Style::stderr().dim(&format!("farshell: {text}")));
    }
}

/// Tells everybody something on standard error, in lines that end themselves.
pub(crate) fn tell(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints one JSON value: on one line for programs, indented for people.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    print(&(text.map_err(io::Error::from)? + "\n"))
}

/// Prints one of many JSON values, always on one line.
pub(crate) fn print_json_line(value: &impl Serialize) -> io::Result<()> {
    print(&(serde_json::to_string(value).map_err(io::Error::from)? + "\n"))
}

/// Prints text that ends its own lines.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// `1 process`, `2 processes`.
pub(crate) fn count(n: u32, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n if what.ends_with('s') => format!("{n} {what}es"),
        n => format!("{n} {what}s"),
    }
}

/// Text from elsewhere, safe for a terminal: what could steer it is made visible.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push('⏎'),
            '\t' => out.push(' '),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// What was typed makes no sense.
pub(crate) fn invalid(operation: &str, message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, operation, message)
}
