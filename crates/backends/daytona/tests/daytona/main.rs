//! The Daytona backend on an emulated Daytona, which `scripts/test daytona` builds and names in `FARSHELL_TEST_DAYTONA_BIN`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod client;
mod faults;
mod latency;
mod life;
mod rig;
mod slower;
mod states;
mod storm;
