//! `terminal`: commands.

mod background;
mod foreground;
pub(crate) mod notes;

use crate::failure::{Failure, Outcome};
use crate::{Call, Hints, Tool, Tools, arguments};
use farshell_api::Text;
use farshell_api::run::{Place, Size, StartRequest, Target};
use farshell_engine::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DESCRIPTION: &str = "Run a shell command (bash). Directory, exported variables and, where the shell is \
persistent, everything else last from call to call. Returns output (both streams, in the order of arrival), exit_code \
and cwd. Long output is cut in the middle, with the offsets at which `process` (action log) reads the rest. Use it for \
builds, installs, git, processes, network and package managers; for files prefer read_file, write_file, patch and \
search_files. What does not end by itself (servers, watchers) or takes more than minutes is started with \
background=true and looked after with `process`. There is nobody to answer questions: give answers with `stdin`, or \
use flags such as -y. pty=true gives the command a terminal.";

/// The terminal of commands that have one: wide enough that lines are seldom broken.
pub(crate) const SIZE: Size = Size { rows: 30, cols: 120 };

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The command, as one would type it.
    command: String,
    /// Return at once with a session_id; the command goes on. See the tool `process`.
    #[serde(default)]
    background: bool,
    /// Seconds after which the command is killed with all it started. Foreground: 180 unless configured otherwise, and
    /// at most 600. Background: none unless given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout: Option<f64>,
    /// Directory for this command only; relative to the session's.
    #[serde(default)]
    workdir: Option<String>,
    /// Run it on a terminal (30 rows, 120 columns), for programs that want one.
    #[serde(default)]
    pty: bool,
    /// Background: be told when it ends.
    #[serde(default)]
    notify_on_complete: bool,
    /// Background: be told when a line of output contains one of these texts.
    #[serde(default)]
    watch_patterns: Vec<String>,
    /// Text that the command reads from its standard input. Without it, a foreground command reads nothing; to a
    /// background one more can be sent with `process` (action write, submit, close).
    #[serde(default)]
    stdin: Option<String>,
    /// Another shell than the usual one: each session has a directory and variables of its own.
    #[serde(default)]
    session: Option<String>,
    /// Where to run it, if that is to be another place than the configured one. Only configured names are possible.
    #[serde(default)]
    backend: Option<String>,
}

/// What every result says about where it comes from.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Result {
    /// What the command printed, standard output and standard error together.
    output: String,
    /// The command's own code; 124 after a timeout, 130 after a cancellation, 128+n if signal n ended it, 126 if the
    /// workdir can't be entered, -1 if it was not run or its outcome is unknown.
    exit_code: i32,
    /// Null if the command was run, whatever its exit code.
    error: Option<String>,
    /// What the exit code means, where that is well known.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code_meaning: Option<String>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Its time was up, and it was killed with all it started.
    #[serde(skip_serializing_if = "is_false")]
    timed_out: bool,
    /// Id of the command: its whole output is read, and it is steered, with `process`.
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// The session's directory after the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    backend: String,
    place: Place,
    /// Seconds it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_seconds: Option<f64>,
    /// Output was left out in the middle.
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// What happened besides: the session began anew, memory ran out, a person approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Advice for next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    notify_on_complete: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    watch_patterns: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: true };
    Tool::new::<Arguments, Result>(("terminal", "Terminal"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("terminal", arguments).map_err(not_run)?;
    let run = async {
        let target = tools.target(call, arguments.backend.as_deref())?;
        check(&arguments)?;
        match arguments.background {
            true => Box::pin(background::start(tools, &arguments, target, call)).await,
            false => Box::pin(foreground::run(tools, &arguments, target, call)).await,
        }
    };
    run.await.map_err(not_run)
}

fn check(arguments: &Arguments) -> std::result::Result<(), Failure> {
    if let Some(timeout) = arguments.timeout
        && !(timeout > 0.0 && timeout.is_finite())
    {
        return Err(Failure::argument("timeout", timeout, "it is a number of seconds above 0"));
    }
    if arguments.command.trim().is_empty() {
        return Err(Failure::argument("command", &arguments.command, "it is a shell command"));
    }
    if arguments.workdir.as_deref() == Some("") {
        return Err(Failure::argument("workdir", "", "it is a directory; leave it out to use the session's"));
    }
    Ok(())
}

impl Arguments {
    fn request(&self, target: Target, call: &Call<'_>) -> StartRequest {
        StartRequest {
            target,
            session: self.session.clone().unwrap_or_else(|| call.session.clone()),
            workdir: self.workdir.as_deref().map(Text::from),
            timeout: self.timeout,
            background: self.background,
            pty: self.pty.then_some(SIZE),
            stdin: self.background || self.stdin.is_some(),
            // As on a terminal: the order in which things were printed is part of what they say.
            merge_stderr: true,
            notify_on_complete: self.background && self.notify_on_complete,
            watch_patterns: if self.background { self.watch_patterns.clone() } else { Vec::new() },
            ..StartRequest::new(self.command.as_str())
        }
    }
}

/// An error of the keeper, with what a model can do about it.
fn refused(error: Error) -> Failure {
    let too_long = error.operation == "reading timeout" && error.message.contains("max_foreground_timeout");
    let mut failure = Failure::from(error);
    if too_long {
        failure.error.push_str(". What takes longer is run with background=true");
    }
    failure
}

/// A command that was not run has no output and no exit code of its own.
fn not_run(failure: Failure) -> Failure {
    let mut failure = match failure.error_kind {
        Some("denied") => failure.status("blocked"),
        _ => failure,
    };
    for (name, value) in [("output", Value::from("")), ("exit_code", Value::from(-1))] {
        failure.more.entry(name).or_insert(value);
    }
    failure
}
