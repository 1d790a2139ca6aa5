//! The Modal backend on an emulated Modal, which `scripts/test modal` builds and names in `FARSHELL_TEST_MODAL_BIN`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod faults;
mod latency;
mod life;
mod rig;
mod sleep;
mod storm;
