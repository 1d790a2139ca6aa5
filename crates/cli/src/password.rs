//! The password that a sudo of the command wants, typed by whoever sits at this terminal, who does not see it.

use crate::ask::terminal;
use crate::output;
use farshell_client::Control;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::future::pending;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// Bytes of a password. The terminal itself takes no longer line.
const LONGEST: usize = 4096;

/// What is asked here at the moment, if anything is.
#[derive(Debug, Default)]
pub(crate) struct Prompting(Option<Prompt>);

#[derive(Debug)]
struct Prompt {
    id: u64,
    terminal: Receiver,
    /// As the terminal is when nothing is asked.
    shown: Termios,
    typed: Vec<u8>,
}

impl Prompting {
    /// Asks. Where nobody can be asked, that is the answer.
    pub(crate) fn put(&mut self, id: u64, again: bool, control: &Control) {
        self.0 = Prompt::put(id, again);
        if self.0.is_none() {
            control.password(id, None);
        }
    }

    pub(crate) fn over(&mut self) {
        self.0 = None;
    }

    /// Waits until a line is typed, and sends it. Never returns if nothing is asked.
    pub(crate) async fn answer(&mut self, control: &Control) {
        let Some(prompt) = &mut self.0 else { return pending().await };
        let typed = prompt.line().await;
        control.password(prompt.id, typed);
        self.0 = None;
    }
}

impl Prompt {
    fn put(id: u64, again: bool) -> Option<Self> {
        let terminal = terminal()?;
        let shown = tcgetattr(&terminal).ok()?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        tcsetattr(&terminal, OptionalActions::Flush, &hidden).ok()?;
        let wrong = if again { "that was wrong; " } else { "" };
        output::tell(&format!("farshell: {wrong}sudo wants your password (nothing gives up): "));
        Some(Self { id, terminal, shown, typed: Vec::new() })
    }

    /// Nothing typed is no password.
    async fn line(&mut self) -> Option<String> {
        loop {
            let mut piece = [0; 256];
            match self.terminal.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(length) => {
                    self.typed.extend_from_slice(&piece[..length]);
                    if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                        self.typed.truncate(end);
                        let line = String::from_utf8(std::mem::take(&mut self.typed)).ok()?;
                        return (!line.is_empty()).then_some(line);
                    }
                    self.typed.truncate(LONGEST);
                }
            }
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.shown);
    }
}
