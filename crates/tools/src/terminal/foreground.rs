//! A command whose end is waited for.

use super::{Arguments, Result, SIZE, notes, refused};
use crate::attended::{KILLED, PIECE, Unattended, Watching, wanted_no_more};
use crate::failure::{Failure, Outcome, answer};
use crate::text::{Output, Rest};
use crate::{Call, Tools};
use farshell_api::process::Process;
use farshell_api::run::Target;
use farshell_api::stream::Open;
use farshell_engine::client::new_process_id;
use farshell_engine::{Error, Kind};
use farshell_keeper::{Control, StreamEnd};
use farshell_policy::{Outline, Redactor};
use std::time::Duration;

pub(super) async fn run(tools: &Tools, arguments: &Arguments, target: Target, call: &Call<'_>) -> Outcome {
    let redactor = tools.keeper.redactor(&target)?;
    let outline = farshell_policy::outline(&arguments.command);
    let id = new_process_id().as_str().to_owned();
    let mut start = arguments.request(target, call);
    start.id = Some(id.clone());
    let open = Open { start: Some(Box::new(start)), attach: None };
    let keeper = tools.keeper(call);
    let told = call.told();
    let opened = tokio::select! {
        biased;
        () = call.cancel.cancelled() => return cancelled_before(),
        opened = keeper.stream(open, &told) => opened.map_err(refused)?,
    };
    let control = opened.control();
    let unattended = Unattended::new(control.clone(), tools);
    let mut sink = Watching::new(call.observer, &redactor);
    let (ended, cancelled) = {
        let mut follow = std::pin::pin!(opened.follow(&mut sink));
        let mut feed = std::pin::pin!(feed(&control, arguments.stdin.as_deref()));
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut follow => break (ended, false),
                () = wanted_no_more(tools, call) => {
                    let killing = async {
                        let _ = control.kill(None).await;
                        follow.await
                    };
                    let left = || Error::new(Kind::UnknownOutcome, format!("cancelling {id}"), "it was killed, and its end has not been seen");
                    break (tokio::time::timeout(KILLED, killing).await.unwrap_or_else(|_| Err(left())), true);
                }
                () = &mut feed, if !fed => fed = true,
            }
        }
    };
    unattended.over();
    let seen = Seen { arguments, outline: &outline, redactor: &redactor, output: &sink.output, cancelled };
    match ended {
        Ok(StreamEnd::Ended(process)) => answer(&seen.result(&process)),
        Ok(StreamEnd::Detached(process, reason)) => {
            answer(&Result { note: Some(reason), ..seen.result(&process) })
        }
        Err(error) => Err(seen.lost(error, &id)),
    }
}

fn cancelled_before() -> Outcome {
    Err(Failure::new(Kind::NotStarted, "the call was cancelled before the command began: nothing was run")
        .with("exit_code", 130))
}

/// Sends the whole input.
async fn feed(control: &Control, input: Option<&str>) {
    let Some(input) = input.map(str::as_bytes) else { return };
    let mut sent = 0;
    loop {
        let piece = &input[sent..input.len().min(sent + PIECE)];
        let eof = sent + piece.len() == input.len();
        match control.stdin(sent as u64, piece.to_vec(), eof).await {
            Ok(_) if !eof => sent += piece.len(),
            // All of it, or the command wants no more: its right.
            _ => return,
        }
    }
}

/// All that is known of a command that is over.
struct Seen<'a> {
    arguments: &'a Arguments,
    outline: &'a Outline,
    redactor: &'a Redactor,
    output: &'a Output,
    cancelled: bool,
}

impl Seen<'_> {
    fn result(&self, process: &Process) -> Result {
        let pty = self.arguments.pty.then_some(SIZE);
        let shown = self.output.shown(self.redactor, pty, Rest::Log(&process.id));
        let mut output = shown.text;
        let say = |output: &mut String, line: String| {
            if !output.is_empty() {
                output.push('\n');
            }
            output.push_str(&line);
        };
        let exit_code = if self.cancelled { 130 } else { process.exit_code.unwrap_or(-1) };
        let seconds = Duration::from_millis(process.duration_ms).as_secs_f64();
        let survivors = match process.survivors {
            0 => String::new(),
            n => format!("; {n} could not be killed"),
        };
        if self.cancelled {
            say(
                &mut output,
                format!("[the call was cancelled: the command was killed with all it started{survivors}]"),
            );
        } else if process.timed_out {
            let after = self.arguments.timeout.unwrap_or(seconds.round());
            let killed = process.killed;
            say(
                &mut output,
                format!(
                    "[timed out after {after} s: killed with all it started, {killed} processes{survivors}]"
                ),
            );
        }
        let meaning = match (self.cancelled || process.timed_out, process.workdir_failed) {
            (true, _) => None,
            (_, true) => Some("the workdir can't be entered; nothing was run".to_owned()),
            _ => notes::meaning(self.outline, exit_code),
        };
        let mut hints: Vec<_> = match self.cancelled {
            true => Vec::new(),
            false => notes::foreground(self.outline, process.timed_out)
                .into_iter()
                .chain(notes::pipeline(self.outline, exit_code, &process.pipe_status))
                .collect(),
        };
        if self.arguments.notify_on_complete || !self.arguments.watch_patterns.is_empty() {
            hints.push("notify_on_complete and watch_patterns are for background=true".to_owned());
        }
        if process.output_open {
            hints.push(
                "something it left behind still holds its output; `process` (action log) shows what comes"
                    .into(),
            );
        }
        Result {
            output,
            exit_code,
            exit_code_meaning: meaning,
            signal: process.signal_name.clone(),
            timed_out: process.timed_out,
            session_id: process.id.clone(),
            cwd: process.cwd.as_ref().map(|cwd| cwd.lossy().into_owned()),
            backend: process.backend.clone(),
            place: process.place.clone(),
            duration_seconds: Some(seconds),
            truncated: shown.omitted.is_some() || process.log.dropped.is_some(),
            total_bytes: shown.omitted.map(|omitted| omitted.total_bytes),
            total_lines: shown.omitted.map(|omitted| omitted.total_lines),
            note: process.note.clone(),
            hint: (!hints.is_empty()).then(|| hints.join("; ")),
            ..Result::default()
        }
    }

    /// The command was begun, or may have been, and its end is not known. What it printed is.
    fn lost(&self, error: Error, id: &str) -> Failure {
        let pty = self.arguments.pty.then_some(SIZE);
        let output = self.output.shown(self.redactor, pty, Rest::Log(id)).text;
        refused(error)
            .with("output", output)
            .with("exit_code", if self.cancelled { 130 } else { -1 })
            .with("session_id", id)
    }
}
