//! The server: everything that can be asked of a keeper, over HTTP and WebSocket, and the life of the process that
//! does it.
//!
//! A home has one server: the one that holds its lock. It listens on a Unix socket that only its owner can reach, and
//! on TCP if it is told to, where a token is needed. It ends when it is told to or when it has nothing to do; what
//! runs in the places goes on without it, and the next server takes over. Being killed does no harm either.
//!
//! | file | question |
//! |---|---|
//! | `serve.rs`, `life.rs`, `watch.rs` | how does it start, when does it end, and what happens then? |
//! | `paths.rs`, `lock.rs`, `socket.rs`, `token.rs`, `tls.rs` | where does it listen, and to whom? |
//! | `connection.rs`, `gate.rs` | who may ask, and in which version? |
//! | `routes.rs` | what can be asked? The one table behind the router and the document |
//! | `route.rs`, `input.rs`, `refusal.rs` | how is a request read, done and answered? |
//! | `openapi.rs` | how is that described? |
//! | `stream/` | a process's output, input and terminal, live |
//! | `mcp.rs` | how do MCP clients come to the tools? |
//! | `log.rs` | what has it to say about itself? |

mod app;
mod connection;
mod files;
mod gate;
mod input;
mod life;
mod lock;
mod log;
mod mcp;
mod openapi;
mod paths;
mod refusal;
mod route;
mod routes;
mod serve;
mod socket;
mod stream;
mod tls;
mod token;
mod tools;
mod watch;

pub use openapi::{markdown_table, openapi};
pub use paths::{Paths, paths};
pub use serve::{ServeOptions, runtime, serve};
pub use tls::Tls;
