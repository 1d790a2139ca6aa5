//! How a command ended, for a shell and for a person.

use crate::load;
use crate::output::{code, count, notice, plain};
use crate::signals::Interrupts;
use farshell_api::process::Process;

/// The exit code that stands for it.
pub(crate) fn code(process: &Process, interrupts: &Interrupts) -> i32 {
    if process.workdir_failed {
        return code::NO_WORKDIR;
    }
    // Whoever sent the signal is told that it worked, however the command took it.
    if interrupts.killed() {
        return interrupts.code();
    }
    // A command that deals with an interruption has a code of its own.
    if process.signal.is_some() && !process.timed_out && interrupts.any() {
        return interrupts.code();
    }
    process.exit_code.unwrap_or(code::FAILED)
}

/// Tells a person what the output and the exit code don't. `line_begun`: the output did not end its last line.
pub(crate) fn tell(process: &Process, timeout: Option<f64>, line_begun: bool) {
    let mut notices = Vec::new();
    if process.timed_out {
        let after = seconds(timeout).map_or_else(String::new, |seconds| format!(" after {seconds} s"));
        notices.push(format!("timed out{after}{}", killed(process)));
    }
    if let Some(note) = &process.note {
        notices.push(plain(note));
    } else if process.state_lost {
        notices.push(
            "the session's shell was ended and started anew; what this command changed in it is lost".into(),
        );
    } else if process.shell_restarted {
        notices.push("the session's shell was ended and started anew; its state is kept".into());
    }
    if process.output_open {
        notices.push(
            "processes that the command left in the background can still print; that goes to its log".into(),
        );
    }
    if let Some(why) = &process.log.error {
        notices.push(format!("the log of {} is incomplete: {why}", process.id));
    }
    if line_begun && let Some(first) = notices.first_mut() {
        first.insert(0, '\n');
    }
    notices.iter().for_each(|text| notice(text));
}

/// The time that it had: what was asked for, or what the settings say.
fn seconds(asked: Option<f64>) -> Option<f64> {
    asked.or_else(|| {
        let settings = load::config(None).and_then(|config| load::settings(&config)).ok()?;
        Some(settings.timeout.as_secs_f64())
    })
}

fn killed(process: &Process) -> String {
    let left = match process.survivors {
        0 => String::new(),
        n => format!("; {} could not be killed", count(n, "process")),
    };
    format!("; killed {}{left}", count(process.killed, "process"))
}
