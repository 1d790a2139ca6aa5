//! The SSH backend: commands run on a host that the user's own `ssh` reaches.
//!
//! # From a spec to a stream
//! 1. `client` runs `ssh` with the user's configuration, keys, agent and known hosts, and with what `options` adds.
//! 2. `link` keeps one connection to the host: a master of our own, behind a socket in a private directory
//!    (`room`). It ends by itself five minutes after its last use, and outlives this process until then.
//! 3. `session` runs a script (`script`) on the host, whatever the login shell is and whatever that prints.
//! 4. `host` learns with it which machine this is, puts the outpost there if it is not (`upload`), and starts it.
//! 5. `place` opens the stream: the connection carries a local socket to the outpost's socket. Nothing of ours runs
//!    in between, and `MaxSessions` does not count it. A host that forbids this gets a session that runs
//!    `outpost connect` (`stream`).
//!
//! # What is shared, and with whom
//! All tasks of one home that have the same settings share the connection: a hundred tasks are one login. No task
//! closes it, and nobody else's `ssh` uses it. Where a host allows too few sessions for what needs one, further
//! connections are made.
//!
//! # What can't be known
//! A host that is slow and one that is gone look alike for up to 24 seconds; then the connection counts as lost.
//! Which of several machines behind one name answers is seen by its machine id; machines that were copied together
//! with it are told apart by their host keys only, which is the business of `ssh`.
//!
//! | file | owns |
//! |---|---|
//! | `config.rs`, `options.rs`, `room.rs` | settings, what they mean to `ssh`, and where its sockets are |
//! | `client.rs`, `error.rs` | running `ssh`, and what it means when it fails |
//! | `link.rs`, `links.rs` | connections, and forwarded sockets |
//! | `attempts.rs` | what one does for all who want it |
//! | `callers.rs` | whose variables, and so whose agent, a login uses |
//! | `session.rs`, `script.rs` | running something on the host |
//! | `host.rs`, `upload.rs` | the host, and the outpost on it |
//! | `place.rs`, `stream.rs`, `survey.rs` | outposts of tasks |
//! | `check.rs` | what is wrong, and what to do |

mod attempts;
mod backend;
mod callers;
mod check;
mod client;
mod config;
mod error;
mod host;
mod link;
mod links;
mod options;
mod place;
mod room;
mod script;
mod session;
mod stream;
mod survey;
mod upload;

pub use backend::Ssh;
pub use config::Config;
