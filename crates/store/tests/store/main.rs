//! The store, on real files.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]
#![expect(clippy::print_stdout, reason = "a test says what it measured, or why it was skipped")]

mod common;
mod damage;
mod disk;
mod kill;
mod life;
mod model;
mod records;
