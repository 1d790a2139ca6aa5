//! Side-by-side benchmarks: the limit of the machine, ours, and a peer's, sampled in turn in one run.
//!
//! - [`stats`] takes one sample of every case in each round and says what came out. It knows no case.
//! - [`limits`] is the least that each thing costs: a bare bash, a bare pipe, a bare fork.
//! - [`ours`] and [`program`] are Farshell as a library and as a program, [`hermes`] is a peer.
//! - [`tools`] are the agent's tools, beside the API below them and beside ripgrep.
//! - [`ssh`] is Farshell on a host, beside a bare shell there.
//! - [`singularity`] is Farshell in instances of Apptainer, beside Apptainer by hand.
//! - [`docker`] is Farshell in containers, [`engine_api`] is what the engine itself costs there.
//! - [`contained`] is an environment with what it leaves, for both.
//!
//! What counts is the ratio of two columns of one run. Absolute times belong to the machine and its load.

pub mod contained;
pub mod docker;
pub mod engine_api;
pub mod hermes;
pub mod limits;
pub mod ours;
pub mod program;
pub mod singularity;
pub mod ssh;
pub mod stats;
pub mod tools;
