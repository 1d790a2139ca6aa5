//! Flow control: each call has a budget of data bytes that the receiver grants to the sender.

/// What a sender may have under way in a call before the first grant arrives, in either direction.
pub const INITIAL_CREDIT: u64 = 1 << 20;

/// The sender's side of a call's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit(u64);

impl Default for Credit {
    fn default() -> Self {
        Self(INITIAL_CREDIT)
    }
}

impl Credit {
    /// Bytes that may be sent now.
    #[must_use]
    pub fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Bytes were sent.
    pub fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes as u64);
    }

    /// The receiver granted more. A peer that grants absurd amounts only lifts its own protection.
    pub fn grant(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes);
    }
}

/// The receiver's side: counts what was consumed and says when a grant is worth a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    consumed: u64,
}

impl Window {
    /// `bytes` have left the receiver's hands. Gives the grant to send, once half a window is used up.
    #[must_use]
    pub fn consume(&mut self, bytes: usize) -> Option<u64> {
        self.consumed = self.consumed.saturating_add(bytes as u64);
        if self.consumed < INITIAL_CREDIT / 2 {
            return None;
        }
        Some(std::mem::take(&mut self.consumed))
    }
}

/// Payload of a [`crate::Kind::Credit`] frame.
#[must_use]
pub fn encode_credit(bytes: u64) -> [u8; 8] {
    bytes.to_le_bytes()
}

/// Reads the payload of a [`crate::Kind::Credit`] frame; `None` if it is malformed.
#[must_use]
pub fn decode_credit(payload: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(payload.try_into().ok()?))
}
