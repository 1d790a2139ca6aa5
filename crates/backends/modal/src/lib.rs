//! The Modal backend: one sandbox a task, with an outpost in it.
//!
//! # From a spec to a stream
//! 1. [`client`] speaks with Modal, as the user whose token is in the environment, in `.env` or in `~/.modal.toml`.
//! 2. `ensure` finds the task's sandbox, or makes one that goes on from where the last one was. It never makes a second
//!    one, and never begins anew in silence.
//! 3. `place` starts a process in it, which connects to the outpost (`stream`); the outpost is put there first if it is not
//!    there (`install`). A command is one write and one piece of an answer that never ends.
//!
//! # Who pays
//! A sandbox costs as long as it runs, and Modal ends it when nothing has run in it for `modal_idle_timeout`. A connection
//! counts as something that runs: one that nobody uses is closed after a few seconds, unless a command runs. If Farshell is
//! gone, its connections end by themselves. Whatever ends a sandbox, Modal keeps its files in a snapshot.
//!
//! | file | owns |
//! |---|---|
//! | `config.rs`, `tags.rs` | settings; what a sandbox is called, whose it is, and what is asked for |
//! | `client/` | Modal's protocol |
//! | `account.rs` | what all of the following need |
//! | `ensure.rs`, `save.rs` | sandboxes made, restored, put away and removed |
//! | `state.rs`, `snapshots.rs` | what is known of them, in our own file and in Hermes' |
//! | `install.rs`, `credentials.rs` | the outpost in the sandbox, and files that the user wants there |
//! | `place.rs`, `stream.rs` | a sandbox and the stream to its outpost |
//! | `survey.rs`, `check.rs`, `error.rs` | what is there, what is wrong, and what to do |

pub mod client;

mod account;
mod backend;
mod check;
mod config;
mod credentials;
mod ensure;
mod error;
mod install;
mod place;
mod save;
mod snapshots;
mod state;
mod stream;
mod survey;
mod tags;

pub use backend::Modal;
pub use config::Config;
