//! The server's durable state: environments, background processes and events, in `state.db`, an SQLite database.
//!
//! All work is done by one thread; a [`Store`] is a handle that sends it requests and waits without blocking the
//! runtime. A request that was sent is carried out even if nobody waits for its answer any more.
//!
//! # What is promised
//!
//! - What was answered is there after the death of the process (`kill -9`) at any moment. After a power cut the last
//!   transactions may be missing, but whole ones, and the last ones only (`synchronous=NORMAL`).
//! - A transaction is whole or absent. One that fails, for want of room say, changes nothing, and the next one works
//!   as soon as there is room.
//! - A process completes once: its end and its one [`ProcessCompleted`] event are one transaction, and a unique index
//!   stands behind it.
//! - Event numbers only grow and are never used again, also not after the events are pruned. They have no holes,
//!   but one where a damaged database or log cost events whose numbers are not known: then they go on far above.
//! - Nothing is deleted that could not be read: see [`Store::open`].
//!
//! What is not: that the clock is right. Times come from the caller and are only kept.
//!
//! # The tables
//!
//! | table | row | columns |
//! |---|---|---|
//! | `environments` | an environment | `key`, `backend`, `place_task`, `tasks` (JSON), `state`, `spec` (JSON), `spec_hash`, `place` (JSON), `instance`, `created_at`, `last_used_at`, `lifetime_seconds`, `note`, `settings` (JSON) |
//! | `processes` | a background process | `ordinal`, `id` (unique), `task`, `completed` (the number of its completion event), `instance`, `watch_offset`, `watch_state` (JSON), `detail` (JSON), `process` (JSON) |
//! | `events` | something that happened | `seq` (never used again), `at`, `kind`, `task`, `process_id`, `environment`, `data` (JSON); at most one `process_completed` for each `process_id` |
//! | `consumers` | who has seen which events | `name`, `seq` |
//!
//! `PRAGMA user_version` is the version of this schema. While a store is open the database is locked for everybody
//! else (`locking_mode=EXCLUSIVE`, which also spares the shared-memory file), and `state.db.lock` is held, so that of
//! two that find a corrupt database only one moves it aside.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `open.rs` | opening, checking, moving aside |
//! | `schema.rs` | the tables, version by version |
//! | `thread.rs` | the one thread, and the handle's way to it |
//! | `environments.rs`, `processes.rs`, `events.rs` | requests |
//! | `value.rs` | values on their way into columns and back |
//! | `error.rs` | what can go wrong |
//!
//! [`ProcessCompleted`]: farshell_api::event::EventKind::ProcessCompleted

mod environments;
mod error;
mod events;
mod open;
mod processes;
mod schema;
mod thread;
mod value;

pub use environments::EnvironmentRow;
pub use error::{Error, Kind, Result};
pub use events::NewEvent;
pub use processes::{Completion, Insert, ProcessRow, Running, finished};
pub use thread::{Keep, Pruned, Store};
