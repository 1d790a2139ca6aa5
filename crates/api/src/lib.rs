//! What a client and the server say to each other.
//!
//! One set of types for the server, the clients and the OpenAPI document. Requests refuse fields that they do not
//! know (a misspelt option must not be dropped in silence); answers may grow new fields within an API version.
//!
//! | module | what it is |
//! |---|---|
//! | [`run`] | commands: requests and results |
//! | [`process`] | processes, their logs, and what can be done to them |
//! | [`stream`] | the WebSocket: a process's output, input and terminal, live |
//! | [`environment`] | environments and their lives |
//! | [`approval`] | what waits for a person's answer |
//! | [`audit`] | who asked for what, and what became of it |
//! | [`mod@file`] | the files of an environment |
//! | [`mcp`] | the way of an MCP client to the tools |
//! | [`tool`] | the agent's tools |
//! | [`event`] | the durable log of what happened |
//! | [`server`] | the server itself |
//! | [`error`] | what can go wrong |
//! | [`text`] | text that may be bytes |

pub mod approval;
pub mod audit;
pub mod environment;
pub mod error;
pub mod event;
pub mod file;
pub mod mcp;
pub mod process;
pub mod run;
pub mod server;
pub mod stream;
pub mod text;
pub mod tool;

pub use error::ApiError;
pub use text::Text;

/// The version of this API. A client and a server that differ in it do not talk.
pub const API_VERSION: u32 = 1;

/// Request and answer header with the [`API_VERSION`] of the sender.
pub const VERSION_HEADER: &str = "farshell-api-version";

/// How Farshell's own program calls itself in `User-Agent`; its version follows.
pub const CLIENT_NAME: &str = "farshell/";

/// Milliseconds since the Unix epoch.
pub type Millis = u64;
