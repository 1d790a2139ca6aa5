//! Environments and their lives.
//!
//! | module | what it is |
//! |---|---|
//! | [`backend`] | the two traits behind which every kind of place stands, and what they promise |
//! | [`client`] | the one client of the outpost: calls, streams, reconnection, resumption |
//! | [`environment`] | a task's place with its outpost and its settings |
//! | [`lock`], [`random`] | one at a time among all processes of a home; names that nobody else has |
//! | [`credentials`] | files of the user's that a place gets |
//! | [`machine`] | which machine this is, for notes |
//! | [`owner`] | whose things they are in a place that others use too |
//! | [`shared`] | a socket in a directory that a hostile container shares |
//! | [`capture`] | output collected within bounds |
//! | [`error`] | what can go wrong, for programs and for people |

pub mod backend;
pub mod capture;
pub mod client;
pub mod credentials;
pub mod environment;
pub mod error;
pub mod lock;
pub mod machine;
pub mod owner;
pub mod random;
pub mod shared;
mod socket;

pub use backend::{Backend, ByteStream, Capabilities, Identity, Place, Spec, TaskName};
pub use client::Outpost;
pub use environment::{Environment, RunOptions};
pub use error::{Error, Kind, Result, Retry};
