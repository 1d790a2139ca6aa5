//! The agent's tools over the Model Context Protocol.
//!
//! The protocol is spoken inside the server's process: by HTTP ([`Mcp::http`]), and on a byte stream that carries one
//! JSON message a line ([`Mcp::serve`]), which is what `farshell mcp` connects a client's pipes to.
//!
//! # The way of a call
//! 1. The tool works in a task of its own (`running`), in the name of the client.
//! 2. Whoever waits for it (`attend`) tells the client how it goes, asks it for approvals, and hears if the client
//!    has had enough of it or has gone: then the call is cancelled, and nothing else.
//! 3. A server that stops lets go of calls that are not done soon. It kills nothing.
//!
//! # Two protocols
//! Until 2025-11-25 a client says hello, and the server may ask it something in the middle of a call. Since
//! 2026-07-28 every request stands alone: a call that needs an answer ends with the question, and comes again with
//! the answer. In between it is kept here (`suspended`).
//!
//! | file | question |
//! |---|---|
//! | `handler.rs` | what does a client see? |
//! | `running.rs`, `attend.rs` | how is a tool called, and who waits for it? |
//! | `ask.rs`, `suspended.rs` | how is a person asked? |
//! | `resources.rs` | what did processes print? |
//! | `http.rs`, `presence.rs` | requests by HTTP, and whether their client is still there |

mod ask;
mod attend;
mod handler;
mod http;
mod presence;
mod resources;
mod running;
mod suspended;

use farshell_api::mcp::McpOpen;
use farshell_engine::backend::BoxFuture;
use farshell_keeper::Keeper;
use farshell_tools::Tools;
use handler::Handler;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Largest message: a file that is written comes in one.
pub const MAX_MESSAGE: usize = 16 << 20;
/// How long calls may go on when the server stops, before they are let go of. Less than the server waits itself.
const GRACE: Duration = Duration::from_secs(3);

/// What the process that this is part of knows of its own life.
pub trait House: Send + Sync + Debug {
    /// There is something to do for as long as this lives.
    fn busy(&self) -> Box<dyn Send + Sync>;

    /// Returns when the server stops.
    fn stopping(&self) -> BoxFuture<'_, ()>;
}

/// Serves the tools of one server to any number of clients.
#[derive(Clone)]
pub struct Mcp {
    shared: Arc<Shared>,
    http: http::Service,
}

impl Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mcp").field(&self.shared).finish()
    }
}

/// What all clients share.
#[derive(Debug)]
struct Shared {
    tools: Tools,
    keeper: Keeper,
    house: Arc<dyn House>,
    /// The release.
    version: String,
    suspended: suspended::Suspended,
    presence: presence::Presence,
    /// Calls that somebody waits for.
    open: watch::Sender<usize>,
    /// The server stops, and calls have had their time.
    closing: CancellationToken,
}

impl Mcp {
    /// Within a runtime: it watches over the house.
    #[must_use]
    pub fn new(tools: Tools, keeper: Keeper, house: Arc<dyn House>, version: String) -> Self {
        let shared = Arc::new(Shared {
            tools,
            keeper,
            house,
            version,
            suspended: suspended::Suspended::default(),
            presence: presence::Presence::default(),
            open: watch::Sender::new(0),
            closing: CancellationToken::new(),
        });
        tokio::spawn(Arc::clone(&shared).close());
        Self { http: http::service(&shared), shared }
    }

    /// Talks to one client until it goes, or the server stops. A client that goes takes its calls with it.
    pub async fn serve<I>(&self, io: I, open: McpOpen)
    where
        I: AsyncRead + AsyncWrite + Send + 'static,
    {
        let closing = self.shared.closing.clone();
        let gone = CancellationToken::new();
        let _gone = gone.clone().drop_guard();
        let handler = Handler::of_stream(Arc::clone(&self.shared), open, gone);
        let (read, write) = tokio::io::split(io);
        let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE);
        let greeted = tokio::select! {
            greeted = rmcp::serve_server(handler, transport) => greeted,
            () = closing.cancelled() => return,
        };
        // One that does not speak the protocol has been told so, or has gone.
        let Ok(service) = greeted else { return };
        let stop = service.cancellation_token();
        let mut waiting = std::pin::pin!(service.waiting());
        tokio::select! {
            _ = &mut waiting => {}
            () = closing.cancelled() => {
                stop.cancel();
                let _ = waiting.await;
            }
        }
    }
}

impl Shared {
    /// When the server stops, connections end as soon as nobody waits for anything.
    async fn close(self: Arc<Self>) {
        self.house.stopping().await;
        let mut open = self.open.subscribe();
        let quiet = open.wait_for(|open| *open == 0);
        // Calls are let go of after the same time, and their clients told; that takes a moment.
        let _ = tokio::time::timeout(GRACE + GRACE / 4, quiet).await;
        self.closing.cancel();
    }

    /// Returns when a call that is not done by now has to be let go of.
    async fn hurried(&self) {
        self.house.stopping().await;
        tokio::time::sleep(GRACE).await;
    }
}
