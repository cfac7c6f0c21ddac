//! Moments for people: UTC, and how long ago.

use keyraft_engine::clock::UnixMillis;

/// A moment's parts, in UTC.
fn parts(at: UnixMillis) -> (u64, u64, u64, u64, u64, u64, u64) {
    let (seconds, millis) = (at.0 / 1000, at.0 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years; a year begins in March, so that its odd day is the last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, date, second / 3600, second % 3600 / 60, second % 60, millis)
}

/// `2026-11-30T02:14:07.120Z`
pub fn utc(at: UnixMillis) -> String {
    let (year, month, date, hour, minute, second, millis) = parts(at);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// How long, in one unit: `800 ms`, `12 s`, `4 min`, `3 h`, `2 d`.
pub fn long(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1_000..=119_999 => format!("{} s", millis / 1000),
        120_000..=7_199_999 => format!("{} min", millis / 60_000),
        7_200_000..=172_799_999 => format!("{} h", millis / 3_600_000),
        _ => format!("{} d", millis / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(utc(UnixMillis(seconds * 1000 + 7)), format!("{text}.007Z"));
        }
    }

    #[test]
    fn spans_are_short() {
        let texts = [999, 1_000, 125_000, 7_300_000, 200_000_000].map(long);
        assert_eq!(texts, ["999 ms", "1 s", "2 min", "2 h", "2 d"]);
    }
}
