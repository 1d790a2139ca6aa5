//! The one client of the outpost.
//!
//! An [`Outpost`] is a handle that survives its connections. When one breaks, the next request makes another;
//! a run that was under way asks the outpost what happened and goes on at the byte where it was. What can't
//! be known is said ([`Kind::UnknownOutcome`]), and nothing is ever sent twice that could run twice.
//!
//! What can't be seen from here: a place that was frozen and one that is slow look alike; so do an outpost
//! that was killed and one whose machine lost power, until a new one answers with another boot id.

mod asking;
mod connection;
mod files;
#[cfg(test)]
mod hostile;
mod rest;

use crate::backend::Place;
use crate::capture::Sink;
use crate::error::{Error, Kind, Result};
use asking::Asking;
use connection::{Connection, Incoming};
use farshell_protocol::hello::OutpostIdentity;
use farshell_protocol::message::Info;
use farshell_protocol::process::{Attach, Chunk, Kill, Killed, LogPiece, Size, Start, State, Status, View};
use farshell_protocol::session::{OpenSession, SessionInfo};
use farshell_protocol::{ErrorKind, Event, Failure, ProcessId, Reply, Request, SessionName};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use files::{Download, FileStream, FileUpload};
pub use rest::BeforeRest;

/// How often somebody who went away while being greeted is looked for again, and the pause before that.
const GREETINGS: u32 = 5;
const BETWEEN_GREETINGS: Duration = Duration::from_millis(50);
/// How many connections may be lost under one request before it is given up.
const MOST_LOST: u32 = 5;
/// Pauses between attempts to connect again: about half a minute in all.
const PAUSES: [Duration; 8] = [
    Duration::from_millis(0),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(10),
];

/// The longest pause that comes first is the fourth.
const MOST_SKIPPED: usize = 3;

/// A handle on the outpost of a place.
#[derive(Clone, Debug)]
pub struct Outpost {
    inner: Arc<Inner>,
}

struct Inner {
    place: Arc<dyn Place>,
    current: Mutex<Option<Arc<Connection>>>,
    /// Held by whoever makes a new connection, so that only one is made.
    connecting: tokio::sync::Mutex<()>,
    before_rest: Mutex<Option<BeforeRest>>,
    /// The last connection was closed because nobody used it.
    resting: AtomicBool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("place", &self.place)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resting(&self, rests: bool) {
        self.resting.store(rests, Ordering::Release);
    }

    /// The connection, if there is one that works.
    fn working(&self) -> Option<Arc<Connection>> {
        self.current().as_ref().filter(|connection| !connection.has_ended()).map(Arc::clone)
    }
}

/// Is it safe to send a request again whose answer was lost?
fn repeatable(request: &Request) -> bool {
    match request {
        Request::Ping
        | Request::Info
        | Request::OpenSession(_)
        | Request::Sessions
        | Request::Status { .. }
        | Request::Forbid { .. }
        | Request::Processes
        | Request::ReadLog { .. }
        | Request::Stdin { .. }
        | Request::Kill(_)
        | Request::Resize { .. }
        | Request::SetLease { .. }
        // Asked again, the outpost may say that there is no such thing any more: then it was done.
        | Request::CloseSession { .. }
        | Request::Forget { .. } => true,
        // Each of these has a way of its own.
        Request::Start(_) | Request::Attach { .. } | Request::Signal { .. } | Request::File(_) => false,
        Request::Shutdown => false,
    }
}

impl Outpost {
    /// A handle; nothing is connected yet.
    #[must_use]
    pub fn new(place: Arc<dyn Place>) -> Self {
        Self {
            inner: Arc::new(Inner {
                place,
                current: Mutex::new(None),
                connecting: tokio::sync::Mutex::new(()),
                before_rest: Mutex::default(),
                resting: AtomicBool::new(false),
            }),
        }
    }

    /// Connects if there is no connection, and says to whom.
    ///
    /// # Errors
    /// The place can't be reached.
    pub async fn identity(&self) -> Result<OutpostIdentity> {
        Ok(self.connection().await?.identity.clone())
    }

    /// Whether there is a connection that works, as far as is known.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.working().is_some()
    }

    /// What is done before a connection that costs is closed because nobody uses it ([`Place::rests_after`]).
    pub fn before_rest(&self, hook: BeforeRest) {
        *self.inner.before_rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
    }

    /// The last connection was closed because nobody used it, while nothing ran in the place, and nobody has come since.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.inner.resting.load(Ordering::Acquire) && self.inner.working().is_none()
    }

    /// Drops the connection, as a failing network would. What runs in the place goes on.
    pub fn disconnect(&self) {
        if let Some(connection) = self.inner.current().take() {
            connection.close();
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = self.inner.working() {
            return Ok(connection);
        }
        let _only_one = self.inner.connecting.lock().await;
        // Somebody else may have made one meanwhile.
        if let Some(connection) = self.inner.working() {
            return Ok(connection);
        }
        let mut left = GREETINGS;
        let connection = loop {
            let stream = self.inner.place.connect().await?;
            match Connection::open(stream).await {
                Ok(connection) => break Arc::new(connection),
                // Whoever was met there was on its way out, and nothing was asked of it: the next one may stay.
                Err(error) if error.kind == Kind::Disconnected && left > 0 => {
                    left -= 1;
                    tokio::time::sleep(BETWEEN_GREETINGS).await;
                }
                Err(error) => return Err(error),
            }
        };
        self.inner.resting(false);
        *self.inner.current() = Some(Arc::clone(&connection));
        if let Some(after) = self.inner.place.rests_after() {
            tokio::spawn(rest::watch(Arc::downgrade(&self.inner), Arc::downgrade(&connection), after));
        }
        Ok(connection)
    }

    /// Connects after a loss, patiently.
    async fn reconnect(&self) -> Result<Arc<Connection>> {
        self.reconnect_after(0).await
    }

    /// Likewise after so many losses in a row, with nothing in between: one that greets and goes away is not asked
    /// without a pause.
    async fn reconnect_after(&self, losses: usize) -> Result<Arc<Connection>> {
        let mut last = None;
        for pause in &PAUSES[losses.min(MOST_SKIPPED)..] {
            tokio::time::sleep(*pause).await;
            match self.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error)
                    if matches!(error.kind, Kind::Protocol | Kind::IdentityChanged | Kind::Unavailable) =>
                {
                    return Err(error);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| connection::lost("no attempt was made")))
    }

    async fn request(&self, what: &str, request: Request) -> Result<Reply> {
        let removes = matches!(request, Request::CloseSession { .. } | Request::Forget { .. });
        let mut connection = self.connection().await?;
        let mut lost = 0;
        let most = if repeatable(&request) { MOST_LOST } else { 0 };
        loop {
            match connection.ask(&request).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(failure)) if removes && lost > 0 && failure.kind == ErrorKind::NotFound => {
                    return Ok(Reply::Done);
                }
                Ok(Err(failure)) => return Err(Error::failure(what, &failure)),
                Err(error) if lost < most && error.kind == Kind::Disconnected => {
                    lost += 1;
                    connection = self.reconnect().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// # Errors
    /// The outpost can't be reached.
    pub async fn ping(&self) -> Result<()> {
        done(
            "asking the outpost for a sign of life",
            self.request("asking the outpost for a sign of life", Request::Ping).await?,
        )
    }

    /// # Errors
    /// The outpost can't be reached.
    pub async fn info(&self) -> Result<Info> {
        let what = "asking the outpost about itself";
        match self.request(what, Request::Info).await? {
            Reply::Info(info) => Ok(info),
            other => Err(odd(what, &other)),
        }
    }

    /// Opens a session, or finds it open.
    ///
    /// # Errors
    /// Its directory can't be entered, or the place has no shell.
    pub async fn open_session(&self, open: OpenSession) -> Result<SessionInfo> {
        let what = format!("opening session {}", open.name);
        match self.request(&what, Request::OpenSession(open)).await? {
            Reply::Session(info) => Ok(info),
            other => Err(odd(&what, &other)),
        }
    }

    /// # Errors
    /// There is no such session.
    pub async fn close_session(&self, name: SessionName) -> Result<()> {
        let what = format!("closing session {name}");
        done(&what, self.request(&what, Request::CloseSession { name }).await?)
    }

    /// # Errors
    /// The outpost can't be reached.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>> {
        let what = "listing sessions";
        match self.request(what, Request::Sessions).await? {
            Reply::Sessions(list) => Ok(list),
            other => Err(odd(what, &other)),
        }
    }

    /// Starts a process and follows it to its end. `start.attach` is ignored.
    ///
    /// If the connection is lost on the way, the process is found again under its id and the output goes on
    /// where it was. Dropping the future leaves the process running.
    ///
    /// # Errors
    /// [`Kind::UnknownOutcome`] if the outpost itself was lost with the command in it; [`Kind::NotStarted`] if
    /// the command is known not to have begun.
    pub async fn run(&self, mut start: Start, sink: &mut dyn Sink) -> Result<Status> {
        start.attach = Some(Attach::foreground());
        let id = start.id.clone();
        let what = format!("running {id}");
        let connection = self.connection().await?;
        let instance = connection.identity.instance.clone();
        let request = Request::Start(start);
        let mut offset = 0;
        let mut ended = match connection.call(&request) {
            Ok(call) => follow(call, &what, &mut offset, sink).await,
            Err(error) => Err(error),
        };
        drop(connection);
        let (mut losses, mut before) = (0, 0);
        while let Err(error) = &ended {
            match error.kind {
                Kind::Disconnected => {}
                Kind::Protocol => return Err(unknown(&what, &error.to_string())),
                _ => break,
            }
            losses = if offset > before { 0 } else { losses };
            before = offset;
            let connecting = self.reconnect_after(losses);
            losses += 1;
            // Ask what happened; send nothing that could run twice.
            let connection = match connecting.await {
                Ok(connection) => connection,
                Err(error) => {
                    return Err(unknown(
                        &what,
                        &format!("the connection was lost and could not be made again ({error})"),
                    ));
                }
            };
            if connection.identity.instance != instance {
                return Err(unknown(&what, "the outpost that ran it is gone"));
            }
            let attach = Attach { from: offset, ..Attach::foreground() };
            ended = match connection.call(&Request::Attach { id: id.clone(), attach }) {
                Ok(call) => follow(call, &what, &mut offset, sink).await,
                Err(error) => Err(error),
            };
            // The same outpost has never heard of it: the start did not arrive, so this is the first.
            if matches!(&ended, Err(error) if error.kind == Kind::NotFound) && offset == 0 {
                ended = match connection.call(&request) {
                    Ok(call) => follow(call, &what, &mut offset, sink).await,
                    Err(error) => Err(error),
                };
            }
        }
        let status = ended?;
        if status.state == State::Abandoned {
            let message = "the command was still waiting for its session when it was given up";
            return Err(Error::new(Kind::NotStarted, what, message));
        }
        Ok(status)
    }

    /// Starts a process and returns at once.
    ///
    /// # Errors
    /// As [`Outpost::run`].
    pub async fn start(&self, mut start: Start) -> Result<Status> {
        start.attach = None;
        let id = start.id.clone();
        let what = format!("starting {id}");
        let connection = self.connection().await?;
        let instance = connection.identity.instance.clone();
        let request = Request::Start(start);
        let mut answer = connection.ask(&request).await;
        drop(connection);
        let mut lost = 0;
        while let Err(error) = &answer
            && matches!(error.kind, Kind::Disconnected | Kind::Protocol)
        {
            lost += 1;
            if lost > MOST_LOST || error.kind == Kind::Protocol {
                return Err(unknown(&what, &error.to_string()));
            }
            let connection = self.reconnect().await.map_err(|e| unknown(&what, &e.to_string()))?;
            if connection.identity.instance != instance {
                return Err(unknown(&what, "the outpost that was asked is gone"));
            }
            answer = connection.ask(&Request::Status { id: id.clone() }).await;
            // The same outpost has never heard of it: the start did not arrive, so this is the first.
            if matches!(&answer, Ok(Err(failure)) if failure.kind == ErrorKind::NotFound) {
                answer = connection.ask(&request).await;
            }
        }
        status_of(&what, answer?)
    }

    /// Follows a process from an offset (arrival order) to its end, or with `until_closed` until nobody holds
    /// its output any more. Goes on after lost connections.
    ///
    /// # Errors
    /// There is no such process, or the outpost that had it is gone.
    pub async fn attach(&self, id: ProcessId, attach: Attach, sink: &mut dyn Sink) -> Result<Status> {
        let what = format!("following {id}");
        let mut connection = self.connection().await?;
        let instance = connection.identity.instance.clone();
        let mut offset = attach.from;
        let (mut losses, mut before) = (0, offset);
        loop {
            let request = Request::Attach { id: id.clone(), attach: Attach { from: offset, ..attach } };
            let ended = match connection.call(&request) {
                Ok(call) => follow(call, &what, &mut offset, sink).await,
                Err(error) => Err(error),
            };
            match ended {
                Err(error) if error.kind == Kind::Disconnected => {
                    losses = if offset > before { 0 } else { losses };
                    before = offset;
                    connection = self.reconnect_after(losses).await?;
                    losses += 1;
                    if connection.identity.instance != instance {
                        return Err(unknown(&what, "the outpost that ran it is gone"));
                    }
                }
                other => return other,
            }
        }
    }

    /// # Errors
    /// There is no such process.
    pub async fn status(&self, id: ProcessId) -> Result<Status> {
        let what = format!("asking about {id}");
        match self.request(&what, Request::Status { id }).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(odd(&what, &other)),
        }
    }

    /// The status of a process; if there is none, there never will be, also if a start under its id is on its way.
    ///
    /// # Errors
    /// [`Kind::NotFound`]: there is no such process and there will be none.
    pub async fn forbid(&self, id: ProcessId) -> Result<Status> {
        let what = format!("asking about {id}");
        match self.request(&what, Request::Forbid { id }).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(odd(&what, &other)),
        }
    }

    /// # Errors
    /// The outpost can't be reached.
    pub async fn processes(&self) -> Result<Vec<Status>> {
        let what = "listing processes";
        match self.request(what, Request::Processes).await? {
            Reply::Processes(list) => Ok(list),
            other => Err(odd(what, &other)),
        }
    }

    /// Reads at most `len` bytes (and at most a megabyte) of a log.
    ///
    /// # Errors
    /// There is no such process.
    pub async fn read_log(&self, id: ProcessId, view: View, offset: u64, len: u32) -> Result<LogPiece> {
        let what = format!("reading the log of {id}");
        match self.request(&what, Request::ReadLog { id, view, offset, len }).await? {
            Reply::Log(piece) => Ok(piece),
            other => Err(odd(&what, &other)),
        }
    }

    /// Sends input; `offset` is the number of bytes sent before. Returns when they are taken, with the number
    /// of all that were.
    ///
    /// # Errors
    /// The process has ended, or its input is closed.
    pub async fn stdin(&self, id: ProcessId, offset: u64, bytes: Vec<u8>, eof: bool) -> Result<u64> {
        let what = format!("sending input to {id}");
        match self.request(&what, Request::Stdin { id, offset, bytes, eof }).await? {
            Reply::Stdin { taken } => Ok(taken),
            other => Err(odd(&what, &other)),
        }
    }

    /// # Errors
    /// The process does not run; [`Kind::UnknownOutcome`] if nobody can say whether the signal was sent.
    pub async fn signal(&self, id: ProcessId, signal: i32) -> Result<()> {
        let what = format!("signalling {id}");
        let asking = Asking::signal(self, what.clone(), id, signal);
        done(&what, asking.answer().await?)
    }

    /// Kills processes with all that descends from them, and says how many that were.
    ///
    /// # Errors
    /// One of them is not known (then none was killed).
    pub async fn kill(&self, ids: Vec<ProcessId>, grace: Duration) -> Result<Vec<(ProcessId, Killed)>> {
        let what = "killing";
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        match self.request(what, Request::Kill(Kill { ids, grace_ms })).await? {
            Reply::Killed(list) => Ok(list),
            other => Err(odd(what, &other)),
        }
    }

    /// # Errors
    /// The process has no terminal.
    pub async fn resize(&self, id: ProcessId, size: Size) -> Result<()> {
        let what = format!("resizing the terminal of {id}");
        done(&what, self.request(&what, Request::Resize { id, size }).await?)
    }

    /// Drops the log of a finished process.
    ///
    /// # Errors
    /// It still runs.
    pub async fn forget(&self, id: ProcessId) -> Result<()> {
        let what = format!("forgetting {id}");
        done(&what, self.request(&what, Request::Forget { id }).await?)
    }

    /// # Errors
    /// The outpost can't be reached.
    pub async fn set_lease(&self, lease: Duration) -> Result<()> {
        let what = "setting the lease";
        done(what, self.request(what, Request::SetLease { seconds: lease.as_secs() }).await?)
    }

    /// Kills everything in the place that the outpost started, and ends it.
    ///
    /// # Errors
    /// The outpost can't be reached.
    pub async fn shutdown(&self) -> Result<()> {
        let what = "ending the outpost";
        done(what, self.request(what, Request::Shutdown).await?)
    }
}

/// A new id for a process.
#[must_use]
pub fn new_process_id() -> ProcessId {
    ProcessId::new(format!("proc_{:016x}", crate::random::number()))
        .unwrap_or_else(|_| unreachable!("hex digits make a valid id"))
}

/// Hands a call's output to the sink, and counts it, until the response.
async fn follow(
    mut call: connection::Call,
    what: &str,
    offset: &mut u64,
    sink: &mut dyn Sink,
) -> Result<Status> {
    loop {
        match call.next().await? {
            Incoming::Data(payload) => {
                let Some(chunk) = Chunk::decode(&payload) else {
                    return Err(Error::new(Kind::Protocol, what, "malformed output"));
                };
                if chunk.offset != *offset {
                    let message = format!("output at {} where {offset} was next", chunk.offset);
                    return Err(Error::new(Kind::Protocol, what, message));
                }
                *offset += chunk.bytes.len() as u64;
                sink.chunk(chunk);
                if let Some(room) = sink.room() {
                    room.await;
                }
                call.consumed(payload.len());
            }
            Incoming::Event(Event::Gap { from, to }, _) => {
                sink.gap(from, to);
                *offset = to;
            }
            Incoming::Event(Event::Started { pid }, _) => sink.started(pid),
            Incoming::Event(Event::File(_), _) | Incoming::Credit(_) => {}
            Incoming::Response(answer) => return status_of(what, answer),
        }
    }
}

fn status_of(what: &str, answer: std::result::Result<Reply, Failure>) -> Result<Status> {
    match answer {
        Ok(Reply::Status(status)) => Ok(*status),
        Ok(other) => Err(odd(what, &other)),
        Err(failure) => Err(Error::failure(what, &failure)),
    }
}

fn done(what: &str, reply: Reply) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(odd(what, &other)),
    }
}

fn odd(what: &str, reply: &Reply) -> Error {
    let shown: String = format!("{reply:?}").chars().take(80).collect();
    Error::new(Kind::Protocol, what, format!("the outpost gave an answer of another kind: {shown}"))
}

fn unknown(what: &str, why: &str) -> Error {
    Error::new(
        Kind::UnknownOutcome,
        what,
        format!("the outcome is unknown: {why}; the command was not sent again"),
    )
    .with_hint("check in the place whether the command took effect before you run it again")
}
