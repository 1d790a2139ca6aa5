//! The Daytona backend: one sandbox a task, with an outpost in it.
//!
//! # From a spec to a stream
//! 1. [`client`] speaks with Daytona, as the user whose key is in the environment or in `.env`.
//! 2. `ensure` finds the task's sandbox by its name, or makes it, and brings it from any of its states to the one in
//!    which it runs. It never makes a second one: names are unique, and a question that was not answered is no answer.
//! 3. `install` puts the outpost into it, once.
//! 4. `place` opens a terminal in it (`terminal`), and has its shell give way to `outpost connect --text`. From then on the
//!    terminal's websocket carries the stream in lines of text: one message each way for a command. Where no websocket comes
//!    through, single commands carry it (`exchange`).
//!
//! # Who stops it
//! Whoever is connected keeps the sandbox awake. An environment that nobody uses is put away by Farshell, which stops the
//! sandbox; if Farshell is gone, Daytona stops it after `daytona_auto_stop_minutes`.
//!
//! | file | owns |
//! |---|---|
//! | `config.rs`, `labels.rs` | settings; what a sandbox is called, and whose it is |
//! | `client/` | Daytona's API |
//! | `ensure.rs`, `steps.rs` | states, and what to do in each |
//! | `install.rs` | the outpost in the sandbox |
//! | `place.rs`, `terminal.rs`, `exchange.rs` | a sandbox and the stream to its outpost, the usual way and the slower one |
//! | `survey.rs`, `check.rs`, `error.rs` | what is there, what is wrong, and what to do |

pub mod client;

mod backend;
mod check;
mod config;
mod ensure;
mod error;
mod exchange;
mod install;
mod labels;
mod place;
mod steps;
mod survey;
mod terminal;

pub use backend::Daytona;
pub use config::Config;
