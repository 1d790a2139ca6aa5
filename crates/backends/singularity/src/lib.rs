//! The Singularity backend: one Apptainer or Singularity container a task, as an ordinary user, with the outpost as its
//! only program.
//!
//! # From a spec to a stream
//! 1. `program` finds `apptainer` or `singularity` and learns its version.
//! 2. `image` turns `singularity_image` into a file or directory of this machine: a registry's image is built once.
//! 3. `backend` finds the task's instance by the note (`state`) in its private directory, or makes it.
//! 4. `start` starts it: `apptainer exec` with the arguments of `arguments`, whose program is the outpost. The
//!    processes that this makes are noted, so that they can be told from all others (`processes`).
//! 5. `place` opens the stream: the outpost's Unix socket, in a directory that is shared with the instance.
//!
//! With `singularity_slurm` the same instance is a batch job: see `slurm/mod.rs`.
//!
//! No command goes through `apptainer`: it is asked when an instance starts.
//!
//! # What can't be known
//! An instance on another machine that shares the home can't be seen from here. Its note says where it was started, and
//! it is left alone.
//!
//! | file | owns |
//! |---|---|
//! | `config.rs`, `extra.rs` | settings, and which further arguments are taken |
//! | `program.rs`, `error.rs` | running the program, and what it means when it fails |
//! | `image.rs` | images, and the cache of those that were built |
//! | `layout.rs`, `lock.rs`, `install.rs` | files: names, private directories, who may change them, the outpost |
//! | `arguments.rs`, `start.rs`, `limits.rs` | what an instance is made of, its start, how limits hold in it |
//! | `state.rs`, `processes.rs` | what is noted about an instance, and its processes |
//! | `place.rs`, `socket.rs` | an instance and the stream to its outpost |
//! | `survey.rs` | instances that are there |
//! | `slurm/` | instances as batch jobs, on other machines |
//! | `check.rs` | what is wrong, and what to do |

mod arguments;
mod backend;
mod check;
mod config;
mod error;
mod extra;
mod image;
mod install;
mod layout;
mod limits;
mod place;
mod processes;
mod program;
mod slurm;
mod socket;
mod start;
mod state;
mod survey;

pub use backend::Singularity;
pub use config::Config;
