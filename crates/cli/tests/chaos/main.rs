//! What nobody hopes for, again and again: the server killed at any moment, much at once, a full disk.
//!
//! With the real program. Slower than other tests, so `scripts/test chaos` runs them as a part of their own.

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

mod crowd;
mod disk;
mod killing;
