//! The Modal backend on an emulated Modal, which `scripts/test modal` builds and names in `FARSHELL_TEST_MODAL_BIN`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod credentials;
mod faults;
mod gpu;
mod latency;
mod life;
mod rig;
mod safe;
mod sleep;
mod storm;
