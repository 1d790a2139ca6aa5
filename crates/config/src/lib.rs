//! Settings: where they come from, what they mean, and how they are changed.
//!
//! # From files to settings
//! 1. [`Context`] says where to look: the Hermes home, the process environment, and what the caller gives for this
//!    run. [`Context::from_process`] is the only place that reads the real environment.
//! 2. [`Config::load`] reads `config.yaml` ([`yaml`]) and `.env` ([`dotenv`]).
//! 3. [`Config::resolve`] asks every layer about every setting of the [`table`], understands the answers by their
//!    [`kind`], judges them together, and makes [`Settings`].
//!
//! Precedence: the caller > process environment > `config.yaml` > `.env` > default. Settings of a backend that isn't
//! selected can't stand in the way of the one that is.
//!
//! # Which file owns what
//! | module | question |
//! |---|---|
//! | [`table`] | which settings are there? |
//! | [`kind`], [`choice`], [`value`], [`volume`] | what may a value be? |
//! | [`config`], [`home`], [`source`] | what does each layer say? |
//! | [`resolve`], [`settings`] | what does it come to? |
//! | [`explain`] | why? (`get`, `list`, `explain`, `path`) |
//! | [`change`] | make it so (`set`, `unset`) |
//! | [`error`] | what is wrong, and what to do |
//!
//! # What cannot be known
//! A program that writes these files without taking the lock can still be overtaken in the moment between the last
//! look and the rename. The file is whole in either case; the older of the two changes is lost.

pub mod change;
pub mod choice;
pub mod config;
mod directory;
pub mod docs;
pub mod dotenv;
pub mod error;
mod expand;
pub mod explain;
mod files;
pub mod home;
mod key;
pub mod kind;
pub mod resolve;
pub mod settings;
pub mod source;
pub mod suggest;
pub mod table;
pub mod value;
pub mod volume;
pub mod yaml;

pub use change::{Change, Note, add, set, unset};
pub use choice::BackendKind;
pub use config::{Config, Context};
pub use docs::markdown_table;
pub use error::{EditError, InvalidSettings, LoadError, Problem, UnknownKey, Warning};
pub use explain::{Answer, Entry, Explanation, Paths, Step};
pub use home::HermesHome;
pub use resolve::Resolved;
pub use settings::{Backend, Settings};
pub use source::Source;
