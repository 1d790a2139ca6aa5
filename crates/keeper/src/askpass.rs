//! The password that sudo asks for.
//!
//! A command has no terminal, so sudo runs the program that `SUDO_ASKPASS` names. Ours is made in the place for one
//! command, and only for one that was judged with a `sudo` in it:
//!
//! 1. Beside the command runs a small shell script (`serve.sh`). It makes a directory that nobody else may enter, with the
//!    helper (`helper.sh`) and a pipe in it, and says where.
//! 2. The command's `SUDO_ASKPASS` names the helper. When sudo runs it, the script says so on its output, with the number
//!    of the sudo.
//! 3. The answer goes to the script's input, through a pipe to the helper, and from that to sudo.
//!
//! So the password is in no file, no argument and no variable of the place, nobody keeps it there, and a sudo that needs
//! none never causes it to be sent. Asked twice by the same sudo, it was wrong.
//!
//! What this can't do: a program that the same user runs at the same time can watch the helper, as it can watch all of
//! that user's programs. The script only refuses those that are not started by sudo.

use crate::Inner;
use crate::progress::Passwords;
use crate::resolve::Resolved;
use crate::slot::Live;
use farshell_api::run::Caller;
use farshell_config::settings::{Backend, Secret};
use farshell_engine::capture::{Discard, Sink};
use farshell_engine::client::{Outpost, new_process_id};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, Chunk, Start, Stdin, Stream, Surroundings, What};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const SERVE: &str = include_str!("askpass/serve.sh");
const HELPER: &str = include_str!("askpass/helper.sh");
/// Ids of scripts that serve. One whose keeper has died is of no use to the next one.
pub(crate) const PREFIX: &str = "askpass_";
/// How long the script may take to begin. Without it, sudo says at once that it has no terminal.
const READY: Duration = Duration::from_secs(10);
/// For the script to remove its directory.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// More than this is no line of the script's.
const LONGEST: usize = 4096;
/// Questions that wait. More of them are no work of a person's.
const WAITING: usize = 64;
/// What sudo looks at.
pub(crate) const ASKPASS: &str = "SUDO_ASKPASS";
/// Without a terminal, sudo runs a helper only where it believes that one could open a window.
pub(crate) const DISPLAY: &str = "DISPLAY";

/// A helper that is there, for as long as a command runs.
#[derive(Debug)]
pub(crate) struct Askpass {
    /// Dropped when the command has been sent, or never will be. Then its end is waited for.
    _sending: oneshot::Sender<()>,
}

/// Where the password comes from.
#[derive(Debug)]
struct Source {
    configured: Option<Secret>,
    person: Option<Arc<dyn Passwords>>,
    /// What a person has typed for this command.
    typed: Option<Secret>,
    /// The sudos that were answered.
    answered: HashSet<String>,
    /// What is configured is wrong. To try again would only lock the account.
    wrong: bool,
}

impl Inner {
    /// Gives a command that may ask for a password somebody to ask.
    pub(crate) async fn askpass(
        &self,
        start: &mut Start,
        live: &Arc<Live>,
        resolved: &Resolved,
        caller: Option<&Caller>,
        person: Option<Arc<dyn Passwords>>,
    ) -> Option<Askpass> {
        let configured = resolved.settings.sudo_password.clone();
        let has = |name: &str| {
            matches!(resolved.settings.backend, Backend::Local(_))
                && self.resolver.world().variables(caller).iter().any(|(known, _)| known == name)
        };
        if configured.is_none() && has(ASKPASS) {
            // The caller's own way, which is as good here as in any terminal.
            return None;
        }
        let (path, ready) = oneshot::channel();
        let (sending, sent) = oneshot::channel();
        let served = Served { outpost: live.outpost.clone(), command: start.id.clone(), sent };
        let source = Source { configured, person, typed: None, answered: HashSet::new(), wrong: false };
        self.common.tasks.spawn(served.serve(source, path));
        let dir = tokio::time::timeout(READY, ready).await.ok()?.ok()?;
        let mut variables = vec![(ByteBuf::from(ASKPASS), ByteBuf::from(format!("{dir}/askpass")))];
        if !has(DISPLAY) {
            variables.push((ByteBuf::from(DISPLAY), ByteBuf::new()));
        }
        match &mut start.what {
            // The next command of the session brings none, which unsets them.
            What::Session { .. } => start.variables.get_or_insert_default().extend(variables),
            What::Shell { surroundings, .. } | What::Exec { surroundings, .. } => {
                surroundings.env.extend(variables);
            }
        }
        Some(Askpass { _sending: sending })
    }
}

/// A script that serves one command.
struct Served {
    outpost: Outpost,
    command: ProcessId,
    sent: oneshot::Receiver<()>,
}

impl Served {
    async fn serve(self, mut source: Source, path: oneshot::Sender<String>) {
        let Self { outpost, command, sent } = self;
        let secret_name = format!("{}{}", new_process_id(), new_process_id());
        let Ok(id) = ProcessId::new(format!("{PREFIX}{}", new_process_id())) else { return };
        let argv = ["/bin/sh", "-c", SERVE, "sh", &secret_name, HELPER];
        let what = What::Exec { argv: argv.map(ByteBuf::from).into(), surroundings: Surroundings::default() };
        let start = Start { stdin: Stdin::Pipe, grace_ms: 0, ..Start::new(id.clone(), what) };
        let (tell, mut heard) = mpsc::channel(WAITING);
        let mut lines = Lines { begun: Vec::new(), tell };
        let over = async {
            let _ = sent.await;
            let _ = outpost.attach(command, Attach::end_only(), &mut Discard).await;
        };
        let answers = async {
            let (mut path, mut taken) = (Some(path), 0);
            while let Some(line) = heard.recv().await {
                if let Some(dir) = line.strip_prefix("ready ") {
                    let _ = path.take().map(|path| path.send(dir.to_owned()));
                } else if let Some(sudo) = line.strip_prefix("ask ") {
                    let answer = source.answer(sudo).await.into_bytes();
                    let length = answer.len() as u64;
                    if outpost.stdin(id.clone(), taken, answer, false).await.is_err() {
                        return;
                    }
                    taken += length;
                }
            }
        };
        tokio::select! {
            // It has ended by itself, or could not be started.
            _ = outpost.run(start, &mut lines) => {}
            () = over => {}
            () = answers => {}
        }
        let _ = outpost.kill(vec![id.clone()], GRACE).await;
        let _ = outpost.forget(id).await;
    }
}

impl Source {
    /// The line for a sudo: `+` and the password, or `-` and why there is none.
    async fn answer(&mut self, sudo: &str) -> String {
        let again = !self.answered.insert(sudo.to_owned());
        self.wrong |= again && self.configured.is_some();
        if self.wrong {
            return line(
                '-',
                "sudo did not take the password that SUDO_PASSWORD gives; it is not tried again",
            );
        }
        if let Some(known) = self.configured.as_ref().or(self.typed.as_ref().filter(|_| !again)) {
            return line('+', known.reveal());
        }
        let Some(person) = &self.person else {
            return line(
                '-',
                "sudo wants a password, and none is known here: `farshell config set SUDO_PASSWORD -` \
                 puts it into .env, where no command sees it",
            );
        };
        match person.ask(again).await {
            Some(typed) => {
                let answer = line('+', typed.reveal());
                self.typed = Some(typed);
                answer
            }
            None => line('-', "no password was given"),
        }
    }
}

fn line(sign: char, text: &str) -> String {
    // A line end would be the end of it, and the rest an answer to the next question.
    let text = text.split(['\n', '\0']).next().unwrap_or_default();
    format!("{sign}{text}\n")
}

/// What the script says, line by line.
#[derive(Debug)]
struct Lines {
    begun: Vec<u8>,
    tell: mpsc::Sender<String>,
}

impl Sink for Lines {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        if chunk.stream != Stream::Stdout {
            return;
        }
        for &byte in chunk.bytes {
            if byte != b'\n' {
                if self.begun.len() < LONGEST {
                    self.begun.push(byte);
                }
            } else if let Ok(line) = String::from_utf8(std::mem::take(&mut self.begun)) {
                // Whoever asks so often is not a person's sudo.
                let _ = self.tell.try_send(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_engine::backend::BoxFuture;
    use std::sync::Mutex;

    /// Types what is on the list.
    #[derive(Debug)]
    struct Typist(Mutex<Vec<Option<&'static str>>>);

    impl Passwords for Typist {
        fn ask(&self, _again: bool) -> BoxFuture<'_, Option<Secret>> {
            let next = self.0.lock().unwrap().remove(0);
            Box::pin(std::future::ready(next.map(Secret::new)))
        }
    }

    fn source(configured: Option<&str>, typed: &[Option<&'static str>]) -> Source {
        let person: Arc<dyn Passwords> = Arc::new(Typist(Mutex::new(typed.to_vec())));
        Source {
            configured: configured.map(Secret::new),
            person: (!typed.is_empty()).then_some(person),
            typed: None,
            answered: HashSet::new(),
            wrong: false,
        }
    }

    #[tokio::test]
    async fn what_is_configured_is_tried_once() {
        let mut source = source(Some("a b"), &[Some("never asked")]);
        assert_eq!(source.answer("1").await, "+a b\n");
        assert_eq!(source.answer("2").await, "+a b\n", "another sudo of the same command");
        assert!(source.answer("2").await.starts_with("-sudo did not take"));
        assert!(source.answer("3").await.starts_with("-sudo did not take"), "nor by another one");
    }

    #[tokio::test]
    async fn a_person_may_mistype_and_give_up() {
        let mut source = source(None, &[Some("tpyo"), Some("typo"), None]);
        assert_eq!(source.answer("1").await, "+tpyo\n");
        assert_eq!(source.answer("1").await, "+typo\n");
        assert_eq!(source.answer("2").await, "+typo\n", "is not asked for every sudo of a command");
        assert_eq!(source.answer("2").await, "-no password was given\n");
    }

    #[tokio::test]
    async fn nothing_is_known() {
        let answer = source(None, &[]).answer("1").await;
        assert!(answer.starts_with("-sudo wants a password") && answer.contains("SUDO_PASSWORD"), "{answer}");
        assert_eq!(source(Some(""), &[]).answer("1").await, "+\n", "an empty one is one");
        assert_eq!(source(Some("a\n+b"), &[]).answer("1").await, "+a\n", "one line is all there is");
    }
}
