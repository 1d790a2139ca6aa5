//! What an outpost knows of a process, in the API's words.

use crate::signals;
use farshell_api::process::{Process, ProcessState, WaitingFor};
use farshell_api::run::{LogInfo, Place, RunResult};
use farshell_api::{Millis, Text};
use farshell_engine::capture::{Capture, HeadTail};
use farshell_protocol::process::{self, End, OutputStatus, State, Status};
use farshell_store::Completion;

/// The exit codes that stand for what is no exit.
const NO_WORKDIR: i32 = 126;
const TIMED_OUT: i32 = 124;
const SIGNAL: i32 = 128;

/// What is said of a command of which the kernel has killed a process for want of memory.
const OUT_OF_MEMORY: &str =
    "the place ran out of memory (container_memory), and the kernel killed a process for it";

/// The code that stands for how it ended, once it has.
pub(crate) fn exit_code(status: &Status) -> Option<i32> {
    match status.state {
        State::Ended(_) if status.workdir_failed => Some(NO_WORKDIR),
        State::Ended(_) if status.timed_out => Some(TIMED_OUT),
        State::Ended(End::Signaled(signal)) => Some(SIGNAL + signal),
        State::Ended(End::Exited(code)) => Some(code),
        State::Queued | State::Running | State::Abandoned => None,
    }
}

fn signal(status: &Status) -> Option<i32> {
    match status.state {
        State::Ended(End::Signaled(signal)) => Some(signal),
        _ => None,
    }
}

pub(crate) fn state(state: State) -> ProcessState {
    match state {
        State::Queued => ProcessState::Queued,
        State::Running => ProcessState::Running,
        State::Ended(_) => ProcessState::Ended,
        State::Abandoned => ProcessState::NotStarted,
    }
}

pub(crate) fn log_info(id: &str, output: &OutputStatus) -> LogInfo {
    LogInfo {
        process_id: id.to_owned(),
        path: output.path.clone(),
        stdout_bytes: output.stdout,
        stderr_bytes: output.stderr,
        dropped: (output.dropped_from < output.dropped_to)
            .then_some([output.dropped_from, output.dropped_to]),
        error: output.log_error.clone(),
    }
}

/// When it ended, by the clock of when it began and the outpost's measure of how long it took.
fn ended_at(started_at: Option<Millis>, status: &Status) -> Option<Millis> {
    match status.state {
        State::Ended(_) => Some(started_at?.saturating_add(status.elapsed_us / 1000)),
        State::Queued | State::Running | State::Abandoned => None,
    }
}

/// Brings what was known of a process up to what its outpost says now.
pub(crate) fn update(process: &mut Process, status: &Status, now: Millis) {
    let kill = status.kill.unwrap_or_default();
    process.state = state(status.state);
    process.pid = Some(status.pid).filter(|pid| *pid != 0);
    process.exit_code = exit_code(status);
    process.signal = signal(status);
    process.signal_name = process.signal.and_then(signals::name).map(str::to_owned);
    process.timed_out = status.timed_out;
    process.workdir_failed = status.workdir_failed;
    process.pipe_status = status.stages().into_iter().map(i32::from).collect();
    if process.pipe_status.len() < 2 {
        // It ended with a command of its own.
        process.pipe_status.clear();
    }
    process.killed = kill.killed;
    process.survivors = kill.left;
    if process.started_at.is_none() && !matches!(status.state, State::Queued | State::Abandoned) {
        process.started_at = Some(now.saturating_sub(status.elapsed_us / 1000));
    }
    process.ended_at = ended_at(process.started_at, status);
    process.duration_ms = match status.state {
        State::Queued | State::Abandoned => 0,
        State::Running | State::Ended(_) => status.elapsed_us / 1000,
    };
    process.cwd = status.cwd.clone().map(Text);
    process.stdout_bytes = status.output.stdout;
    process.stderr_bytes = status.output.stderr;
    process.shell_restarted = status.shell_restarted;
    process.state_lost = status.state_lost;
    process.output_open = status.output.open;
    process.log = log_info(&process.id, &status.output);
    if status.out_of_memory {
        process.note = Some(OUT_OF_MEMORY.to_owned());
    }
    process.waiting_for = status.waiting_for.map(|waiting_for| match waiting_for {
        process::WaitingFor::Input => WaitingFor::Input,
        process::WaitingFor::Secret => WaitingFor::Secret,
    });
}

/// What is recorded of a process that has ended.
pub(crate) fn completion(process: &Process) -> Completion {
    let process = process.clone();
    Completion {
        state: process.state,
        exit_code: process.exit_code,
        signal: process.signal,
        signal_name: process.signal_name,
        timed_out: process.timed_out,
        workdir_failed: process.workdir_failed,
        killed: process.killed,
        survivors: process.survivors,
        started_at: process.started_at,
        ended_at: process.ended_at,
        duration_ms: process.duration_ms,
        cwd: process.cwd,
        stdout_bytes: process.stdout_bytes,
        stderr_bytes: process.stderr_bytes,
        shell_restarted: process.shell_restarted,
        state_lost: process.state_lost,
        output_open: process.output_open,
        log: Some(process.log),
        note: process.note,
    }
}

/// What a caller who waited for the end is told. `backgrounded`: the process goes on in the background.
#[must_use]
pub fn run_result(process: &Process, session: &str, capture: &Capture, backgrounded: bool) -> RunResult {
    let log = process.log.path.as_deref();
    let stdout = Shown::of(&capture.stdout, "stdout", log);
    let stderr = Shown::of(&capture.stderr, "stderr", log);
    let both = Shown::of(&capture.output, "output", log);
    let lossy = stdout.lossy || stderr.lossy || both.lossy;
    RunResult {
        stdout: stdout.text,
        stderr: stderr.text,
        output: both.text,
        encoding: if lossy { "lossy" } else { "utf-8" }.into(),
        // One that goes on has used up its time, too.
        exit_code: process.exit_code.unwrap_or(TIMED_OUT),
        signal: process.signal,
        signal_name: process.signal_name.clone(),
        timed_out: process.timed_out || backgrounded,
        workdir_failed: process.workdir_failed,
        pipe_status: process.pipe_status.clone(),
        backgrounded,
        killed: process.killed,
        survivors: process.survivors,
        cwd: process.cwd.as_ref().map(|cwd| cwd.lossy().into_owned()),
        backend: process.backend.clone(),
        place: Place { name: process.place.name.clone(), id: process.place.id.clone() },
        task: process.task.clone(),
        session: session.to_owned(),
        process_id: process.id.clone(),
        duration_ms: process.duration_ms,
        truncated: capture.truncated() || process.log.dropped.is_some(),
        stdout_bytes: process.stdout_bytes,
        stderr_bytes: process.stderr_bytes,
        shell_restarted: process.shell_restarted,
        state_lost: process.state_lost,
        output_open: process.output_open,
        log: process.log.clone(),
        note: process.note.clone(),
    }
}

/// Something more is to be said with it.
pub(crate) fn note(process: &mut Process, more: &str) {
    process.note = Some(match process.note.take() {
        Some(note) => format!("{note}; {more}"),
        None => more.to_owned(),
    });
}

/// A process whose session had to begin anew, and why.
pub(crate) fn began_anew(process: &mut Process, why: &str) {
    process.note = match process.note.take().filter(|note| note == OUT_OF_MEMORY) {
        Some(note) => Some(format!("{why}; {note}")),
        None => Some(why.to_owned()),
    };
    process.shell_restarted = true;
    process.state_lost = true;
}

/// What was kept of a stream, as text.
struct Shown {
    text: String,
    /// Some bytes were not text.
    lossy: bool,
}

impl Shown {
    fn of(kept: &HeadTail, name: &str, log: Option<&str>) -> Self {
        if !kept.truncated() {
            return Self::from_bytes(&kept.to_bytes());
        }
        // A character that the cut went through belongs to what is left out.
        let head = kept.head();
        let head = &head[..whole_end(head)];
        let tail = kept.tail();
        let start = tail.iter().take(3).take_while(|b| is_continuation(**b)).count();
        let tail = &tail[start..];
        let (from, to) = (head.len() as u64, kept.total() - tail.len() as u64);
        let (head, tail) = (Self::from_bytes(head), Self::from_bytes(tail));
        let whole = log.map_or_else(String::new, |path| format!("; the whole log is in {path}"));
        let cut =
            format!("\n[... {} bytes left out: offsets {from} to {to} of {name}{whole} ...]\n", to - from);
        Self { text: head.text + &cut + &tail.text, lossy: head.lossy || tail.lossy }
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        Self { lossy: matches!(text, std::borrow::Cow::Owned(_)), text: text.into_owned() }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The length without a last character that is not whole.
fn whole_end(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        // Nothing but the end is missing.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) => bytes.len(),
        // It is no text anyway.
        Err(_) => bytes.len(),
    }
}

/// The last so many bytes of a text, for people: whole characters only.
pub(crate) fn tail(bytes: &[u8], most: usize) -> String {
    let bytes = &bytes[bytes.len().saturating_sub(most)..];
    let start = bytes.iter().take(3).take_while(|b| is_continuation(**b)).count();
    let text = String::from_utf8_lossy(&bytes[start..]);
    // What is replaced grows.
    let over = text.len().saturating_sub(most);
    let cut = (over..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[cut..].to_owned()
}

/// The first so many bytes of a text.
pub(crate) fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_does_not_go_through_characters() {
        let mut kept = HeadTail::new(10);
        kept.push("aaaé------éééx".as_bytes());
        let text = Shown::of(&kept, "stdout", Some("/log"));
        let expected =
            "aaa\n[... 10 bytes left out: offsets 3 to 13 of stdout; the whole log is in /log ...]\nééx";
        assert_eq!((text.text.as_str(), text.lossy), (expected, false));
    }

    #[test]
    fn what_is_no_text_is_marked() {
        let mut kept = HeadTail::new(10);
        kept.push(b"a\xffb");
        let text = Shown::of(&kept, "stdout", None);
        assert_eq!((text.text.as_str(), text.lossy), ("a\u{fffd}b", true));
    }

    #[test]
    fn tails_are_text_within_their_bound() {
        assert_eq!(tail("aéb".as_bytes(), 2), "b");
        assert_eq!(tail("aéb".as_bytes(), 3), "éb");
        assert_eq!(tail(b"abc", 10), "abc");
        assert!(tail(&[0xff; 100], 10).len() <= 10);
        assert_eq!(head("aéb", 2), "a");
    }
}
