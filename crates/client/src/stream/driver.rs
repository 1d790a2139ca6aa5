//! Owns the connection of a stream, and makes the next one when it is lost.

use super::outgoing::{self, Outgoing};
use super::{Output, Stream, Update};
use crate::Result;
use crate::client::{ANSWER, Client, QUIET, STILL_QUIET, other_version, refused, silent, stopping};
use crate::error::{disconnected, protocol, unknown};
use bytes::{Buf, Bytes};
use farshell_api::run::StartRequest;
use farshell_api::stream::{AttachTo, OUTPUT_HEADER, Open, ServerMessage};
use farshell_api::{API_VERSION, ApiError, VERSION_HEADER};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::Uri;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Pauses between attempts, as long as none of them gets any further.
const PAUSES: [Duration; 8] = [
    Duration::from_millis(0),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

type Socket = WebSocketStream<UnixStream>;

pub(crate) struct Driver {
    client: Client,
    /// Absent if the process was started by somebody else.
    start: Option<Box<StartRequest>>,
    /// How to go on: `from` and `instance` follow what was heard.
    attach: AttachTo,
    outgoing: Arc<Outgoing>,
    updates: mpsc::Sender<Result<Update>>,
    /// The server has said that it knows the process.
    opened: bool,
    /// A start was sent, or a process opened: from here on an outcome can be unknown.
    sent: bool,
    /// Something was heard on this connection.
    progress: bool,
    connections: u32,
}

/// Why a connection is over.
enum Broken {
    /// Lost: the next one goes on.
    Lost(String),
    Final(ApiError),
    /// Nobody listens to the updates.
    Unwanted,
}

impl Driver {
    pub(crate) fn new(
        client: Client,
        start: Option<Box<StartRequest>>,
        attach: AttachTo,
        outgoing: Arc<Outgoing>,
        updates: mpsc::Sender<Result<Update>>,
    ) -> Self {
        Self {
            client,
            start,
            attach,
            outgoing,
            updates,
            opened: false,
            sent: false,
            progress: false,
            connections: 0,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut pauses = PAUSES.iter();
        let failed = loop {
            let why = match self.connection().await {
                Ok(()) | Err(Broken::Unwanted) => break None,
                Err(Broken::Final(error)) => break Some(error),
                Err(Broken::Lost(why)) => why,
            };
            if std::mem::take(&mut self.progress) {
                pauses = PAUSES.iter();
            }
            match pauses.next() {
                Some(pause) => sleep(*pause).await,
                None => {
                    break Some(self.given_up(&format!("the connection was lost again and again ({why})")));
                }
            }
        };
        self.outgoing.over();
        if let Some(error) = failed {
            let _ = self.updates.send(Err(error)).await;
        }
    }

    /// What it comes to if no server can be had any more.
    fn given_up(&self, why: &str) -> ApiError {
        match &self.start {
            Some(_) if self.sent => unknown(&format!("running {}", self.attach.id), why),
            _ => disconnected(why),
        }
    }

    /// One connection, from its beginning to the process's end.
    async fn connection(&mut self) -> std::result::Result<(), Broken> {
        let stream = self.client.reach().await.map_err(|error| {
            Broken::Final(if self.sent && self.start.is_some() {
                self.given_up(&format!("the server was lost and none can be had: {}", error.message))
            } else {
                error
            })
        })?;
        let socket = self.handshake(stream).await?;
        self.connections += 1;
        self.outgoing.connected();
        let (mut sink, messages) = socket.split();
        let open = self.open();
        self.sent = true;
        sink.send(outgoing::text(&open)).await.map_err(|e| Broken::Lost(e.to_string()))?;
        let outgoing = Arc::clone(&self.outgoing);
        tokio::select! {
            biased;
            over = self.read(messages) => over,
            never = write(sink, &outgoing) => match never {},
        }
    }

    async fn handshake(&self, stream: UnixStream) -> std::result::Result<Socket, Broken> {
        let request = ClientRequestBuilder::new(Uri::from_static("ws://localhost/v1/stream"))
            .with_header(VERSION_HEADER, API_VERSION.to_string())
            .with_header("user-agent", crate::client::NAME);
        let shaken = match timeout(ANSWER, client_async(request, stream)).await {
            Ok(shaken) => shaken,
            Err(_) => return Err(Broken::Final(silent(self.client.files()))),
        };
        let (socket, answer) = match shaken {
            Ok(shaken) => shaken,
            Err(WsError::Http(answer)) => {
                let (head, body) = answer.into_parts();
                if let Some(theirs) = other_version(&head.headers) {
                    return Err(Broken::Final(self.client.skew(theirs).await));
                }
                let error = refused(head.status, &body.unwrap_or_default());
                return Err(if stopping(&error) {
                    Broken::Lost(error.message)
                } else {
                    Broken::Final(error)
                });
            }
            // It ended while we knocked.
            Err(error) => return Err(Broken::Lost(error.to_string())),
        };
        match other_version(answer.headers()) {
            Some(theirs) => Err(Broken::Final(self.client.skew(theirs).await)),
            None => Ok(socket),
        }
    }

    fn open(&self) -> Open {
        match &self.start {
            Some(start) if !self.opened => Open { start: Some(start.clone()), attach: None },
            _ => {
                let mut attach = self.attach.clone();
                attach.size = self.outgoing.size().or(attach.size);
                Open { start: None, attach: Some(attach) }
            }
        }
    }

    async fn read(&mut self, mut messages: SplitStream<Socket>) -> std::result::Result<(), Broken> {
        let client = self.client.clone();
        loop {
            let message = tokio::select! {
                biased;
                message = messages.next() => message,
                error = client.dead(if self.progress { STILL_QUIET } else { QUIET }) => return Err(Broken::Final(error)),
            };
            match message {
                Some(Ok(Message::Binary(data))) => {
                    self.progress = true;
                    self.output(data).await?;
                }
                Some(Ok(Message::Text(text))) => {
                    self.progress = true;
                    let message = serde_json::from_str(&text)
                        .map_err(|e| Broken::Final(protocol(format!("a message is not understood: {e}"))))?;
                    if self.message(message).await? {
                        return Ok(());
                    }
                }
                Some(Ok(Message::Close(frame))) => return Err(closed(frame)),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Broken::Lost(error.to_string())),
                None => return Err(Broken::Lost("it was closed".into())),
            }
        }
    }

    async fn tell(&self, update: Update) -> std::result::Result<(), Broken> {
        self.updates.send(Ok(update)).await.map_err(|_| Broken::Unwanted)
    }

    async fn output(&mut self, mut data: Bytes) -> std::result::Result<(), Broken> {
        let malformed = || Broken::Final(protocol("malformed output"));
        if data.len() < OUTPUT_HEADER {
            return Err(malformed());
        }
        let stream = match data.get_u8() {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return Err(malformed()),
        };
        let mut offset = data.get_u64_le();
        let next = self.attach.from;
        if offset > next {
            let message = format!("output at {offset} where {next} was next");
            return Err(Broken::Final(protocol(message)));
        }
        // What was heard before is not told again.
        let known = usize::try_from(next - offset).unwrap_or(usize::MAX).min(data.len());
        data.advance(known);
        offset += known as u64;
        if data.is_empty() {
            return Ok(());
        }
        self.attach.from = offset + data.len() as u64;
        self.tell(Update::Output(Output { stream, offset, bytes: data })).await
    }

    /// True after the last one.
    async fn message(&mut self, message: ServerMessage) -> std::result::Result<bool, Broken> {
        let update = match message {
            ServerMessage::Opened { process, stdin_taken, instance } => {
                let again = self.connections > 1;
                self.outgoing.opened(stdin_taken, again);
                self.attach.instance = instance;
                if std::mem::replace(&mut self.opened, true) && again {
                    Update::Resumed
                } else {
                    Update::Opened(process)
                }
            }
            ServerMessage::Progress { message, done, total } => {
                Update::Progress { message, part: done.zip(total) }
            }
            ServerMessage::Approval { approval } => Update::Approval(approval),
            ServerMessage::Password { id, again } => Update::Password { id, again },
            ServerMessage::Started { pid } => Update::Started(pid),
            ServerMessage::Gap { from, to } => {
                self.attach.from = to;
                Update::Gap { from, to }
            }
            ServerMessage::Stdin { taken } => {
                self.outgoing.taken(taken);
                return Ok(false);
            }
            ServerMessage::Screen { data, offset } => {
                self.attach.from = offset;
                // It was drawn: a later connection goes on from there.
                self.attach.screen = false;
                Update::Screen { data: data.0, offset }
            }
            ServerMessage::Ended { process } => {
                self.tell(Update::Ended(process)).await?;
                return Ok(true);
            }
            ServerMessage::Detached { process, reason } => {
                self.tell(Update::Detached { process, reason }).await?;
                return Ok(true);
            }
            ServerMessage::Refused { request, error } => {
                if request == "stdin" {
                    self.outgoing.over();
                }
                Update::Refused { request, error }
            }
            ServerMessage::Error { error } => return Err(self.error(error)),
        };
        self.tell(update).await?;
        Ok(false)
    }

    fn error(&mut self, error: ApiError) -> Broken {
        let resuming = self.opened && self.connections > 1 && self.start.is_some();
        if !resuming || error.kind != "not_found" {
            return Broken::Final(error);
        }
        if self.attach.instance.is_some() && self.attach.from == 0 {
            // The outpost that was to run it has never heard of it: the start did not arrive.
            self.opened = false;
            return Broken::Lost(error.message);
        }
        Broken::Final(
            self.given_up(&format!(
                "the server was lost, and the next one does not know it ({})",
                error.message
            )),
        )
    }
}

/// Why the server ended the connection without a last word.
fn closed(frame: Option<CloseFrame>) -> Broken {
    match frame {
        // It would be as large the next time.
        Some(frame) if frame.code == CloseCode::Size => Broken::Final(protocol(frame.reason.as_str())),
        Some(frame) => Broken::Lost(frame.reason.as_str().to_owned()),
        None => Broken::Lost("the server ended it".into()),
    }
}

/// Sends what there is to send. What can't be sent is no end by itself: there may be an answer to read.
async fn write(mut sink: SplitSink<Socket, Message>, outgoing: &Outgoing) -> Infallible {
    loop {
        let message = outgoing.next().await;
        if sink.send(message).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
