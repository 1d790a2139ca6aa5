//! What is said of a script that is over.

use super::run::Said;
use crate::failure::{Failure, Outcome, answer};
use crate::terminal::is_false;
use crate::text::{Output, Rest, Shown};
use farshell_api::process::Process;
use farshell_api::run::Place;
use farshell_engine::{Error, Kind};
use farshell_policy::Redactor;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Between what was printed to standard output and to standard error.
const SEPARATOR: &str = "--- stderr ---";
/// The shell's word for a program that is not there, and for a directory that can't be entered.
const NO_PYTHON: i32 = 127;
const NO_WORKDIR: i32 = 126;

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Result {
    /// `success` (exit code 0), `error`, `timeout` or `interrupted`.
    status: &'static str,
    /// What the script printed to standard output. If it failed, also what it printed to standard error, below a line
    /// that says so.
    output: String,
    /// The script's own code: 1 after an exception; 124 after a timeout, 130 after a cancellation, 128+n if signal n ended
    /// it, -1 if it was not run or its outcome is unknown.
    exit_code: i32,
    /// Null if the script succeeded, else why not, in short.
    error: Option<String>,
    /// How often it called a tool.
    tool_calls_made: u32,
    duration_seconds: f64,
    /// What a script that succeeded printed to standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// The middle of standard output is left out.
    #[serde(skip_serializing_if = "is_false")]
    stdout_truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_bytes_captured: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_bytes_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_bytes_omitted: Option<u64>,
    /// What should not be overlooked: output that was left out, something that the script has left behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// Id of the script: its whole output is read with `process` (action log).
    session_id: String,
    /// Where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    backend: String,
    place: Place,
    /// What happened besides: the session began anew, memory ran out.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Who ended it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The script, its time, or somebody else.
    Itself,
    Cancelled,
    /// We did: its time was up, and nothing was heard of its end.
    Late,
    /// We did: the harness would not have said this.
    Fault(String),
}

/// All that is known of a script that is over.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) stdout: &'a Output,
    pub(super) stderr: &'a Output,
    pub(super) redactor: &'a Redactor,
    pub(super) said: Said,
    pub(super) made: u32,
    pub(super) why: Why,
    /// Seconds that it was given.
    pub(super) timeout: f64,
    pub(super) id: &'a str,
}

impl Seen<'_> {
    pub(super) fn outcome(&self, process: &Process) -> Outcome {
        if !self.said.ready && self.why == Why::Itself && !self.timed_out(process) {
            return Err(self.never_ready(process));
        }
        answer(&self.result(process))
    }

    fn result(&self, process: &Process) -> Result {
        let exit_code = match self.why {
            Why::Cancelled => 130,
            Why::Late => 124,
            Why::Itself | Why::Fault(_) => process.exit_code.unwrap_or(-1),
        };
        let error = self.error(process, exit_code);
        let status = match self.why {
            Why::Cancelled => "interrupted",
            _ if self.timed_out(process) => "timeout",
            Why::Itself if exit_code == 0 => "success",
            _ => "error",
        };
        let Shown { text: stdout, omitted } = self.stdout.shown(self.redactor, None, Rest::Log(self.id));
        let stderr = self.stderr();
        let (output, stderr) = match error.is_some() {
            true => (joined(stdout, &stderr), None),
            false => (stdout, Some(stderr).filter(|text| !text.is_empty())),
        };
        let left_out = omitted.map(|omitted| omitted.bytes.1.saturating_sub(omitted.bytes.0));
        let mut warnings = Vec::new();
        if let (Some(omitted), Some(left_out)) = (&omitted, left_out) {
            warnings.push(format!(
                "{left_out} of the {} bytes of standard output are left out in the middle; \
                 process(action=\"log\", session_id=\"{}\") reads them. Print less, or write to a file",
                omitted.total_bytes, self.id
            ));
        }
        if process.output_open {
            warnings.push("something that the script left behind still holds its output".to_owned());
        }
        Result {
            status,
            output,
            exit_code,
            error,
            tool_calls_made: self.made,
            duration_seconds: Duration::from_millis(process.duration_ms).as_secs_f64(),
            stderr,
            signal: process.signal_name.clone(),
            stdout_truncated: omitted.is_some(),
            stdout_bytes_captured: omitted.zip(left_out).map(|(omitted, out)| omitted.total_bytes - out),
            stdout_bytes_total: omitted.map(|omitted| omitted.total_bytes),
            stdout_bytes_omitted: left_out,
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
            session_id: process.id.clone(),
            cwd: process.cwd.as_ref().map(|cwd| cwd.lossy().into_owned()),
            backend: process.backend.clone(),
            place: process.place.clone(),
            note: process.note.clone(),
        }
    }

    fn timed_out(&self, process: &Process) -> bool {
        self.why == Why::Late || (self.why == Why::Itself && process.timed_out)
    }

    fn stderr(&self) -> String {
        self.stderr.shown(self.redactor, None, Rest::Nowhere).text
    }

    fn error(&self, process: &Process, exit_code: i32) -> Option<String> {
        let survivors = match process.survivors {
            0 => String::new(),
            n => format!("; {n} could not be killed"),
        };
        match &self.why {
            Why::Cancelled => {
                Some(format!("the call was cancelled: the script was killed with all it started{survivors}"))
            }
            Why::Fault(fault) => Some(format!(
                "the script was killed: where its calls of tools are expected it wrote {}{survivors}",
                self.redactor.redact(fault)
            )),
            _ if self.timed_out(process) => Some(format!(
                "timed out after {} s: killed with all it started, {} processes{survivors}",
                self.timeout, process.killed
            )),
            _ if exit_code == 0 => None,
            _ => Some(match (&self.said.raised, &process.signal_name) {
                (_, Some(signal)) => format!("{signal} ended the script"),
                (Some(raised), None) => self.redactor.redact(raised).into_owned(),
                (None, None) => format!("the script exited with code {exit_code}"),
            }),
        }
    }

    /// The shell or Python has failed, before there was a script.
    fn never_ready(&self, process: &Process) -> Failure {
        let code = process.exit_code.unwrap_or(-1);
        let said = joined(self.stdout.shown(self.redactor, None, Rest::Nowhere).text, &self.stderr());
        let (kind, hint) = match code {
            NO_PYTHON => (
                Kind::Unavailable,
                "Python 3.8 or later has to be in the place: install it there, or choose an image that has it. \
                 The other tools need none",
            ),
            NO_WORKDIR => (Kind::NotFound, "`workdir` can't be entered"),
            _ => (Kind::Unavailable, "its Python could not be started, or is none that can be used"),
        };
        let signal = process.signal_name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        let message = format!("the script was not run: {hint}. Exit code {code}{signal}: {said}");
        Failure::new(kind, message)
            .with("session_id", process.id.clone())
            .with("backend", process.backend.clone())
    }

    /// The script was begun, or may have been, and its end is not known. What it printed is.
    pub(super) fn lost(&self, error: Error) -> Failure {
        let stdout = self.stdout.shown(self.redactor, None, Rest::Log(self.id)).text;
        Failure::from(error)
            .with("output", joined(stdout, &self.stderr()))
            .with("exit_code", if self.why == Why::Cancelled { 130 } else { -1 })
            .with("tool_calls_made", self.made)
            .with("session_id", self.id)
    }
}

fn joined(mut stdout: String, stderr: &str) -> String {
    if stderr.is_empty() {
        return stdout;
    }
    if !stdout.is_empty() {
        stdout.push('\n');
    }
    stdout + SEPARATOR + "\n" + stderr
}
