//! All tools on the real local backend: real outposts, real shells, real files.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

mod catalogue;
mod code;
mod crash;
mod patch;
mod process;
mod read;
mod rig;
mod search;
mod terminal;
mod write;
