//! `/v1/stream`: one process's output, input and terminal, live.
//!
//! A stream is one task that talks to the client, and a few that work for it:
//!
//! ```text
//!  socket ──> talk ──> Inputs ──> feed ──────> process      follow ──> Queue ──> write ──> socket
//!              └─────> kill, signal, resize ──> process
//! ```
//!
//! A client that does not read fills the queue, and that slows its process down. One that goes away takes only its
//! stream with it: what it has sent still arrives, and a process that it started goes on.

mod input;
mod open;
mod passwords;
mod queue;
mod talk;

use crate::app::App;
use crate::connection::Peer;
use crate::input::{Shape, no_query, origin};
use crate::life::Phase;
use crate::refusal::Refusal;
use crate::route::{Described, Route};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{Method, Request, Response, StatusCode};
use farshell_api::stream::{ClientMessage, Open, ServerMessage};
use farshell_engine::Kind;
use farshell_keeper::Origin;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use queue::Queue;
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Largest piece of input from a client.
const MAX_MESSAGE: usize = 1 << 20;
/// Largest message in words: the first one carries the caller's environment, of which a kernel allows megabytes.
const MAX_WORDS: usize = 16 << 20;
/// One that is larger still is not even read to its end, so that its sender may not hear why the stream ended.
const MAX_READ: usize = 20 << 20;
/// A stream has small buffers, since there are many.
const BUFFER: usize = 16 << 10;
/// How long a client may take to answer the end of the stream with its own.
const GOODBYE: Duration = Duration::from_secs(5);
/// The same, and for all that is still to be written, when the server stops.
const HURRY: Duration = Duration::from_secs(1);

/// Why a stream ends, as WebSockets say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    code: u16,
    reason: &'static str,
}

/// Everything has been said.
const DONE: Ending = Ending { code: 1000, reason: "" };
/// What the client sent makes no sense.
const MISTAKE: Ending = Ending { code: 1008, reason: "the last message says what is wrong" };
const TOO_LARGE: Ending = Ending { code: 1009, reason: "a message has at most a megabyte" };
const FAILED: Ending = Ending { code: 1011, reason: "the last message says what failed" };
/// Resume with another server.
const RESTART: Ending = Ending { code: 1012, reason: "the server is stopping" };

pub(crate) fn route((path, name): (&'static str, &'static str), summary: &'static str) -> Route {
    Route {
        method: Method::GET,
        path,
        name,
        summary,
        errors: &[],
        status: StatusCode::SWITCHING_PROTOCOLS,
        takes: Some("Open".into()),
        gives: "a WebSocket".into(),
        describe: |schemas| Described {
            input: Shape::default(),
            output: None,
            more: vec![
                (
                    "description",
                    json!(
                        "The first message of the client is an `Open`. After that, text messages are `ClientMessage`s and `ServerMessage`s; binary ones are input (eight bytes offset, then bytes) and output (one byte stream, eight bytes offset, then bytes), offsets little endian."
                    ),
                ),
                (
                    "x-websocket",
                    json!({
                        "first": schemas.subschema_for::<Open>().to_value(),
                        "client": schemas.subschema_for::<ClientMessage>().to_value(),
                        "server": schemas.subschema_for::<ServerMessage>().to_value(),
                    }),
                ),
            ],
        },
        handler: Arc::new(|app, request| Box::pin(upgrade(app, request))),
    }
}

async fn upgrade(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let (mut parts, _) = request.into_parts();
    if let Err(refusal) = no_query(&parts) {
        return refusal.response();
    }
    let Some(peer) = parts.extensions.remove::<Peer>() else { return Refusal::panicked().response() };
    let origin = origin(&parts);
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_message_size(MAX_READ)
            .max_frame_size(MAX_READ)
            .on_upgrade(move |socket| serve(socket, app, peer, origin)),
        Err(rejection) => Refusal::new(Kind::Invalid, "opening a stream", rejection.body_text())
            .with_status(rejection.status())
            .with_hint("this route is a WebSocket")
            .response(),
    }
}

async fn serve(socket: WebSocket, app: Arc<App>, peer: Peer, origin: Origin) {
    let (writer, mut reader) = socket.split();
    let queue = Arc::new(Queue::default());
    let mut writing = pin!(write(writer, Arc::clone(&queue)));
    let ending = {
        let mut talking = pin!(talk::talk(&mut reader, &queue, &app, &peer, origin));
        tokio::select! {
            ending = &mut talking => ending,
            () = &mut writing => {
                // Nobody reads any more. What was sent before, a kill perhaps, is still to be done.
                queue.abandon();
                let _ = tokio::time::timeout(HURRY, talking).await;
                return;
            }
        }
    };
    let Some(Ending { code, reason }) = ending else {
        // If it said goodbye, it is answered.
        queue.abandon();
        let _ = tokio::time::timeout(HURRY, writing).await;
        return;
    };
    queue.push(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
    queue.end();
    let parting = async {
        // A slow reader gets all of it; one who has gone is noticed.
        tokio::select! {
            () = &mut writing => {
                let _ = tokio::time::timeout(GOODBYE, gone(&mut reader)).await;
            }
            () = gone(&mut reader) => {
                let _ = tokio::time::timeout(HURRY, &mut writing).await;
            }
        }
    };
    let hurry = async {
        app.life.reached(Phase::Stopping).await;
        tokio::time::sleep(HURRY).await;
    };
    tokio::select! {
        () = parting => {}
        () = hurry => {}
    }
}

/// Writes until the last message, or until nobody is there to read it.
async fn write(mut writer: SplitSink<WebSocket, Message>, queue: Arc<Queue>) {
    while let Some(message) = queue.next().await {
        let mut next = Some(message);
        while let Some(message) = next {
            if writer.feed(message).await.is_err() {
                return;
            }
            next = queue.now();
        }
        if writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.flush().await;
}

/// Returns when the client has closed the connection.
async fn gone(reader: &mut SplitStream<WebSocket>) {
    while let Some(Ok(_)) = reader.next().await {}
}
