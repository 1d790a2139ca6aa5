//! A command whose end is waited for.

use super::{Arguments, Result, SIZE, notes, refused};
use crate::failure::{Failure, Outcome, answer};
use crate::text::{Output, plain};
use crate::{Call, Observer, Tools};
use farshell_api::process::Process;
use farshell_api::run::Target;
use farshell_api::stream::Open;
use farshell_engine::capture::Sink;
use farshell_engine::client::new_process_id;
use farshell_engine::{Error, Kind};
use farshell_keeper::{Control, StreamEnd};
use farshell_policy::{Outline, Redactor};
use farshell_protocol::process::Chunk;
use std::time::{Duration, Instant};

/// How often a caller is told that output has come.
const NEWS: Duration = Duration::from_millis(250);
/// Bytes of input in one message: far below what a message may hold.
const PIECE: usize = 256 << 10;
/// How long the end of a command that was killed is waited for.
const KILLED: Duration = Duration::from_secs(30);

/// Keeps output, and tells the caller about it.
struct Watching<'a> {
    output: Output,
    observer: &'a dyn Observer,
    redactor: &'a Redactor,
    told: Option<Instant>,
}

impl Sink for Watching<'_> {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.output.push(chunk.bytes);
        if self.told.is_none_or(|told| told.elapsed() >= NEWS) {
            self.told = Some(Instant::now());
            let text = plain(&chunk.bytes[chunk.bytes.len().saturating_sub(2000)..], usize::MAX).0;
            let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
            self.observer.output(self.output.total(), crate::text::first(&self.redactor.redact(line), 200));
        }
    }
}

/// Kills the command if the one who waits for it goes away. A server that ends leaves it running, as it leaves all
/// others.
struct Unattended<'a>(Option<Control>, &'a crate::Stays);

impl Drop for Unattended<'_> {
    fn drop(&mut self) {
        if let (Some(control), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
            && self.1.0()
        {
            runtime.spawn(async move { control.kill(None).await });
        }
    }
}

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
    let mut unattended = Unattended(Some(control.clone()), &tools.stays);
    let mut sink =
        Watching { output: Output::default(), observer: call.observer, redactor: &redactor, told: None };
    let (ended, cancelled) = {
        let mut follow = std::pin::pin!(opened.follow(&mut sink));
        let mut feed = std::pin::pin!(feed(&control, arguments.stdin.as_deref()));
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut follow => break (ended, false),
                () = cancelled(tools, call) => {
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
    unattended.0 = None;
    let seen = Seen { arguments, outline: &outline, redactor: &redactor, output: &sink.output, cancelled };
    match ended {
        Ok(StreamEnd::Ended(process)) => answer(&seen.result(&process)),
        Ok(StreamEnd::Detached(process, reason)) => {
            answer(&Result { note: Some(reason), ..seen.result(&process) })
        }
        Err(error) => Err(seen.lost(error, &id)),
    }
}

/// Waits until somebody wants no more of it. A server that ends loses all its clients, which says nothing.
async fn cancelled(tools: &Tools, call: &Call<'_>) {
    call.cancel.cancelled().await;
    if !tools.stays.0() {
        std::future::pending::<()>().await;
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
        let shown = self.output.shown(self.redactor, pty, &process.id);
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
            false => notes::foreground(self.outline, process.timed_out).into_iter().collect(),
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
        let output = self.output.shown(self.redactor, pty, id).text;
        refused(error)
            .with("output", output)
            .with("exit_code", if self.cancelled { 130 } else { -1 })
            .with("session_id", id)
    }
}
