//! The Singularity backend on a real Apptainer, which `scripts/test singularity` brings here and names in
//! `FARSHELL_TEST_APPTAINER`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod containment;
mod faults;
mod files;
mod images;
mod life;
mod limits;
mod rig;
