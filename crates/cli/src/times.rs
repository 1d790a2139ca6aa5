//! Times as people say them.

use farshell_api::Millis;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A time that somebody typed: `90s`, `10m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(Duration);

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => 0,
        };
        match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
            Some(seconds) if unit > 0 => Ok(Self(Duration::from_secs(seconds))),
            _ => Err("a number and one of s, m, h, d is needed, such as 90s or 2h".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        let seconds = |text: &str| text.parse::<Span>().map(|span| span.0.as_secs()).ok();
        assert_eq!(["90s", "10m", "2h", "7d"].map(seconds), [Some(90), Some(600), Some(7200), Some(604_800)]);
        for text in
            ["", "10", "m", "1w", "-1s", "1.5h", "1µ", "99999999999999999999d", "9999999999999999999d"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

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
