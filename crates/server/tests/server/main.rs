//! The server as its callers meet it: a process of its own, with the local backend behind it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't set up its world fails by saying so"
)]

mod api;
mod document;
mod files;
mod life;
mod rig;
mod streams;
mod tcp;
