//! The Docker backend: one hardened container a task, with the outpost as its only program.
//!
//! # From a spec to a stream
//! 1. `endpoint` says which engine is meant: `DOCKER_HOST`, a context, or a socket in one of the usual places.
//! 2. `dial` connects to it, and `engine` speaks the Engine API with it.
//! 3. `backend` finds the task's container by name and labels, or makes it from what `create` describes. The
//!    image is pulled by `pull` if it is not there.
//! 4. `place` opens the stream to the outpost: a Unix socket in a directory shared with the container where the
//!    engine is on this machine, and one exec (`stream`) elsewhere.
//!
//! No command goes through the engine: it is asked when a container is made, found, put away or removed.
//!
//! | file | owns |
//! |---|---|
//! | `endpoint.rs`, `contexts.rs` | which engine |
//! | `dial.rs`, `tls.rs`, `engine.rs`, `error.rs` | the way to it, and what it means when it fails |
//! | `create.rs`, `extra.rs` | what a container is made of |
//! | `layout.rs`, `install.rs`, `archive.rs` | files: names, private directories, the outpost |
//! | `pull.rs`, `registry.rs` | images |
//! | `place.rs`, `stream.rs` | a container and the stream to its outpost |
//! | `survey.rs`, `describe.rs` | containers that are there, and what is said about them |
//! | `kept.rs` | files that outlive them |
//! | `check.rs` | what is wrong, and what to do |

mod archive;
mod backend;
mod check;
mod config;
mod contexts;
mod create;
mod describe;
mod dial;
mod endpoint;
mod engine;
mod error;
mod extra;
mod install;
mod kept;
mod layout;
mod place;
mod pull;
mod registry;
mod stream;
mod survey;
mod tls;

pub use backend::Docker;
pub use config::Config;
