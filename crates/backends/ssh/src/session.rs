//! A script under way on the host: what it is sent, and what it answers.

use crate::client::{self, Complaint};
use crate::config::Config;
use crate::error::{NO_SHELL, no_shell, plain};
use crate::script::{Answers, Script};
use farshell_engine::{Error, Kind};
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::OwnedSemaphorePermit;

/// How long a host may take until the script answers at all, with a slow line and slow start files.
const FIRST: Duration = Duration::from_secs(45);
/// How long it may then take from one answer to the next.
const NEXT: Duration = Duration::from_secs(60);
/// What others may print before the first answer.
const NOISE: usize = 1 << 20;
/// The longest answer.
const LINE: usize = 64 << 10;
/// How much of that noise is kept for the error in which it ends up.
const KEPT: usize = 2 << 10;

/// Why a script did not run.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// There is no connection any more.
    Gone(String),
    /// The host allows no further session on this connection.
    Full,
    /// Nothing that another attempt would change.
    Error(Error),
}

/// A script under way.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: ChildStdout,
    /// What was read and is not used yet.
    pub(crate) rest: Vec<u8>,
    pub(crate) answers: Answers,
    /// Its turn among the sessions of a connection, if it needs one.
    _turn: Option<OwnedSemaphorePermit>,
    complaint: Complaint,
    word: String,
    noise: Vec<u8>,
    heard: usize,
    what: String,
}

impl Session {
    /// Starts it and sends the script. What the host makes of that shows with the first answer.
    pub(crate) async fn open(config: &Config, args: &[OsString], script: &Script) -> Result<Self, Unfit> {
        let what = format!("running a script on {}", config.destination());
        let mut command = client::command(config, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Unfit::Error(client::not_started(&what, e)))?;
        let complaint = Complaint::hear(child.stderr.take());
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Unfit::Error(Error::new(Kind::System, what, "ssh has no standard input or output")));
        };
        let mut session = Self {
            child,
            stdin: Some(stdin),
            stdout,
            rest: Vec::new(),
            answers: Answers::default(),
            _turn: None,
            complaint,
            word: script.word.clone(),
            noise: Vec::new(),
            heard: 0,
            what,
        };
        if let Some(stdin) = &mut session.stdin {
            // Should it end early, its output says why.
            let _ = stdin.write_all(script.text.as_bytes()).await;
            let _ = stdin.flush().await;
        }
        session.begin(config).await?;
        Ok(session)
    }

    /// Keeps its turn until it is dropped.
    pub(crate) fn with_turn(mut self, turn: Option<OwnedSemaphorePermit>) -> Self {
        self._turn = turn;
        self
    }

    /// Waits for the first answer.
    async fn begin(&mut self, config: &Config) -> Result<(), Unfit> {
        match tokio::time::timeout(FIRST, self.step()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.ended(config).await),
            Ok(Err(error)) => Err(Unfit::Error(error)),
            Err(_) => {
                let _ = self.child.start_kill();
                let answered = String::from_utf8_lossy(&self.noise).into_owned();
                let complained = self.complaint.text().await;
                let mut error = no_shell(config, None, &answered, &complained);
                error.message = format!("{} (after {} s)", error.message, FIRST.as_secs());
                Err(Unfit::Error(error))
            }
        }
    }

    /// It ended and has not answered.
    async fn ended(&mut self, config: &Config) -> Unfit {
        self.stdin = None;
        let status = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
        let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
        let complained = self.complaint.text().await;
        let has = |part: &str| complained.contains(part);
        let silent = code == Some(255) && self.noise.iter().all(u8::is_ascii_whitespace);
        // The master says why it has no session for us; or nobody says so, since it is not there.
        if silent && (has("refused by peer") || has("open failed") || has("administratively prohibited")) {
            return Unfit::Full;
        }
        // It must not make a connection of its own, and says in these words that it tried.
        let lost = [
            "Control socket connect",
            "UNKNOWN port",
            "kex_exchange_identification",
            "mux_client",
            "master is dead",
            "Broken pipe",
        ];
        if silent && lost.iter().any(|part| has(part)) {
            return Unfit::Gone(plain(&complained));
        }
        // A connection that breaks takes the session with it, which is no verdict on the host's shell.
        if code == Some(255) && complained.is_empty() {
            return Unfit::Gone("the connection was lost".into());
        }
        Unfit::Error(no_shell(config, code, &String::from_utf8_lossy(&self.noise), &complained))
    }

    /// Reads one answer. False: there are no more.
    async fn step(&mut self) -> farshell_engine::Result<bool> {
        loop {
            while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line[..end]);
                if let Some(answer) = text.strip_prefix(&self.word) {
                    self.answers.add(answer);
                    return Ok(true);
                }
                let room = KEPT.saturating_sub(self.noise.len());
                self.noise.extend_from_slice(&line[..line.len().min(room)]);
            }
            if self.rest.len() > LINE || self.heard > NOISE {
                let message = format!(
                    "the host answers with something else: {}",
                    plain(&String::from_utf8_lossy(&self.noise))
                );
                return Err(Error::new(Kind::Unavailable, self.what.clone(), message).with_hint(NO_SHELL));
            }
            let read = self.stdout.read_buf(&mut self.rest).await;
            match read.map_err(|e| Error::io(self.what.clone(), e))? {
                0 => {
                    let room = KEPT.saturating_sub(self.noise.len());
                    self.noise.extend_from_slice(&self.rest[..self.rest.len().min(room)]);
                    return Ok(false);
                }
                n => self.heard += n,
            }
        }
    }

    /// Reads answers until one of these has come.
    pub(crate) async fn until(&mut self, names: &[&str]) -> farshell_engine::Result<()> {
        self.until_within(names, NEXT).await
    }

    /// Reads answers until one of these has come, with at most this time between two.
    pub(crate) async fn until_within(
        &mut self,
        names: &[&str],
        limit: Duration,
    ) -> farshell_engine::Result<()> {
        while !names.iter().any(|name| self.answers.has(name)) {
            match tokio::time::timeout(limit, self.step()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    let said = plain(&self.complaint.text().await);
                    let message = if said.is_empty() { "the connection was lost".to_owned() } else { said };
                    return Err(Error::new(Kind::Disconnected, self.what.clone(), message)
                        .with_hint("try again; if it goes on like this, `farshell doctor ssh` says more"));
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let message = format!("no answer for {} s", limit.as_secs());
                    return Err(Error::new(Kind::TimedOut, self.what.clone(), message)
                        .with_hint("is the host overloaded, or one of its file systems stuck?"));
                }
            }
        }
        Ok(())
    }
}
