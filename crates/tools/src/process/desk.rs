//! What is asked of a process and done to it, one action each.

use super::moment::iso;
use super::{About, Action, Arguments, Result};
use crate::Call;
use crate::code;
use crate::failure::{Failure, Outcome, answer};
use crate::terminal::SIZE;
use crate::text::{first, last, plain, terminal_lines};
use farshell_api::Text;
use farshell_api::process::{
    KillRequest, LogPiece, LogQuery, Process, ProcessQuery, ProcessState, StdinRequest, View, WaitRequest,
    WaitingFor,
};
use farshell_engine::{Error, Kind};
use farshell_keeper::Keeper;
use farshell_policy::Redactor;
use std::sync::Arc;

/// Lines of a log if nothing is said, and at most.
const LINES: u32 = 200;
const MOST_LINES: u32 = 5_000;
/// Characters of the latest output.
const LIST: usize = 200;
const POLL: usize = 1_000;
const ENDED: usize = 2_000;
/// Bytes that are read for those: escape sequences are longer than text.
const PREVIEW: u32 = 64 << 10;
/// Bytes of a log in one answer.
const PIECE: u32 = 50_000;

/// Where a task's processes are looked after.
pub(super) struct Desk<'a> {
    pub(super) keeper: Keeper,
    pub(super) redactor: Arc<Redactor>,
    pub(super) call: &'a Call<'a>,
}

fn over(state: ProcessState) -> bool {
    matches!(state, ProcessState::Ended | ProcessState::NotStarted | ProcessState::Lost)
}

fn status(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Starting | ProcessState::Queued | ProcessState::Running => "running",
        ProcessState::Ended => "exited",
        ProcessState::NotStarted => "not_started",
        ProcessState::Lost => "lost",
    }
}

/// Which output is shown. Between what a script prints to standard error are messages of its harness.
fn view(process: &Process) -> View {
    if code::is_run(&process.id) { View::Stdout } else { View::Output }
}

impl Desk<'_> {
    /// A process of this task. Those of others are none of its business.
    pub(super) async fn find(&self, id: &str) -> std::result::Result<Process, Failure> {
        let missing = || {
            let message =
                format!("no process {:?} is known here; action=\"list\" shows those that are", first(id, 80));
            Failure::new(Kind::NotFound, message).status("not_found").with("session_id", id)
        };
        match self.keeper.process(id).await {
            Ok(process) if process.task == self.call.target.task => Ok(process),
            Ok(_) => Err(missing()),
            Err(error) if error.kind == Kind::NotFound => Err(missing()),
            Err(error) => Err(error.into()),
        }
    }

    fn about(&self, process: &Process) -> About {
        let command = process.command.lossy();
        let ended = over(process.state);
        let reason = match process.state {
            ProcessState::Ended if process.timed_out => "timed_out",
            ProcessState::Ended if process.killed > 0 => "killed",
            other => status(other),
        };
        About {
            session_id: process.id.clone(),
            status: status(process.state).to_owned(),
            command: first(&self.redactor.redact(&command), LIST).to_owned(),
            cwd: process.cwd.as_ref().map(|cwd| cwd.lossy().into_owned()),
            pid: process.pid,
            started_at: process.started_at.map(iso),
            uptime_seconds: (!ended)
                .then(|| f64::from(u32::try_from(process.duration_ms).unwrap_or(u32::MAX)) / 1000.0),
            exit_code: process.exit_code,
            signal: process.signal_name.clone(),
            completion_reason: ended.then(|| reason.to_owned()),
            waiting_for: process.waiting_for.map(|waiting| match waiting {
                WaitingFor::Input => "input",
                WaitingFor::Secret => "secret",
            }),
            background: process.background,
            notify_on_complete: process.notify_on_complete,
            watch_patterns: process.watch_patterns.clone(),
            backend: process.backend.clone(),
            place: process.place.clone(),
            note: process.note.clone(),
            ..About::default()
        }
    }

    /// The end of its output; empty if that is no longer kept.
    async fn tail(&self, process: &Process, most: usize) -> String {
        let query = LogQuery {
            view: view(process),
            offset: Some(-i64::from(PREVIEW)),
            len: Some(PREVIEW),
            ..LogQuery::default()
        };
        match self.keeper.log(&process.id, query).await {
            Ok(piece) => last(&self.shown(process, &piece.text.0), most).to_owned(),
            Err(_) => String::new(),
        }
    }

    fn shown(&self, process: &Process, bytes: &[u8]) -> String {
        let text = match process.pty {
            true => terminal_lines(SIZE, bytes),
            false => plain(bytes, usize::MAX).0,
        };
        self.redactor.redact(text.trim_end()).into_owned()
    }

    pub(super) async fn list(&self) -> Outcome {
        let query = ProcessQuery { task: Some(self.call.target.task.clone()), all: true };
        let mut processes = Vec::new();
        for process in self.keeper.processes(query).await? {
            let preview = self.tail(&process, LIST).await;
            processes.push(About { output_preview: Some(preview), ..self.about(&process) });
        }
        answer(&Result { processes: Some(processes), ..Result::default() })
    }

    pub(super) async fn poll(&self, process: Process) -> Outcome {
        let preview = self.tail(&process, POLL).await;
        let screen = match process.pty && !over(process.state) {
            true => self
                .keeper
                .screen(&process.id)
                .await
                .ok()
                .map(|screen| self.redactor.redact(screen.lines.join("\n").trim_end()).into_owned()),
            false => None,
        };
        let about = About { output_preview: Some(preview), screen, ..self.about(&process) };
        answer(&Result { about: Some(about), ..Result::default() })
    }

    pub(super) async fn log(&self, process: Process, arguments: &Arguments) -> Outcome {
        let whole = |field: &str, value: Option<i64>, least: i64| match value {
            Some(value) if value < least => {
                Err(Failure::argument(field, value, &format!("it is a whole number from {least} on")))
            }
            other => Ok(other),
        };
        let offset = whole("offset", arguments.offset, 0)?;
        let limit = whole("limit", arguments.limit, 1)?;
        let byte_offset = whole("byte_offset", arguments.byte_offset, 0)?;
        if byte_offset.is_some() && (offset.is_some() || limit.is_some()) {
            return Err(Failure::invalid(
                "a log is read by line (offset, limit) or by byte (byte_offset), not by both",
            ));
        }
        let lines = limit.map_or(LINES, |limit| u32::try_from(limit).unwrap_or(MOST_LINES).min(MOST_LINES));
        let query = match byte_offset {
            Some(byte) => {
                LogQuery { view: view(&process), offset: Some(byte), len: Some(PIECE), ..LogQuery::default() }
            }
            None => LogQuery {
                view: view(&process),
                line: Some(offset.unwrap_or(-i64::from(lines))),
                lines: Some(lines),
                ..LogQuery::default()
            },
        };
        let piece = self.keeper.log(&process.id, query).await?;
        answer(&self.piece(&process, piece))
    }

    /// A piece of a log, as much of it as one answer holds.
    fn piece(&self, process: &Process, mut piece: LogPiece) -> Result {
        let most = PIECE as usize;
        if piece.text.0.len() > most {
            // Whole lines, if there are any.
            let end = memchr::memrchr(b'\n', &piece.text.0[..most]).map_or(most, |at| at + 1);
            piece.text.0.truncate(end);
            piece.next = piece.offset + end as u64;
        }
        let given = memchr::memchr_iter(b'\n', &piece.text.0).count() as u64;
        let text = plain(&piece.text.0, usize::MAX).0;
        let text = if process.pty { text.replace("\r\n", "\n") } else { text };
        let more = piece.next < piece.total;
        let mut result = Result {
            about: Some(self.about(process)),
            output: Some(self.redactor.redact(&text).into_owned()),
            total_lines: piece.total_lines,
            total_bytes: Some(piece.total),
            ..Result::default()
        };
        let whole_lines = piece.text.0.ends_with(b"\n");
        match (piece.line, piece.total_lines) {
            (Some(line), Some(total)) if whole_lines || !more => {
                let until = line + given;
                result.showing = Some(format!("lines {line} to {until} of {total}"));
                result.next_offset = more.then_some(until);
            }
            _ => {
                result.showing = Some(format!("bytes {} to {} of {}", piece.offset, piece.next, piece.total));
                result.next_byte_offset = more.then_some(piece.next);
            }
        }
        result
    }

    pub(super) async fn wait(&self, process: Process, timeout: Option<f64>) -> Outcome {
        if let Some(timeout) = timeout
            && !(timeout > 0.0 && timeout.is_finite())
        {
            return Err(Failure::argument("timeout", timeout, "it is a number of seconds above 0"));
        }
        let longest = self.keeper.settings(&self.call.target)?.max_foreground_timeout.as_secs_f64();
        let seconds = timeout.unwrap_or(longest).min(longest);
        let request = WaitRequest { timeout: Some(seconds) };
        let (process, interrupted) = tokio::select! {
            biased;
            waited = self.keeper.wait(&process.id, request) => (waited?, false),
            () = self.call.cancel.cancelled() => (process, true),
        };
        let mut about = self.about(&process);
        let ended = over(process.state);
        let output = self.tail(&process, if ended { ENDED } else { POLL }).await;
        if !ended {
            about.status = if interrupted { "interrupted" } else { "timeout" }.to_owned();
            about.note = Some("it goes on".to_owned());
        }
        let clamped = timeout.filter(|timeout| *timeout > longest);
        answer(&Result {
            about: Some(about),
            output: Some(output),
            timeout_note: clamped
                .map(|asked| format!("{asked} s were asked for, and {longest} s are the most")),
            ..Result::default()
        })
    }

    pub(super) async fn kill(&self, process: Process) -> Outcome {
        let done = self.keeper.kill(&process.id, KillRequest::default()).await?;
        let process = self.keeper.process(&process.id).await.unwrap_or(process);
        let output = self.tail(&process, ENDED).await;
        let mut about = self.about(&process);
        about.status = match (done.survivors, done.had_ended) {
            (1.., _) => "error",
            (0, true) => "already_exited",
            (0, false) => "killed",
        }
        .to_owned();
        if done.survivors > 0 {
            about.note = Some(format!("{} processes could not be killed", done.survivors));
        }
        answer(&Result {
            about: Some(about),
            output: Some(output),
            killed: Some(done.killed),
            survivors: Some(done.survivors),
            ..Result::default()
        })
    }

    pub(super) async fn send(&self, process: Process, arguments: &Arguments) -> Outcome {
        let (submit, eof) = (arguments.action == Action::Submit, arguments.action == Action::Close);
        let data = match (&arguments.data, eof) {
            (Some(_), true) => {
                return Err(Failure::invalid("argument `data` is for write and submit: close sends nothing"));
            }
            (Some(data), false) => data.as_str(),
            (None, false) if !submit => {
                return Err(Failure::invalid("argument `data` is required: the text to write"));
            }
            (None, _) => "",
        };
        if over(process.state) {
            let message = "it has ended, and takes no input any more";
            return Err(Failure::new(Kind::Invalid, message)
                .status("already_exited")
                .with("session_id", process.id));
        }
        if code::is_run(&process.id) {
            let message =
                "a script of execute_code reads nothing: by its input come the answers of its tools";
            return Err(Failure::invalid(message).with("session_id", process.id));
        }
        let request = StdinRequest { data: Text::from(data), submit, eof, offset: None };
        self.keeper.stdin(&process.id, request).await.map_err(|error| match error.kind {
            Kind::Invalid => Failure::from(Error::new(
                error.kind,
                error.operation,
                format!("{}; a foreground command reads what its call gave it with `stdin`", error.message),
            )),
            _ => error.into(),
        })?;
        let mut about = self.about(&process);
        about.status = "ok".to_owned();
        let bytes_written = (!eof).then(|| data.len() + usize::from(submit));
        answer(&Result { about: Some(about), bytes_written, ..Result::default() })
    }
}
