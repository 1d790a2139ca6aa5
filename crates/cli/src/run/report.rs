//! One object about one command, for programs.

use super::ending::signal_name;
use farshell_engine::capture::{Capture, HeadTail};
use farshell_engine::{Environment, RunOptions};
use farshell_protocol::process::{End, State, Status};
use serde_json::{Value, json};

/// The object that `--json` prints.
pub(crate) fn object(
    env: &Environment,
    options: &RunOptions,
    status: &Status,
    capture: &Capture,
    exit_code: i32,
) -> Value {
    let output = &status.output;
    let log = output.path.as_deref();
    let stdout = Text::of(&capture.stdout, "stdout", log);
    let stderr = Text::of(&capture.stderr, "stderr", log);
    let both = Text::of(&capture.output, "output", log);
    let lossy = stdout.lossy || stderr.lossy || both.lossy;
    let signal = match status.state {
        State::Ended(End::Signaled(signal)) => Some(signal),
        _ => None,
    };
    let kill = status.kill.unwrap_or_default();
    let dropped =
        (output.dropped_from < output.dropped_to).then_some([output.dropped_from, output.dropped_to]);
    let place = env.identity();
    json!({
        "stdout": stdout.text,
        "stderr": stderr.text,
        "output": both.text,
        "encoding": if lossy { "lossy" } else { "utf-8" },
        "exit_code": exit_code,
        "signal": signal,
        "signal_name": signal.and_then(signal_name),
        "timed_out": status.timed_out,
        "workdir_failed": status.workdir_failed,
        "killed": kill.killed,
        "survivors": kill.left,
        "cwd": status.cwd.as_ref().map(|cwd| String::from_utf8_lossy(cwd)),
        "backend": env.backend(),
        "place": {"name": place.name, "id": place.id},
        "task": env.task().as_str(),
        "session": options.session.as_str(),
        "process_id": status.id.as_str(),
        "duration_ms": status.elapsed_us / 1000,
        "truncated": capture.truncated() || dropped.is_some(),
        "stdout_bytes": output.stdout,
        "stderr_bytes": output.stderr,
        "shell_restarted": status.shell_restarted,
        "state_lost": status.state_lost,
        "output_open": output.open,
        "log": {
            "process_id": status.id.as_str(),
            "path": log,
            "stdout_bytes": output.stdout,
            "stderr_bytes": output.stderr,
            "dropped": dropped,
            "error": output.log_error,
        },
    })
}

/// What was kept of a stream, as text.
struct Text {
    text: String,
    /// Some bytes were not text.
    lossy: bool,
}

impl Text {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_does_not_go_through_characters() {
        let mut kept = HeadTail::new(10);
        kept.push("aaaé------éééx".as_bytes());
        let text = Text::of(&kept, "stdout", Some("/log"));
        let expected =
            "aaa\n[... 10 bytes left out: offsets 3 to 13 of stdout; the whole log is in /log ...]\nééx";
        assert_eq!((text.text.as_str(), text.lossy), (expected, false));
    }

    #[test]
    fn what_is_no_text_is_marked() {
        let mut kept = HeadTail::new(10);
        kept.push(b"a\xffb");
        let text = Text::of(&kept, "stdout", None);
        assert_eq!((text.text.as_str(), text.lossy), ("a\u{fffd}b", true));
    }
}
