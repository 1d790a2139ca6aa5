//! Modal's API served on this machine: the control plane of both kinds of sandbox, the command router, and real processes
//! in a private root per sandbox. For tests of clients, ours and Modal's own.
//!
//! # From a call to a process
//! 1. `serve` accepts connections: gRPC on one port for the control plane, on another for the router (with TLS or
//!    without), and plain HTTP on a third for [`faults`] and what tests ask (`switches`).
//! 2. `calls` is what all calls have in common: tokens, idempotency keys, faults, the count, and the answer to calls that
//!    are not served. `jwt` signs and checks.
//! 3. `client` is the control plane, `router` the command router. What they know is in `world`: `images` with their
//!    `layers`, and `sandbox`es, each with a task that leads its life (`life`).
//! 4. A sandbox that runs is a process namespace (`root`) on overlays. This same program is its first process (`inside`),
//!    which starts others when it is asked to (`wire`); their input and output are the emulator's (`process`, `log`).
//!
//! What it does not do is in the README beside this crate.

pub mod faults;
pub mod inside;
pub mod options;
pub mod serve;

mod build;
mod calls;
mod cgroup;
mod client;
mod copy;
mod delay;
mod files;
mod ids;
mod images;
mod jwt;
mod layers;
mod life;
mod log;
mod process;
mod refuse;
mod root;
mod router;
mod sandbox;
mod switches;
mod wire;
mod world;
