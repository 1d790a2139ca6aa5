//! `process`: what became of commands, and what can still be done to them.

mod desk;
mod moment;

use crate::failure::{Failure, Outcome};
use crate::terminal::is_false;
use crate::{Call, Hints, Tool, Tools, arguments};
use desk::Desk;
use farshell_api::run::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DESCRIPTION: &str = "Look after commands by their session_id: those started with terminal(background=true), and \
the whole output of any other one. Actions: list; poll (state and the latest output); log (output by line, or by byte \
with byte_offset; the last 200 lines unless told otherwise); wait (until it ends or the time is up); kill (with all it \
started); write (text to its input), submit (text and Enter), close (end of input).";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    List,
    Poll,
    Log,
    Wait,
    Kill,
    Write,
    Submit,
    Close,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    action: Action,
    /// Which process; needed by all actions but list.
    #[serde(default)]
    session_id: Option<String>,
    /// write, submit: the text.
    #[serde(default)]
    data: Option<String>,
    /// wait: seconds, at most 600.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout: Option<f64>,
    /// log: the first line to show, counted from 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    offset: Option<i64>,
    /// log: how many lines, at most 5000.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<i64>,
    /// log: read from this byte on instead of by line, for very long lines.
    #[serde(default)]
    #[schemars(range(min = 0))]
    byte_offset: Option<i64>,
}

/// What is told of one process. Which fields are there depends on the action.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct About {
    session_id: String,
    /// `running` or `exited`; `lost` if nobody can say how it ended, `not_started` if it never began; after wait also
    /// `timeout` and `interrupted`; after kill `killed` and `already_exited`; after write, submit and close `ok`.
    status: String,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// ISO 8601, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_seconds: Option<f64>,
    /// The end of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_preview: Option<String>,
    /// What is on its terminal now, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    screen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// `exited`, `killed`, `timed_out`, `lost` or `not_started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_reason: Option<String>,
    /// It waits for input on its terminal: `input`, or `secret` if it does not echo.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    background: bool,
    #[serde(skip_serializing_if = "is_false")]
    notify_on_complete: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    watch_patterns: Vec<String>,
    backend: String,
    place: Place,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// The union of what the actions give; [`About`] for poll, wait and kill.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Result {
    #[serde(flatten)]
    about: Option<About>,
    /// list: those of this task that run, and the latest that have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<About>>,
    /// log, wait, kill: output.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// log: whole lines so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// log: bytes so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    /// log: which part is shown, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    showing: Option<String>,
    /// log: the line to go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// log: the byte to go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_byte_offset: Option<u64>,
    /// write, submit: bytes sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_written: Option<usize>,
    /// kill: processes killed, and those that could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    killed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    survivors: Option<u32>,
    /// wait: that it was waited for a shorter time than asked, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_note: Option<String>,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: false };
    Tool::new::<Arguments, Result>(("process", "Processes"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("process", arguments)?;
    let redactor = tools.keeper.redactor(&call.target)?;
    let desk = Desk { keeper: tools.keeper(call), redactor, call };
    if arguments.action == Action::List {
        return desk.list().await;
    }
    let Some(id) = arguments.session_id.as_deref().filter(|id| !id.is_empty()) else {
        return Err(Failure::invalid(
            "argument `session_id` is required: the id that terminal(background=true) gave; action=\"list\" shows all",
        ));
    };
    let process = desk.find(id).await?;
    match arguments.action {
        Action::List | Action::Poll => desk.poll(process).await,
        Action::Log => desk.log(process, &arguments).await,
        Action::Wait => desk.wait(process, arguments.timeout).await,
        Action::Kill => desk.kill(process).await,
        Action::Write | Action::Submit | Action::Close => desk.send(process, &arguments).await,
    }
}
