//! One list of behaviours, run against every backend.
//!
//! | file | what it is |
//! |---|---|
//! | `subject.rs` | the backends under test, one line each; what a backend tells about itself |
//! | `case.rs` | what a case is, and how it fails |
//! | `env.rs` | what a case works with: an environment of its own and short ways to use it |
//! | `runner.rs` | subjects × cases, the life of one case, and the search for what it left behind |
//! | `survivors.rs` | processes of a case that are still there |
//! | `sinks.rs` | takers of output that check it as it comes |
//! | `helper.rs` | this program as a client that gets killed |
//! | `cases/` | the behaviours, by theme |
//!
//! # How a backend joins
//! It implements [`Subject`] (a name, a probe, a backend) and adds itself to [`subjects`].
//!
//! # How a case joins
//! It is an `async fn(&Env) -> Done` in a file of `cases/`, named in that file's list.
//!
//! # Choosing
//! `FARSHELL_CONFORMANCE=local,docker` chooses backends; a filter on the name (`live::kill`) chooses cases.
//! A backend whose components are not here is skipped with the reason, and fails where `CI` is set.

mod case;
mod cases;
mod env;
mod helper;
mod runner;
mod sinks;
mod subject;
mod survivors;

pub use case::{Done, Failure};
pub use env::Env;
pub use runner::main;
pub use subject::{Subject, subjects};
