//! An MCP client's pipes, connected to the server.
//!
//! One JSON message a line goes to the server and comes from it as it is. What this adds is that the client's
//! connection outlives the server. When that is lost:
//!
//! | what is open | what follows |
//! |---|---|
//! | nothing | the next message finds or starts a server |
//! | a call of a tool | the client is told that its outcome is unknown; it is never sent twice |
//! | another request | it changes nothing, and is sent again |
//! | a question of the server to the client | it is taken back; an answer that still comes is dropped |
//!
//! A client that has said hello is introduced to the next server in the same words.
//!
//! | file | question |
//! |---|---|
//! | `wire.rs` | what does a line say, and what is said in the server's place? |
//! | `lines.rs` | how is a line read, and what waits to be written? |
//! | `link.rs` | how is a server reached? |

mod lines;
mod link;
mod wire;

use crate::client::{Client, QUIET};
use farshell_api::ApiError;
use farshell_api::mcp::McpOpen;
use lines::{Lines, Outgoing};
use link::Link;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::Message;

/// Largest message of a client. The server takes less; what is larger still makes no sense to anybody.
const MAX_LINE: usize = 64 << 20;
/// How often a request is sent again.
const AGAIN: u32 = 3;

/// Connects a client to the server of a home until the client is done.
///
/// # Errors
/// The client's pipes fail, or what comes through them has no lines.
pub async fn bridge(
    client: &Client,
    open: &McpOpen,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    Bridge::new(client, open).run(input, output).await
}

struct Bridge<'a> {
    client: &'a Client,
    open: &'a McpOpen,
    link: Option<Link>,
    to_server: Outgoing,
    to_client: Outgoing,
    hello: Hello,
    /// Requests of the client that have no answer yet, by their id as it is written.
    pending: BTreeMap<String, Pending>,
    /// Questions of this server to the client: the ids that the client sees, and the server's own.
    asked: BTreeMap<String, Value>,
    questions: u64,
    /// The client has nothing more to say.
    ended: bool,
}

/// How the client has introduced itself.
#[derive(Default)]
struct Hello {
    id: Option<Value>,
    line: Vec<u8>,
    /// It was answered.
    done: bool,
    initialized: Option<Vec<u8>>,
}

struct Pending {
    id: Value,
    /// Absent if it must not be sent again.
    line: Option<Vec<u8>>,
    sent: u32,
}

impl<'a> Bridge<'a> {
    fn new(client: &'a Client, open: &'a McpOpen) -> Self {
        Self {
            client,
            open,
            link: None,
            to_server: Outgoing::default(),
            to_client: Outgoing::default(),
            hello: Hello::default(),
            pending: BTreeMap::new(),
            asked: BTreeMap::new(),
            questions: 0,
            ended: false,
        }
    }

    /// Nobody is read from while what he said before is still to be written: so nothing piles up.
    async fn run(
        mut self,
        input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut input = Lines::new(input, MAX_LINE);
        loop {
            let open = !self.pending.is_empty();
            let idle = self.to_client.is_empty() && self.to_server.is_empty();
            if self.ended && idle && (!open || self.link.is_none()) {
                return Ok(());
            }
            let (hears, tells) = match &mut self.link {
                Some(link) => (Some(&mut link.lines), Some(&mut link.write)),
                None => (None, None),
            };
            let linked = hears.is_some();
            tokio::select! {
                biased;
                written = self.to_client.write(&mut output), if !self.to_client.is_empty() => written?,
                heard = hear(hears), if linked && self.to_client.is_empty() => match heard {
                    Some(line) => self.server_says(line),
                    None => self.lost().await,
                },
                told = tell(tells, &mut self.to_server), if linked && !self.to_server.is_empty() => {
                    if told.is_err() {
                        self.lost().await;
                    }
                }
                line = input.next(), if !self.ended && self.to_server.is_empty() => match line? {
                    Some(line) => self.client_says(line).await,
                    None => self.end().await,
                },
                _ = self.client.dead(QUIET), if linked && open => self.lost().await,
            }
        }
    }

    async fn client_says(&mut self, line: Vec<u8>) {
        let line = match Message::read(&line) {
            Message::Request { id, method } => {
                if method == "initialize" {
                    self.hello = Hello { id: Some(id.clone()), line: line.clone(), ..Hello::default() };
                }
                let again = (method != "tools/call").then(|| line.clone());
                self.pending.insert(id.to_string(), Pending { id, line: again, sent: 0 });
                line
            }
            Message::Notification { method } => {
                if method == "notifications/initialized" {
                    self.hello.initialized = Some(line.clone());
                }
                if method == wire::CANCELLED
                    && let Some(id) = wire::cancelled_id(&line)
                {
                    // It has no answer then.
                    self.pending.remove(&id.to_string());
                }
                if self.link.is_none() {
                    // Whoever it was meant for has gone, or hears it with the introduction.
                    return;
                }
                line
            }
            Message::Response { id } => match self.asked.remove(&id.to_string()) {
                Some(theirs) => wire::with_id(&line, theirs),
                None => return,
            },
            // The server says what is wrong with it.
            Message::Other => line,
        };
        if self.reached().await {
            self.to_server.push(&line);
        }
    }

    fn server_says(&mut self, line: Vec<u8>) {
        let line = match Message::read(&line) {
            Message::Response { id } => {
                self.pending.remove(&id.to_string());
                if self.hello.id.as_ref() == Some(&id) {
                    self.hello.done = true;
                }
                line
            }
            Message::Request { id, .. } => {
                // Two servers number their questions alike.
                self.questions += 1;
                let ours = Value::from(format!("farshell-{}", self.questions));
                self.asked.insert(ours.to_string(), id);
                wire::with_id(&line, ours)
            }
            Message::Notification { method } if method == wire::CANCELLED => {
                let theirs = wire::cancelled_id(&line);
                let ours = self.asked.iter().find(|(_, id)| Some(*id) == theirs.as_ref());
                let Some(ours) = ours.map(|(ours, _)| ours.clone()) else { return };
                self.asked.remove(&ours);
                wire::take_back(&ours, "the server does not need an answer any more")
            }
            Message::Notification { .. } | Message::Other => line,
        };
        self.to_client.push(&line);
    }

    /// The client is done. What it has asked for may still be answered, for as long as the server likes.
    async fn end(&mut self) {
        self.ended = true;
        if let Some(link) = &mut self.link {
            link.close().await;
        }
    }

    /// There is a server; if not, the client is told so.
    async fn reached(&mut self) -> bool {
        if self.link.is_some() {
            return true;
        }
        let hello = self.hello.done.then(|| {
            let id = self.hello.id.clone().unwrap_or_default();
            (id, self.hello.line.as_slice(), self.hello.initialized.as_deref())
        });
        match Link::make(self.client, self.open, hello).await {
            Ok(link) => {
                self.link = Some(link);
                true
            }
            Err(error) => {
                self.refuse(&error);
                false
            }
        }
    }

    /// Nothing of what is open can be done.
    fn refuse(&mut self, error: &ApiError) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.to_client.push(&wire::failure(&pending.id, error));
        }
    }

    /// The server has gone.
    async fn lost(&mut self) {
        self.link = None;
        let mut unsent: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for line in self.to_server.take() {
            if let Message::Request { id, .. } = Message::read(&line) {
                unsent.insert(id.to_string(), line);
            }
        }
        for id in std::mem::take(&mut self.asked).into_keys() {
            self.to_client.push(&wire::take_back(&id, "the server was replaced"));
        }
        let modern = !self.hello.done;
        let mut again = Vec::new();
        let mut kept = BTreeMap::new();
        for (key, mut pending) in std::mem::take(&mut self.pending) {
            match unsent.remove(&key).or_else(|| pending.line.clone()) {
                Some(line) if pending.sent < AGAIN && !self.ended => {
                    again.push(line);
                    pending.sent += 1;
                    kept.insert(key, pending);
                }
                _ => self.to_client.push(&wire::unknown_outcome(&pending.id, modern)),
            }
        }
        self.pending = kept;
        if !again.is_empty() && self.reached().await {
            again.iter().for_each(|line| self.to_server.push(line));
        }
    }
}

/// The server's next line; nothing if it has gone.
async fn hear(lines: Option<&mut Lines<link::Read>>) -> Option<Vec<u8>> {
    lines?.next().await.ok().flatten()
}

async fn tell(write: Option<&mut link::Write>, outgoing: &mut Outgoing) -> io::Result<()> {
    match write {
        Some(write) => outgoing.write(write).await,
        None => Ok(()),
    }
}
