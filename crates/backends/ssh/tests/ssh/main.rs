//! The SSH backend on real hosts, which `scripts/test ssh` starts and names in `FARSHELL_TEST_SSH…`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod accounts;
mod errors;
mod faults;
mod hostile;
mod life;
mod rig;
mod uploads;
