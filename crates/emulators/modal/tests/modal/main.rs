//! The emulator, asked by a client made of the same interface. Each item of what Modal does is a test. Root only: sandboxes
//! have roots of their own.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod calls;
mod end;
mod exec;
mod faults;
mod life;
mod lists;
mod rig;
mod snapshots;
mod stdin;
