//! Watermarks: a compact representation of the records that have expired permanently.

use esker_log::ExpiryWatermark;

/// Maximum number of watermarks. One is added each time the clock was believed, then set back, and is believed again.
const WATERMARKS_MAX: usize = 16;

/// Watermarks in the order of decreasing times and increasing sequence numbers, so that none implies another.
#[derive(Clone, Debug, Default)]
pub(super) struct Watermarks {
    all: Vec<ExpiryWatermark>,
}

impl Watermarks {
    /// Combines watermarks.
    pub(super) fn of(mut known: Vec<ExpiryWatermark>) -> Watermarks {
        known.sort_unstable_by_key(|mark| (mark.sequence, mark.time_ms));
        let mut all = Watermarks::default();
        for mark in known {
            // The superblocks of several tiers have the same watermarks, except the last ones.
            let is_taken = all.raise(mark);
            debug_assert!(is_taken, "a superblock has at most {WATERMARKS_MAX} of falling times");
        }
        all
    }

    /// Returns true if a watermark covers the record: it has expired permanently.
    pub(super) fn cover(&self, sequence: u64, expires_at_ms: u64) -> bool {
        self.all.iter().any(|mark| sequence <= mark.sequence && expires_at_ms <= mark.time_ms)
    }

    /// Adds a watermark whose sequence number is at least that of all others. Returns false if it
    /// [cannot](Self::takes).
    pub(super) fn raise(&mut self, mark: ExpiryWatermark) -> bool {
        if !self.takes(mark.time_ms) {
            return false;
        }
        while self.all.last().is_some_and(|last| last.time_ms <= mark.time_ms) {
            self.all.pop();
        }
        self.all.push(mark);
        true
    }

    /// Returns true if a watermark of this time can be added. With [`WATERMARKS_MAX`] watermarks of later times it
    /// cannot, because merging two of them would let keys expire early, or reappear.
    pub(super) fn takes(&self, time_ms: u64) -> bool {
        self.all.len() < WATERMARKS_MAX || self.all.last().is_some_and(|last| last.time_ms <= time_ms)
    }

    /// Returns the latest time of all watermarks; 0 if there are none.
    pub(super) fn latest_ms(&self) -> u64 {
        self.all.first().map_or(0, |mark| mark.time_ms)
    }

    pub(super) fn to_vec(&self) -> Vec<ExpiryWatermark> {
        self.all.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64, time_ms: u64) -> ExpiryWatermark {
        ExpiryWatermark { sequence, time_ms }
    }

    #[test]
    fn one_is_enough_for_a_clock_that_goes_on() {
        let mut marks = Watermarks::default();
        for step in 1..100 {
            assert!(marks.raise(mark(step / 3, 1000 + step)));
        }
        assert_eq!(marks.to_vec(), [mark(33, 1099)]);
        assert!(marks.cover(33, 1099) && !marks.cover(34, 1) && !marks.cover(1, 1100));
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_records_written_since_alone() {
        let marks = Watermarks::of(vec![mark(20, 1500), mark(10, 9000), mark(5, 700)]);
        assert_eq!(marks.to_vec(), [mark(10, 9000), mark(20, 1500)]);
        assert_eq!(marks.latest_ms(), 9000);
        assert!(marks.cover(10, 9000) && marks.cover(20, 1500) && !marks.cover(11, 1501));
        // Time has caught up.
        let marks = Watermarks::of([marks.to_vec(), vec![mark(30, 9001)]].concat());
        assert_eq!(marks.to_vec(), [mark(30, 9001)]);
    }

    #[test]
    fn watermark_beyond_maximum_is_refused_until_time_catches_up() {
        let raised: Vec<_> = (0..100).map(|step| mark(step, 1_000_000 - step * step)).collect();
        let mut marks = Watermarks::default();
        let taken: Vec<_> = raised.iter().copied().filter(|mark| marks.raise(*mark)).collect();
        assert_eq!(taken, raised[..WATERMARKS_MAX]);
        assert!(taken.iter().all(|mark| marks.cover(mark.sequence, mark.time_ms)));
        // No record expires early.
        let last = taken[WATERMARKS_MAX - 1];
        assert!(!marks.cover(last.sequence + 1, 1) && !marks.cover(last.sequence, last.time_ms + 1));
        assert!(!marks.takes(last.time_ms - 1) && marks.raise(mark(200, last.time_ms)));
        assert!(marks.cover(200, last.time_ms));
    }

    /// A watermark raised during a write of the superblocks is not part of it.
    #[test]
    fn a_watermark_raised_during_a_write_is_still_to_be_written() {
        let bench = crate::testing::Plan { slow: true, ..crate::testing::Plan::new(1) }.build();
        let (catalog, now_ms) = (&bench.catalog, bench.catalog.now_ms());
        bench.run(async {
            catalog.expire_for_good(now_ms);
            let raise = async {
                bench.sleep(std::time::Duration::from_nanos(100)).await;
                catalog.expire_for_good(now_ms + 1);
            };
            let (saved, ()) = futures_util::future::join(catalog.save_watermarks(), raise).await;
            saved.expect("nothing fails");
            assert!(catalog.watermarks_due().is_some());
        });
    }
}
