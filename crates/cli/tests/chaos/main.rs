//! What nobody hopes for, again and again: the server killed at any moment, much at once, a full disk.
//!
//! With the real program. Slower than other tests, so `scripts/test chaos` runs them as a part of their own.

#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]
#![expect(clippy::print_stderr, reason = "what is skipped is said")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

mod crowd;
mod disk;
mod killing;
