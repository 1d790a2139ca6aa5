//! Names that nobody else has, and pauses that nobody else makes.

use std::time::Duration;

/// Random digits in hex, two a byte.
#[must_use]
pub fn hex(bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let _ = getrandom::fill(&mut all);
    all.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number that nobody else has.
#[must_use]
pub fn number() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // Without randomness the clock and the process number must do.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (now.as_nanos() as u64).rotate_left(20) ^ u64::from(std::process::id()) << 40
    })
}

/// Somewhere between half of it and all of it, so that those who were turned away together do not come back together.
#[must_use]
pub fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_longer_than_asked_for() {
        let pause = Duration::from_millis(200);
        for _ in 0..100 {
            let wait = jitter(pause);
            assert!(wait >= pause / 2 && wait <= pause, "{wait:?}");
        }
        assert_eq!(hex(8).len(), 16);
        assert_ne!(hex(8), hex(8));
    }
}
