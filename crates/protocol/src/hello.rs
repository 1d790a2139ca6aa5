//! The first frame in each direction.

use serde::{Deserialize, Serialize};

/// The newest version of the messages that this build speaks.
pub const VERSION: u16 = 2;
/// The first version whose outposts know the numbers of requests ([`crate::once`]).
pub const KNOWS_ONCE: u16 = 2;
/// The oldest version that this build still speaks.
pub const OLDEST: u16 = 1;

/// Who is speaking, and what they understand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Newest message version the sender speaks.
    pub version: u16,
    /// Oldest one.
    pub oldest: u16,
    /// The sender's release, for error texts.
    pub release: String,
    /// What an outpost is, absent when the engine speaks.
    #[serde(default)]
    pub outpost: Option<OutpostIdentity>,
}

/// What makes an outpost the one it was before. If `instance` changed, everything it knew is gone; if
/// `boot` changed too, the machine under it was restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutpostIdentity {
    /// Random, chosen when the daemon starts.
    pub instance: String,
    /// The kernel's boot id, empty where it can't be read.
    pub boot: String,
    pub pid: u32,
    /// What its binary was installed as: the beginning of its SHA-256 in hex, where a backend installed it.
    pub build: String,
    pub hostname: String,
}

impl Hello {
    /// An engine's hello.
    #[must_use]
    pub fn engine() -> Self {
        Self { version: VERSION, oldest: OLDEST, release: env!("CARGO_PKG_VERSION").into(), outpost: None }
    }

    /// An outpost's hello.
    #[must_use]
    pub fn outpost(identity: OutpostIdentity) -> Self {
        Self { outpost: Some(identity), ..Self::engine() }
    }

    /// The version both sides will use.
    ///
    /// # Errors
    /// There is none.
    pub fn agree(&self, peer: &Self) -> Result<u16, NoCommonVersion> {
        let version = self.version.min(peer.version);
        if version >= self.oldest.max(peer.oldest) {
            return Ok(version);
        }
        Err(NoCommonVersion {
            ours: (self.oldest, self.version),
            theirs: (peer.oldest, peer.version),
            release: crate::excerpt(peer.release.as_bytes()),
        })
    }
}

/// The two sides are too far apart in age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCommonVersion {
    pub ours: (u16, u16),
    pub theirs: (u16, u16),
    pub release: String,
}

impl std::fmt::Display for NoCommonVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no common protocol version: this side speaks {}-{}, the other (release {}) {}-{}",
            self.ours.0, self.ours.1, self.release, self.theirs.0, self.theirs.1
        )
    }
}

impl std::error::Error for NoCommonVersion {}
