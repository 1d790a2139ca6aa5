//! The local backend: commands run on this machine, as this user.
//!
//! The place is the machine itself; each task has an outpost of its own there, in a private directory under
//! Farshell's home. Nothing is isolated: a command can do what its user can.

mod backend;
mod config;
mod install;
mod place;
mod survey;

pub use backend::Local;
pub use config::Config;
pub use place::run_dir;
