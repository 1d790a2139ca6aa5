//! The question whether a command may run, put to whoever sits at this terminal.
//!
//! The answer is read from the terminal itself, so that a command's input is left alone, and in a way that can be given
//! up: somebody else may answer first.

use crate::output::{self, Style, plain};
use crate::times;
use farshell_api::approval::{Answer, AnswerRequest, Approval, Subject};
use farshell_client::Client;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{QueueSelector, tcflush};
use std::io::{IsTerminal, stderr, stdin};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// Bytes of an answer that are looked at.
const LONGEST: usize = 1000;

/// A question that was put here.
#[derive(Debug)]
struct Question {
    approval: Approval,
    /// Absent if nobody can answer here.
    terminal: Option<Receiver>,
    typed: Vec<u8>,
}

/// What is asked here at the moment, if anything is.
#[derive(Debug, Default)]
pub(crate) struct Asking(Option<Question>);

impl Asking {
    pub(crate) fn put(&mut self, approval: Approval) {
        self.0 = Some(Question::put(approval));
    }

    pub(crate) fn open(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn over(&mut self) {
        self.0 = None;
    }

    /// Never returns if nothing is asked, or nobody can answer here.
    pub(crate) async fn answer(&mut self) -> Answer {
        match &mut self.0 {
            Some(question) => question.answer().await,
            None => std::future::pending().await,
        }
    }

    /// Tells the server. What it does not take is asked once more.
    pub(crate) async fn send(&mut self, client: &Client, answer: Answer) {
        if let Some(question) = self.0.take()
            && question.send(client, answer).await
        {
            self.0 = Some(question);
        }
    }
}

impl Question {
    /// Shows it. Where there is no terminal, how it can be answered.
    fn put(approval: Approval) -> Self {
        let terminal = terminal();
        let style = Style::stderr();
        if terminal.is_some() {
            output::tell(&format!("{}{}", shown(&approval, style), choices(&approval, style)));
        } else {
            let left = times::span(approval.expires_at.saturating_sub(times::now()));
            let (id, text) = (&approval.id, shown(&approval, style));
            output::tell(&format!(
                "{text}farshell: it waits {left} for `farshell approve {id}` or `farshell approve --deny {id}`\n"
            ));
        }
        Self { approval, terminal, typed: Vec::new() }
    }

    /// What was answered here. Never returns where nobody can.
    async fn answer(&mut self) -> Answer {
        loop {
            let Some(terminal) = &mut self.terminal else { return std::future::pending().await };
            let mut piece = [0; 256];
            match terminal.read(&mut piece).await {
                Ok(0) | Err(_) => {
                    // The terminal is gone; somebody else may still answer.
                    self.terminal = None;
                }
                Ok(length) => {
                    self.typed.extend_from_slice(&piece[..length]);
                    if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = self.typed.drain(..=end).collect();
                        match understood(&line, self.approval.may_always) {
                            Some(answer) => return answer,
                            None => output::tell(&choices(&self.approval, Style::stderr())),
                        }
                    }
                    self.typed.truncate(LONGEST);
                }
            }
        }
    }

    /// Tells the server. True if the question is to be put once more.
    async fn send(&self, client: &Client, answer: Answer) -> bool {
        match client.answer(&self.approval.id, &AnswerRequest { answer, reason: None }).await {
            Ok(_) => false,
            // Somebody else was faster, or the time is over: what follows says so.
            Err(error) if matches!(error.kind.as_str(), "already_exists" | "not_found") => {
                output::notice(&error.message);
                false
            }
            Err(error) => {
                output::print_error(&error);
                output::tell(&choices(&self.approval, Style::stderr()));
                true
            }
        }
    }
}

/// Whether somebody sits at this terminal.
pub(crate) fn somebody() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// This terminal, if somebody sits there.
pub(crate) fn terminal() -> Option<Receiver> {
    if !somebody() {
        return None;
    }
    // Opened anew, so that what is set for it is set for nobody else.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
    // What was typed before the question was read is no answer to it.
    let _ = tcflush(&terminal, QueueSelector::IFlush);
    // It is none, but it can be waited for like one.
    Receiver::from_file_unchecked(terminal.into()).ok()
}

fn understood(line: &[u8], may_always: bool) -> Option<Answer> {
    match String::from_utf8_lossy(line).trim().to_lowercase().as_str() {
        "o" | "once" | "y" | "yes" => Some(Answer::Once),
        "s" | "session" => Some(Answer::Session),
        "a" | "always" if may_always => Some(Answer::Always),
        "d" | "deny" | "n" | "no" => Some(Answer::Deny),
        _ => None,
    }
}

/// What is asked, and why.
pub(crate) fn shown(approval: &Approval, style: Style) -> String {
    let what = match approval.subject {
        Subject::Command => "run",
        Subject::Code => "run this code",
        Subject::FileWrite => "write",
    };
    let place = match approval.environment.split_once('/') {
        Some((backend, task)) => format!("on {} (task {})", plain(backend), plain(task)),
        None => format!("on {}", plain(&approval.backend)),
    };
    let mut text = format!("{} may this {what} {place}?\n", style.yellow("farshell:"));
    for line in approval.command.lines().take(20) {
        text.push_str(&format!("    {}\n", style.bold(&plain(line))));
    }
    let more = approval.command.lines().count().saturating_sub(20);
    if more > 0 {
        text.push_str(&format!("    … {more} more lines\n"));
    }
    for reason in approval.reasons.iter().take(10) {
        let piece =
            if reason.piece.is_empty() { String::new() } else { format!(" ({})", plain(&reason.piece)) };
        let rule = style.dim(&format!("[{}]", plain(&reason.rule)));
        text.push_str(&format!("  - {}{piece}: {} {rule}\n", plain(&reason.what), plain(&reason.why)));
    }
    text
}

fn choices(approval: &Approval, style: Style) -> String {
    let always = if approval.may_always { ", [a]lways" } else { "" };
    style.bold(&format!("  [o]nce, this [s]ession{always}, [d]eny? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_whole_words() {
        for (typed, answer) in [
            ("o\n", Some(Answer::Once)),
            (" Yes \r\n", Some(Answer::Once)),
            ("s\n", Some(Answer::Session)),
            ("always\n", Some(Answer::Always)),
            ("n\n", Some(Answer::Deny)),
            ("\n", None),
            ("oo\n", None),
            ("only if it is safe\n", None),
        ] {
            assert_eq!(understood(typed.as_bytes(), true), answer, "{typed:?}");
        }
        assert_eq!(understood(b"a\n", false), None);
    }
}
