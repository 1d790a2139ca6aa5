//! Instances as Slurm jobs: one batch job a task, and a stream through `srun`.
//!
//! # From a spec to a stream
//! 1. `bring_up` looks, under the task's lock, for the job that its note names. If it is over, or there is none, one is
//!    handed in (`submit`): `sbatch` with a script that runs `apptainer exec` as on this machine.
//! 2. The lock is free again while the job waits in the queue (`waiting`), which may take days. Whoever waits is told, and
//!    when nobody does any more, the job is taken back.
//! 3. `stream` opens the stream: `srun --overlap` starts the outpost's bridge beside the instance.
//! 4. The job is over when the outpost is: when its lease has run out, or somebody cancels it.
//!
//! # Never two jobs for one task
//! A job's mark is random, and noted before it is handed in. If it can't be told whether `sbatch` got through, the mark is
//! looked for in the queue. A job that turns up later all the same compares its mark with the note, and ends.
//!
//! # What can't be known
//! Without accounting, Slurm does not say who cancelled a job, and forgets how one ended after some minutes; what it
//! wrote into the job's log is then all there is. A node that does not answer is waited for until Slurm gives it up.
//!
//! | file | owns |
//! |---|---|
//! | `options.rs` | what is asked for, and which further options are taken |
//! | `control.rs` | running Slurm's programs, and what it means when they fail |
//! | `job.rs` | what Slurm says of a job, in words |
//! | `script.rs` | what a job does |
//! | `submit.rs`, `waiting.rs` | handing a job in, and its time in the queue |
//! | `bring_up.rs`, `place.rs`, `stream.rs` | a job as a place |

mod bring_up;
mod check;
mod control;
mod job;
mod options;
mod place;
mod script;
mod stream;
mod submit;
mod waiting;

pub(crate) use bring_up::{alive, bring_up, end, find, living};
pub(crate) use check::findings;
pub(crate) use options::Options;
