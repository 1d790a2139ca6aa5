//! What the server has to say about itself: one line with the time on standard error. Never a command, a variable,
//! a token or output.

use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

/// A log file that is longer begins anew.
const MOST: u64 = 4 << 20;

pub(crate) fn line(text: impl Display) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut stderr = std::io::stderr().lock();
    if rustix::fs::fstat(stderr.as_fd()).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file()
            && u64::try_from(stat.st_size).unwrap_or_default() > MOST
    }) {
        let _ = rustix::fs::ftruncate(stderr.as_fd(), 0);
    }
    // In one piece. If nobody can be told, nobody is.
    let text = format!("{} farshell-server[{}]: {text}\n", time(now.as_secs()), std::process::id());
    let _ = stderr.write_all(text.as_bytes());
}

/// RFC 3339, UTC.
fn time(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one. 1970-01-01 is day 719,468 of that calendar.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
