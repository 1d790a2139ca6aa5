//! How a command ended, for a shell and for a person.

use super::interrupt::Interrupts;
use crate::output::{code, notice};
use farshell_protocol::process::{End, State, Status};
use std::time::Duration;

/// The exit code that stands for it.
pub(crate) fn code(status: &Status, interrupts: &Interrupts) -> i32 {
    if status.workdir_failed {
        return code::NO_WORKDIR;
    }
    match status.state {
        // Whoever sent the signal is told that it worked, however the command took it.
        _ if interrupts.killed() => interrupts.code(),
        _ if status.timed_out => code::TIMED_OUT,
        // A command that deals with an interruption has a code of its own.
        State::Ended(End::Signaled(_)) if interrupts.any() => interrupts.code(),
        State::Ended(End::Signaled(signal)) => code::signal(signal),
        State::Ended(End::Exited(code)) => code,
        State::Queued | State::Running | State::Abandoned => code::FAILED,
    }
}

/// Tells a person what the output and the exit code don't. `line_begun`: the output did not end its last line.
pub(crate) fn tell(status: &Status, timeout: Option<Duration>, line_begun: bool) {
    let mut notices = Vec::new();
    if status.timed_out {
        let after = timeout.map_or_else(String::new, |t| format!(" after {} s", t.as_secs_f64()));
        notices.push(format!("timed out{after}{}", killed(status)));
    }
    if status.state_lost {
        notices.push(
            "the session's shell was ended and started anew; what this command changed in it is lost".into(),
        );
    } else if status.shell_restarted {
        notices.push("the session's shell was ended and started anew; its state is kept".into());
    }
    if status.output.open {
        notices.push(
            "processes that the command left in the background can still print; that goes to its log".into(),
        );
    }
    if let Some(why) = &status.output.log_error {
        notices.push(format!("the log of {} is incomplete: {why}", status.id));
    }
    if line_begun && let Some(first) = notices.first_mut() {
        first.insert(0, '\n');
    }
    notices.iter().for_each(|text| notice(text));
}

fn killed(status: &Status) -> String {
    let Some(kill) = status.kill else { return String::new() };
    let left = match kill.left {
        0 => String::new(),
        n => format!("; {} could not be killed", processes(n)),
    };
    format!("; killed {}{left}", processes(kill.killed))
}

fn processes(n: u32) -> String {
    format!("{n} {}", if n == 1 { "process" } else { "processes" })
}

/// The usual name of a signal.
pub(crate) fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    NAMES.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::signal_name;

    #[test]
    fn signals_have_their_linux_names() {
        for (number, name) in
            [(1, "SIGHUP"), (9, "SIGKILL"), (15, "SIGTERM"), (19, "SIGSTOP"), (31, "SIGSYS")]
        {
            assert_eq!(signal_name(number), Some(name));
        }
        assert_eq!((signal_name(0), signal_name(-1), signal_name(34)), (None, None, None));
    }
}
