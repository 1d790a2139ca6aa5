//! Instances as jobs of a real Slurm, which `scripts/test slurm` starts and names in `FARSHELL_TEST_SLURM`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../singularity/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

mod cluster;
mod ends;
mod life;
mod queue;
