//! How a server is reached.

use super::lines::Lines;
use super::wire::Message;
use crate::Result;
use crate::client::{ANSWER, Client, other_version, refused, silent, stopping};
use crate::error::{disconnected, protocol};
use bytes::Bytes;
use farshell_api::mcp::{MCP_UPGRADE, McpOpen};
use farshell_api::{API_VERSION, ApiError, VERSION_HEADER};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

/// Pauses before another attempt, while servers stop or die as soon as they are reached.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(0),
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// Largest line of a server, which is our own.
const MAX_LINE: usize = 256 << 20;

type Io = TokioIo<Upgraded>;
pub(super) type Read = ReadHalf<Io>;
pub(super) type Write = WriteHalf<Io>;

/// A connection to a server that knows who we are.
pub(super) struct Link {
    pub(super) lines: Lines<Read>,
    pub(super) write: Write,
}

/// A greeting that was answered before: its id, its line, and the line that ended it.
pub(super) type Greeting<'a> = (Value, &'a [u8], Option<&'a [u8]>);

/// Why there is no connection.
enum Failed {
    /// The next attempt may fare better.
    Again(ApiError),
    Final(ApiError),
}

impl Link {
    /// Connects, and says again what was said to an earlier server.
    pub(super) async fn make(client: &Client, open: &McpOpen, hello: Option<Greeting<'_>>) -> Result<Self> {
        let mut pauses = PAUSES.iter();
        loop {
            let failed = match Self::attempt(client, open, hello.clone()).await {
                Ok(link) => return Ok(link),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Again(error)) => error,
            };
            match pauses.next() {
                Some(pause) => sleep(*pause).await,
                None => return Err(failed),
            }
        }
    }

    async fn attempt(
        client: &Client,
        open: &McpOpen,
        hello: Option<Greeting<'_>>,
    ) -> std::result::Result<Self, Failed> {
        let stream = client.reach().await.map_err(Failed::Final)?;
        let mut link = timeout(ANSWER, Self::upgrade(client, open, stream))
            .await
            .map_err(|_| Failed::Final(silent(client.files())))??;
        if let Some(hello) = hello {
            let greeted = timeout(ANSWER, link.greet(hello)).await;
            greeted.map_err(|_| Failed::Final(silent(client.files())))?.map_err(Failed::Again)?;
        }
        Ok(link)
    }

    async fn upgrade(
        client: &Client,
        open: &McpOpen,
        stream: tokio::net::UnixStream,
    ) -> std::result::Result<Self, Failed> {
        let again = |error: hyper::Error| Failed::Again(disconnected(error.to_string()));
        let wrong = |message: String| Failed::Final(protocol(message));
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(again)?;
        tokio::spawn(async move {
            // Whoever reads from it hears of its end.
            let _ = connection.with_upgrades().await;
        });
        let body = serde_json::to_vec(open).map_err(|error| wrong(error.to_string()))?;
        let request = Request::post("/v1/mcp")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, MCP_UPGRADE)
            .header(VERSION_HEADER, API_VERSION)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| wrong(error.to_string()))?;
        let mut response = sender.send_request(request).await.map_err(again)?;
        if let Some(other) = other_version(response.headers()) {
            return Err(Failed::Final(client.skew(other).await));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let io = hyper::upgrade::on(&mut response).await.map_err(again)?;
            let (read, write) = tokio::io::split(TokioIo::new(io));
            return Ok(Self { lines: Lines::new(read, MAX_LINE), write });
        }
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(again)?.to_bytes();
        let error = refused(head.status, &body);
        Err(if stopping(&error) { Failed::Again(error) } else { Failed::Final(error) })
    }

    /// The answer is the same as the first time, and the client has it.
    async fn greet(&mut self, (id, hello, initialized): Greeting<'_>) -> Result<()> {
        let lost = |error: std::io::Error| disconnected(error.to_string());
        self.write.write_all(hello).await.map_err(lost)?;
        self.write.flush().await.map_err(lost)?;
        loop {
            let line = self.lines.next().await.map_err(lost)?;
            let line = line.ok_or_else(|| disconnected("it was closed"))?;
            if matches!(Message::read(&line), Message::Response { id: answered } if answered == id) {
                break;
            }
        }
        if let Some(initialized) = initialized {
            self.write.write_all(initialized).await.map_err(lost)?;
            self.write.flush().await.map_err(lost)?;
        }
        Ok(())
    }

    /// Nothing more will be said; answers may still come.
    pub(super) async fn close(&mut self) {
        let _ = self.write.shutdown().await;
    }
}
