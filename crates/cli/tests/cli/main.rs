//! The program as a user meets it: what it prints, where, and its exit code.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

mod approvals;
mod background;
mod config;
mod cp;
mod doctor;
mod help;
mod json;
mod mcp;
mod rig;
mod run;
mod server;
mod shells;
mod signals;
mod terminals;
mod tools;
