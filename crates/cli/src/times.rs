//! Times as people say them.

use farshell_api::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Millis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(Millis::MAX)
}

/// How long: `0.4s`, `12s`, `3m`, `2h`, `5d`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago. A clock that went back gives nothing worse than `0.0s`.
pub(crate) fn ago(at: Millis, now: Millis) -> String {
    format!("{} ago", span(now.saturating_sub(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (millis, text) in [
            (0, "0.0s"),
            (1_499, "1.4s"),
            (59_999, "59s"),
            (120_000, "2m"),
            (7_199_999, "119m"),
            (7_200_000, "2h"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(span(millis), text);
        }
        assert_eq!(ago(5_000, 1_000), "0.0s ago");
    }
}
