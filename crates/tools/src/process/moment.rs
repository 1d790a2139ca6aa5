//! Moments as people and programs write them.

use std::fmt::Write;

/// A moment as people and programs write it: 2026-01-31T12:00:00Z.
pub(super) fn iso(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis / 1000 % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, year) =
        if month < 10 { (month + 3, year + era * 400) } else { (month - 9, year + era * 400 + 1) };
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_they_are() {
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_827_696_789), "2000-02-29T12:34:56Z");
        assert_eq!(iso(1_798_761_599_000), "2026-12-31T23:59:59Z");
        assert_eq!(iso(4_107_542_400_000), "2100-03-01T00:00:00Z");
    }
}
