//! The way to the server.
//!
//! A [`Client`] finds the server of a home, or starts it; calls it; and survives its death: the next call finds or
//! starts another. A [`Streaming`] follows one process. When its connection is lost, it goes on at the byte where it
//! was, with whatever server answers then.
//!
//! | module | what it is |
//! |---|---|
//! | [`home`] | where the server's files are |
//! | [`connect`] | one connection to its socket |
//! | [`start`] | starting a server if there is none |
//! | [`client`] | the handle, and the HTTP call |
//! | [`calls`] | one method for each route |
//! | [`files`] | the files of an environment, many calls at once |
//! | [`stream`] | a process's output, input and terminal, live |
//! | [`bridge`] | an MCP client's pipes, connected to the server |
//! | [`error`] | what can go wrong |
//!
//! # What cannot be known
//! A server that is stopped and one that is busy look alike: both are given [`client::QUIET`] and
//! [`client::ANSWER`]. If a server dies after it was asked for something that may not be asked for twice, and
//! before it answered, the error is `unknown_outcome`.

mod body;
pub mod bridge;
pub mod calls;
pub mod client;
pub mod connect;
pub mod error;
pub mod files;
pub mod home;
pub mod start;
pub mod stream;

pub use client::Client;
pub use error::Result;
pub use farshell_api::ApiError;
pub use start::Starter;
pub use stream::{Control, Output, Streaming, Update};

/// A new id for a process: the caller chooses it, so that a repeated request never runs a command twice.
#[must_use]
pub fn new_process_id() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // Without randomness the clock and the process number must do.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mixed = (now.as_nanos() as u64).rotate_left(20) ^ u64::from(std::process::id()) << 40;
        bytes = mixed.to_le_bytes();
    }
    bytes.iter().fold("proc_".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
