//! A process's output, input and terminal, live.
//!
//! A [`Streaming`] is what the caller reads from, a [`Control`] what it steers with. Between them and the server is a
//! task (`driver`) that owns the connection and, when it is lost, makes the next one:
//!
//! | what is known when the connection is lost | what follows |
//! |---|---|
//! | the start was never answered | the start is sent again under the same id: an outpost runs an id once |
//! | the process was opened | it is attached to, from the byte that was reached |
//! | it was opened, and its outpost has never heard of it | the start did not arrive, and is sent again |
//! | it was opened, and the outpost is another one | `unknown_outcome`: nothing is sent again |
//!
//! Input that was not taken is sent again from the offset that the server reports (`outgoing`).

mod driver;
mod outgoing;

use crate::Result;
use crate::client::Client;
use crate::error::protocol;
use bytes::Bytes;
use driver::Driver;
use farshell_api::ApiError;
use farshell_api::approval::Approval;
use farshell_api::process::Process;
use farshell_api::run::{Size, StartRequest};
use farshell_api::stream::{AttachTo, ClientMessage, Password};
use outgoing::Outgoing;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Updates that wait for a slow reader. Beyond them the server waits too, and then the process.
const AHEAD: usize = 16;

/// What the process prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub stream: Stream,
    /// Of its first byte, in arrival order.
    pub offset: u64,
    pub bytes: Bytes,
}

/// What a stream tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    Opened(Box<Process>),
    /// Something takes long. `part`: bytes so far, of how many, where that is known.
    Progress {
        message: String,
        part: Option<(u64, u64)>,
    },
    /// It waits for a person's answer. Nothing has run yet.
    Approval(Box<Approval>),
    /// A sudo of the command wants a password: [`Control::password`] answers. `again`: the last one was wrong.
    Password {
        id: u64,
        again: bool,
    },
    /// It waited for its session, and begins now.
    Started(u32),
    Output(Output),
    /// The log no longer has these bytes (arrival order).
    Gap {
        from: u64,
        to: u64,
    },
    /// Draw this on an empty terminal. Output goes on at `offset`.
    Screen {
        data: Vec<u8>,
        offset: u64,
    },
    /// What was asked of the process (`stdin`, `resize`, `signal` or `kill`) could not be done; the stream goes on.
    Refused {
        request: String,
        error: ApiError,
    },
    /// The connection was lost, and the stream goes on with another one.
    Resumed,
    /// The last one.
    Ended(Box<Process>),
    /// The last one: the process goes on in the background.
    Detached {
        process: Box<Process>,
        reason: String,
    },
}

/// A process that is followed. Dropping it ends the following, not the process.
#[derive(Debug)]
pub struct Streaming {
    id: String,
    updates: mpsc::Receiver<Result<Update>>,
    control: Control,
    driver: JoinHandle<()>,
}

/// Steers a process that is followed.
#[derive(Clone, Debug)]
pub struct Control {
    outgoing: Arc<Outgoing>,
}

impl Streaming {
    /// Starts a process and follows it to its end.
    #[must_use]
    pub fn start(client: &Client, mut request: StartRequest) -> Self {
        let id = request.id.get_or_insert_with(crate::new_process_id).clone();
        let attach = AttachTo {
            id,
            target: Some(request.target.clone()),
            instance: None,
            from: 0,
            screen: false,
            until_closed: false,
            size: None,
        };
        Self::open(client, Some(Box::new(request)), attach)
    }

    /// Follows a process that was started before.
    #[must_use]
    pub fn attach(client: &Client, attach: AttachTo) -> Self {
        Self::open(client, None, attach)
    }

    fn open(client: &Client, start: Option<Box<StartRequest>>, attach: AttachTo) -> Self {
        let id = attach.id.clone();
        let (sender, updates) = mpsc::channel(AHEAD);
        let outgoing = Arc::new(Outgoing::default());
        let driver = Driver::new(client.clone(), start, attach, Arc::clone(&outgoing), sender);
        let driver = tokio::spawn(driver.run());
        Self { id, updates, control: Control { outgoing }, driver }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What comes next. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The server's, or that it was lost and could not be replaced. Nothing comes after an error.
    pub async fn next(&mut self) -> Result<Update> {
        match self.updates.recv().await {
            Some(update) => update,
            None => Err(protocol("the stream is over")),
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.driver.abort();
        self.control.outgoing.over();
    }
}

impl Control {
    /// Sends input. Returns when there is room for more; false if no more is wanted.
    ///
    /// It is addressed by offset, so that none is lost or doubled: one stream at a time may send to a process.
    /// [`Client::stdin`] without an offset is for those who are not alone.
    pub async fn stdin(&self, bytes: impl Into<Bytes>) -> bool {
        let mut rest: Bytes = bytes.into();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(outgoing::PIECE));
            if !self.outgoing.input(piece).await {
                return false;
            }
        }
        true
    }

    /// No more input will come.
    pub fn eof(&self) {
        self.outgoing.eof();
    }

    pub fn resize(&self, size: Size) {
        self.outgoing.message(ClientMessage::Resize { size });
    }

    /// `INT`, `SIGINT` or `2`.
    pub fn signal(&self, signal: &str) {
        self.outgoing.message(ClientMessage::Signal { signal: signal.into() });
    }

    /// Answers [`Update::Password`].
    pub fn password(&self, id: u64, typed: Option<String>) {
        self.outgoing.message(ClientMessage::Password { id, password: typed.map(Password) });
    }

    /// Kills it with all that descends from it. `grace`: seconds between TERM and KILL; the configured ones if
    /// absent.
    pub fn kill(&self, grace: Option<f64>) {
        self.outgoing.message(ClientMessage::Kill { grace });
    }
}
