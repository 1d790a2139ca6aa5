//! What was asked for, checked before anything is done. Each error names the field.

use crate::resolve::Resolved;
use farshell_api::Text;
use farshell_api::run::{OnBusy, OnTimeout, Size, StartRequest};
use farshell_config::Settings;
use farshell_engine::client::new_process_id;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::process::{self, Start, Stdin, Surroundings, What};
use farshell_protocol::{ProcessId, SessionName};
use serde_bytes::ByteBuf;
use std::time::Duration;

/// Patterns of one watch, and bytes of one pattern: each line of output is compared with all of them.
const MOST_PATTERNS: usize = 32;
const LONGEST_PATTERN: usize = 1024;
/// What full-screen programs may ask of the terminal that the screen is replayed on.
const TERM: &str = "xterm-256color";

pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, format!("reading {field}"), message)
}

/// How a command is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Answered with the whole result.
    Run,
    /// Followed as it goes.
    Stream,
    /// The same, beside its session.
    Beside,
    Background,
}

/// A command that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) id: ProcessId,
    pub(crate) request: StartRequest,
    pub(crate) background: bool,
    /// Starts from its session's state and leaves that alone.
    pub(crate) beside: bool,
}

impl Plan {
    /// # Errors
    /// A field can't be used, or not together with another.
    pub(crate) fn new(mut request: StartRequest, way: Way) -> Result<Self> {
        request.background |= way == Way::Background;
        let background = request.background;
        let id = match &request.id {
            Some(id) => ProcessId::new(id.as_str()).map_err(|e| invalid("id", e.to_string()))?,
            None => new_process_id(),
        };
        request.id = Some(id.as_str().to_owned());
        SessionName::new(request.session.as_str()).map_err(|e| invalid("session", e.to_string()))?;
        no_nul("command", &request.command)?;
        if let Some(workdir) = &request.workdir {
            no_nul("workdir", workdir)?;
            if workdir.0.is_empty() {
                return Err(invalid("workdir", "it is empty; leave it out to use the session's directory"));
            }
        }
        if way == Way::Run && background {
            return Err(invalid(
                "background",
                "a call that waits for the end can't start a background process",
            )
            .with_hint("start it with POST /v1/processes"));
        }
        if let Some(size) = request.pty {
            if way == Way::Run {
                return Err(invalid("pty", "a terminal needs a background process or a stream"));
            }
            check_size("pty", size)?;
        }
        let goes_on = background || request.on_timeout == OnTimeout::Background;
        if request.notify_on_complete && !goes_on {
            return Err(invalid(
                "notify_on_complete",
                "only a background process is told about when it ends",
            ));
        }
        if background && request.on_timeout == OnTimeout::Background {
            return Err(invalid("on_timeout", "a background process is in the background already"));
        }
        check_patterns(&request.watch_patterns, background)?;
        if background {
            background_timeout(request.timeout)?;
        }
        let beside = background || way == Way::Beside || request.pty.is_some();
        Ok(Self { id, request, background, beside })
    }

    /// The request to the outpost. `session` is what it calls the session.
    ///
    /// # Errors
    /// The timeout is none, or too long.
    pub(crate) fn start(&self, resolved: &Resolved, session: SessionName) -> Result<Start> {
        let (request, settings) = (&self.request, &resolved.settings);
        let timeout = match self.background {
            true => background_timeout(request.timeout)?,
            false => Some(foreground_timeout(request.timeout, settings)?),
        };
        let command = request.command.0.clone();
        let workdir = request.workdir.as_ref().map(|dir| dir.0.clone());
        let what = if self.beside {
            let env = match request.pty {
                Some(_) => vec![(ByteBuf::from("TERM"), ByteBuf::from(TERM))],
                None => Vec::new(),
            };
            let surroundings = Surroundings {
                env,
                clear_env: false,
                cwd: workdir,
                pty: request.pty.map(size),
                merge_stderr: request.merge_stderr,
            };
            What::Shell { command, session: Some(session), surroundings }
        } else {
            let on_busy = match request.on_busy {
                OnBusy::Wait => process::OnBusy::Wait,
                OnBusy::Refuse => process::OnBusy::Refuse,
            };
            What::Session { session, command, workdir, on_busy, merge_stderr: request.merge_stderr }
        };
        Ok(Start {
            id: self.id.clone(),
            what,
            stdin: if request.stdin { Stdin::Pipe } else { Stdin::Null },
            // A command that is to go on when its time is up is timed here.
            timeout_ms: timeout.filter(|_| request.on_timeout == OnTimeout::Kill).map(millis),
            grace_ms: millis(settings.term_grace),
            log_cap: settings.log_cap,
            attach: None,
            variables: Some(resolved.variables.clone()),
        })
    }

    /// When to make it a background process, if that is wanted.
    ///
    /// # Errors
    /// The timeout is none, or too long.
    pub(crate) fn promotion(&self, settings: &Settings) -> Result<Option<Duration>> {
        match self.request.on_timeout {
            OnTimeout::Background => foreground_timeout(self.request.timeout, settings).map(Some),
            OnTimeout::Kill => Ok(None),
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn size(size: Size) -> process::Size {
    process::Size { rows: size.rows, cols: size.cols }
}

/// # Errors
/// No terminal is that small, or that large.
pub(crate) fn check_size(field: &str, size: Size) -> Result<()> {
    // Two thousand characters each way hold any terminal, and bound what a replayed screen costs.
    let fits = |n: u16| (1..=2000).contains(&n);
    match fits(size.rows) && fits(size.cols) {
        true => Ok(()),
        false => Err(invalid(
            field,
            format!("{} rows and {} columns: each must be from 1 to 2000", size.rows, size.cols),
        )),
    }
}

fn no_nul(field: &str, text: &Text) -> Result<()> {
    match text.0.contains(&0) {
        true => Err(invalid(field, "it contains a NUL byte")),
        false => Ok(()),
    }
}

fn check_patterns(patterns: &[String], background: bool) -> Result<()> {
    let field = "watch_patterns";
    if !patterns.is_empty() && !background {
        return Err(invalid(field, "only a background process can be watched"));
    }
    if patterns.len() > MOST_PATTERNS {
        return Err(invalid(
            field,
            format!("{} patterns, at most {MOST_PATTERNS} are possible", patterns.len()),
        ));
    }
    for pattern in patterns {
        if pattern.is_empty() || pattern.len() > LONGEST_PATTERN || pattern.contains('\n') {
            let message = format!("a pattern is a text of 1 to {LONGEST_PATTERN} bytes without a line end");
            return Err(invalid(field, message));
        }
    }
    Ok(())
}

/// A number of seconds above nothing. What rounds to nothing is nothing.
fn seconds(given: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(given).ok().filter(|time| time.as_millis() > 0)
}

/// How long a foreground command may take.
fn foreground_timeout(given: Option<f64>, settings: &Settings) -> Result<Duration> {
    let Some(given) = given else { return Ok(settings.timeout) };
    let most = settings.max_foreground_timeout;
    match seconds(given) {
        Some(timeout) if timeout > most => Err(invalid(
            "timeout",
            format!("{given} s is more than max_foreground_timeout, which is {} s", most.as_secs()),
        )
        .with_hint(format!(
            "give at most {} s, or raise the limit with `farshell config set max_foreground_timeout SECONDS`",
            most.as_secs()
        ))),
        Some(timeout) => Ok(timeout),
        // Above what a duration holds, and so above the limit too.
        None => Err(invalid("timeout", format!("{given} is not a number of seconds above 0"))
            .with_hint(format!("give a number above 0 and up to {}, such as 10 or 0.5", most.as_secs()))),
    }
}

/// How long a background process may take: for ever, if nothing is said.
fn background_timeout(given: Option<f64>) -> Result<Option<Duration>> {
    let Some(given) = given else { return Ok(None) };
    seconds(given)
        .map(Some)
        .ok_or_else(|| invalid("timeout", format!("{given} is not a number of seconds above 0")))
}

/// A wait or a pause that somebody asked for, at most `most`.
///
/// # Errors
/// It is negative, or no number.
pub(crate) fn pause(field: &str, given: Option<f64>, default: Duration, most: Duration) -> Result<Duration> {
    match given {
        None => Ok(default),
        Some(given) if given >= most.as_secs_f64() => Ok(most),
        Some(given) => Duration::try_from_secs_f64(given)
            .map_err(|_| invalid(field, format!("{given} is not a number of seconds"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl Fn(&mut StartRequest), way: Way) -> String {
        let mut request = StartRequest::new("true");
        change(&mut request);
        let error = Plan::new(request, way).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid);
        error.operation
    }

    #[test]
    fn errors_name_the_field() {
        let size = |rows, cols| Some(Size { rows, cols });
        assert_eq!(refused(|r| r.id = Some("a/b".into()), Way::Run), "reading id");
        assert_eq!(refused(|r| r.session = String::new(), Way::Run), "reading session");
        assert_eq!(refused(|r| r.command = b"a\0b".into(), Way::Run), "reading command");
        assert_eq!(refused(|r| r.workdir = Some("".into()), Way::Run), "reading workdir");
        assert_eq!(refused(|r| r.background = true, Way::Run), "reading background");
        assert_eq!(refused(|r| r.pty = size(24, 80), Way::Run), "reading pty");
        assert_eq!(refused(|r| r.pty = size(0, 80), Way::Stream), "reading pty");
        assert_eq!(refused(|r| r.notify_on_complete = true, Way::Run), "reading notify_on_complete");
        assert_eq!(refused(|r| r.on_timeout = OnTimeout::Background, Way::Background), "reading on_timeout");
        assert_eq!(refused(|r| r.watch_patterns = vec!["x".into()], Way::Stream), "reading watch_patterns");
        assert_eq!(
            refused(|r| r.watch_patterns = vec![String::new()], Way::Background),
            "reading watch_patterns"
        );
        assert_eq!(
            refused(|r| r.watch_patterns = vec!["x".into(); 33], Way::Background),
            "reading watch_patterns"
        );
        for timeout in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.0001] {
            assert_eq!(refused(|r| r.timeout = Some(timeout), Way::Background), "reading timeout");
        }
    }

    #[test]
    fn an_id_is_chosen_once() {
        let plan = Plan::new(StartRequest::new("true"), Way::Background).unwrap();
        assert_eq!(plan.request.id.as_deref(), Some(plan.id.as_str()));
        assert!(plan.background && plan.request.background);
    }

    #[test]
    fn pauses_are_bounded() {
        let (default, most) = (Duration::from_secs(2), Duration::from_secs(600));
        let asked = |given| pause("timeout", given, default, most);
        assert_eq!(asked(None).unwrap(), default);
        assert_eq!(asked(Some(0.5)).unwrap(), Duration::from_millis(500));
        assert_eq!(asked(Some(f64::INFINITY)).unwrap(), most);
        assert!(asked(Some(-1.0)).is_err() && asked(Some(f64::NAN)).is_err());
    }
}
