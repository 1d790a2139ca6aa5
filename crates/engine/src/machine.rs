//! Which machine this is, for notes that others may read on another one, or after it was started again.

use serde::{Deserialize, Serialize};

/// A machine from one start to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub host: String,
    /// The kernel's number of this start.
    pub boot: String,
}

impl Machine {
    #[must_use]
    pub fn this() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { host, boot: boot.trim().to_owned() }
    }
}
