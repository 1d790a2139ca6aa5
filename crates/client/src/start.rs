//! Starting a server if there is none.
//!
//! Whoever finds no server starts one. Of many starters at once one wins, decided by the server's lock; the others
//! are told so and connect to the winner.

use crate::error::{Result, error, with_hint};
use crate::home::Files;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};

const STARTING: &str = "starting the server";
/// What `serve --daemon` exits with if another server has the home, or if its own was killed while it started.
pub const OTHER_SERVES: i32 = 1;
/// Lines of the server's log in an error.
const LAST_WORDS: usize = 5;

/// How to start a server: a program that returns when its server answers.
#[derive(Clone, Debug)]
pub struct Starter {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// What came of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    Ready,
    /// Another one was faster, or is about to end.
    Other,
}

impl Starter {
    /// This program, with `serve --daemon`.
    #[must_use]
    pub fn this_program() -> Self {
        // A program that was replaced by a newer one since it was started has no path any more.
        let program = std::env::current_exe()
            .ok()
            .filter(|path| path.exists())
            .unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        Self { program, args: vec!["serve".into(), "--daemon".into()] }
    }

    pub(crate) async fn start(&self, files: &Files, deadline: Instant) -> Result<Started> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env("HERMES_HOME", &files.home).current_dir("/");
        // Settings for one call must not become those of all who come without any.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TERMINAL_") {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|e| error("system", STARTING, format!("{}: {e}", self.program.display())))?;
        let output = match timeout_at(deadline, child.wait_with_output()).await {
            Ok(output) => output.map_err(|e| error("system", STARTING, e.to_string()))?,
            Err(_) => return Err(late(files)),
        };
        match output.status.code() {
            Some(0) => Ok(Started::Ready),
            // Killed by somebody: another attempt may fare better.
            Some(OTHER_SERVES) | None => Ok(Started::Other),
            _ => Err(failed(files, &String::from_utf8_lossy(&output.stderr), &output.status.to_string())),
        }
    }
}

/// It said why, or its log does.
fn failed(files: &Files, said: &str, status: &str) -> farshell_api::ApiError {
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let hint = lines.iter().position(|line| line.starts_with("hint: ")).map(|at| lines.split_off(at));
    let message = match lines.join("\n") {
        text if text.trim().is_empty() => std::iter::once(format!("it ended at once ({status})"))
            .chain(files.last_words(LAST_WORDS).into_iter().map(|line| format!("  {line}")))
            .collect::<Vec<_>>()
            .join("\n"),
        text => {
            let text = text.trim().trim_start_matches("farshell: ");
            text.trim_start_matches(STARTING).trim_start_matches(": ").to_owned()
        }
    };
    let hint = hint.map_or_else(
        || format!("its log is {}", files.log().display()),
        |lines| lines.join("\n").replace("hint: ", ""),
    );
    with_hint(error("unavailable", STARTING, message), hint)
}

/// It is not ready in time.
pub(crate) fn late(files: &Files) -> farshell_api::ApiError {
    let mut message = "it is not ready in time".to_owned();
    for line in files.last_words(LAST_WORDS) {
        message.push_str(&format!("\n  {line}"));
    }
    with_hint(error("timed_out", STARTING, message), format!("its log is {}", files.log().display()))
}
