//! Settings from the outside: real files in a directory of the test's own, and an environment of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod docs;
mod mistakes;
mod resolve;
mod world;
