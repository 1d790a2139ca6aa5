//! `execute_code`: a script in Python that calls the other tools.
//!
//! # The way of a script
//! 1. The gate judges it as one action (`run`). What it calls is judged once more, each call by itself.
//! 2. A Python of the place is started beside the session (`start`). It gets our harness and the script by its input.
//! 3. The harness says what the script calls between what that prints to standard error (`frames`). The call is made as if
//!    the model had made it (`calls`), and the answer goes down by the input: one message each way, and nobody polls.
//! 4. The end is the kernel's word on the process, as for any command (`result`).
//!
//! `harness.py` is the other side of `frames` and `calls`.

mod calls;
mod frames;
mod result;
mod run;
mod start;

use crate::failure::{Failure, Outcome};
use crate::{Call, Hints, Tool, Tools, arguments};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use start::is_run;

const DESCRIPTION: &str = "Run a Python script that can call the other tools: for many calls with logic between them \
(loops over files, filters, several commands whose output only the script has to see), in one turn and without their \
results in between. `from farshell_tools import terminal, read_file, write_file, patch, search_files` (the module is also \
there as hermes_tools): functions with the arguments of the tools of the same names, each returning the tool's result as \
a dict; terminal only in the foreground. Also there: json_parse(text) for JSON with other text around it, \
shell_quote(text), retry(function, max_attempts=3, delay=2). The script runs in the place where commands run, in the \
session's directory and with its variables, on that place's own Python 3.8 or later. Print what you want to see: only \
that is returned. Limits: 300 s, 50 calls of tools, 50,000 characters of output. There is nothing to read on standard \
input, and nothing lasts from one script to the next but files and what its commands did.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The script.
    code: String,
    /// Seconds after which it is killed with all it started: 300 unless given, and at most 600.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout: Option<f64>,
    /// Directory of the script; relative to the session's. Its calls of tools begin in the session's own.
    #[serde(default)]
    workdir: Option<String>,
    /// Another session than the usual one: the script begins with its directory and variables, and its commands run
    /// there.
    #[serde(default)]
    session: Option<String>,
    /// Where to run it, if that is to be another place than the configured one. Only configured names are possible.
    #[serde(default)]
    backend: Option<String>,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: true };
    Tool::new::<Arguments, result::Result>(("execute_code", "Run Python"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let run = async {
        let arguments: Arguments = arguments::read("execute_code", arguments)?;
        check(&arguments)?;
        Box::pin(run::run(tools, &arguments, call)).await
    };
    run.await.map_err(not_run)
}

fn check(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(timeout) = arguments.timeout
        && !(timeout > 0.0 && timeout.is_finite())
    {
        return Err(Failure::argument("timeout", timeout, "it is a number of seconds above 0"));
    }
    if arguments.code.trim().is_empty() {
        return Err(Failure::argument("code", &arguments.code, "it is a script in Python"));
    }
    match arguments.workdir.as_deref() {
        Some("") => {
            Err(Failure::argument("workdir", "", "it is a directory; leave it out to use the session's"))
        }
        Some(dir) if dir.contains('\0') => Err(Failure::argument("workdir", dir, "it has a NUL byte in it")),
        _ => Ok(()),
    }
}

/// A script that was not run has no output and no exit code of its own.
fn not_run(failure: Failure) -> Failure {
    let mut failure = match failure.error_kind {
        Some("denied") => failure.status("blocked"),
        _ => failure,
    };
    for (name, value) in
        [("output", Value::from("")), ("exit_code", Value::from(-1)), ("tool_calls_made", Value::from(0))]
    {
        failure.more.entry(name).or_insert(value);
    }
    failure
}
