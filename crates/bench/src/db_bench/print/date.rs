//! Dates in db_bench's formats, in UTC: the time zone is ignored.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::macros::format_description;

/// Formats a date as before interval lines.
pub(crate) fn stamp(time: SystemTime) -> String {
    let form = format_description!("[year]/[month]/[day]-[hour]:[minute]:[second]");
    OffsetDateTime::from(time).format(&form).unwrap_or_default()
}

/// Formats a date as in the head, like `ctime`.
pub(crate) fn long(time: SystemTime) -> String {
    let form = format_description!(
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]"
    );
    OffsetDateTime::from(time).format(&form).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn dates_match_calendar() {
        for (seconds, expected_long, expected_stamp) in [
            (0, "Thu Jan  1 00:00:00 1970", "1970/01/01-00:00:00"),
            (951_782_400, "Tue Feb 29 00:00:00 2000", "2000/02/29-00:00:00"),
            (1_795_336_684, "Sun Nov 22 08:38:04 2026", "2026/11/22-08:38:04"),
            (1_798_761_599, "Thu Dec 31 23:59:59 2026", "2026/12/31-23:59:59"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!((long(time).as_str(), stamp(time).as_str()), (expected_long, expected_stamp));
        }
    }
}
