//! The program on a real Docker engine, as a user meets it.
//!
//! The engine is the one that `FARSHELL_TEST_DOCKER` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

mod copies;
mod faults;
mod life;
mod pulls;
mod secrets;
mod tools;
mod world;
