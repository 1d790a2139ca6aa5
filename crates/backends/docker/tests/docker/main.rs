//! The Docker backend on a real engine, which `scripts/test docker` starts and names in `FARSHELL_TEST_DOCKER`.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "tests")]

mod disks;
mod engines;
mod faults;
mod files;
mod hardening;
mod hostile;
mod life;
mod limits;
mod over_ssh;
mod own;
mod pulls;
mod rig;
