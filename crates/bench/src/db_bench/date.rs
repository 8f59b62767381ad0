//! Dates as db_bench prints them. They are those of UTC: the time zone is not looked up.

use std::time::{SystemTime, UNIX_EPOCH};

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECONDS: u64 = 86_400;

/// A second of a day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Date {
    year: u64,
    /// From 0, as the day.
    month: usize,
    day: u64,
    weekday: usize,
    second: u64,
}

impl Date {
    /// The date of a time since 1970.
    pub(crate) fn at(time: SystemTime) -> Date {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (mut year, mut month, mut day) = (1970, 0, seconds / DAY_SECONDS);
        let weekday = (day % 7) as usize;
        while day >= month_days(year, month) {
            day -= month_days(year, month);
            (year, month) = (year + month as u64 / 11, (month + 1) % 12);
        }
        Date { year, month, day, weekday, second: seconds % DAY_SECONDS }
    }

    fn clock(self) -> String {
        format!("{:02}:{:02}:{:02}", self.second / 3600, self.second / 60 % 60, self.second % 60)
    }

    /// As before interval lines.
    pub(crate) fn stamp(self) -> String {
        format!("{}/{:02}/{:02}-{}", self.year, self.month + 1, self.day + 1, self.clock())
    }

    /// As in the head, which has it from `ctime`.
    pub(crate) fn long(self) -> String {
        let (weekday, month) = (WEEKDAYS[self.weekday], MONTHS[self.month]);
        format!("{weekday} {month} {:2} {} {}", self.day + 1, self.clock(), self.year)
    }
}

fn month_days(year: u64, month: usize) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        1 => 28 + u64::from(leap),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, long, stamp) in [
            (0, "Thu Jan  1 00:00:00 1970", "1970/01/01-00:00:00"),
            (951_782_400, "Tue Feb 29 00:00:00 2000", "2000/02/29-00:00:00"),
            (1_795_336_684, "Sun Nov 22 08:38:04 2026", "2026/11/22-08:38:04"),
            (1_798_761_599, "Thu Dec 31 23:59:59 2026", "2026/12/31-23:59:59"),
        ] {
            let date = Date::at(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!((date.long().as_str(), date.stamp().as_str()), (long, stamp));
        }
    }
}
