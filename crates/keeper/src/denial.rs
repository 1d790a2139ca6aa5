//! What is said about something that may not run: to a model, which should not try to get round it, and to a person,
//! who may want to allow it.

use farshell_api::approval::Subject;
use farshell_engine::{Error, Kind};
use farshell_policy::{Level, Mode, Reason};
use std::time::Duration;

/// Reasons that are told.
const TOLD: usize = 5;

const LEAVE_IT: &str = "don't rephrase it and don't look for another way to the same end: say what you wanted it for, and let the user decide";

fn operation(subject: Subject) -> &'static str {
    match subject {
        Subject::Command => "running the command",
        Subject::Code => "running the code",
        Subject::FileWrite => "writing the file",
    }
}

/// What forbids it, for the audit log.
pub(crate) fn by(reasons: &[Reason], mode: Mode) -> &'static str {
    if reasons.iter().any(|reason| reason.rule == "deny-list") {
        "deny_list"
    } else if reasons.iter().any(|reason| reason.level == Level::Forbidden) {
        "hard_list"
    } else if mode == Mode::Unattended {
        "mode:unattended"
    } else {
        "policy"
    }
}

pub(crate) fn by_policy(subject: Subject, reasons: &[Reason], mode: Mode) -> Error {
    let mut message: String =
        reasons.iter().take(TOLD).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if reasons.len() > TOLD {
        message.push_str(&format!("; and {} more", reasons.len() - TOLD));
    }
    let person = match by(reasons, mode) {
        "deny_list" => "a person can change the list: `farshell config get approvals.deny`".to_owned(),
        "hard_list" => {
            "no mode and no list allows this here; a person who means it runs it by hand, or uses a container"
                .to_owned()
        }
        _ => format!(
            "nobody is there to be asked (mode {mode}); a person can except the rule with approvals.unattended_allow, or the command with command_allowlist"
        ),
    };
    Error::new(Kind::Denied, operation(subject), message).with_hint(format!("{LEAVE_IT}\n{person}"))
}

/// `decided_by`: a person, or that there was none.
pub(crate) fn by_answer(
    subject: Subject,
    decided_by: &str,
    reason: Option<&str>,
    timeout: Duration,
) -> Error {
    let (kind, message, hint) = match decided_by {
        "timeout" => (
            Kind::Denied,
            format!("nobody answered within {} seconds, and that is a no; it has not run", timeout.as_secs()),
            "ask the user before you try it again; `farshell approvals` shows what waits for an answer, approvals.timeout is how long",
        ),
        "withdrawn" => {
            (Kind::NotStarted, "nobody waited for the answer any more; it has not run".to_owned(), LEAVE_IT)
        }
        "server" => (
            Kind::NotStarted,
            "the server stopped while it waited for an answer; it has not run".to_owned(),
            "ask again: the next server asks the person again",
        ),
        _ => match reason {
            Some(reason) => (Kind::Denied, format!("the user said no: {reason}"), LEAVE_IT),
            None => (Kind::Denied, "the user said no".to_owned(), LEAVE_IT),
        },
    };
    Error::new(kind, operation(subject), message).with_hint(hint)
}
