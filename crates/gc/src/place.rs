//! To which segments records go: those that are expected to die at about the same time share one.
//!
//! The rule is that of SepBIT (Wang et al., FAST 2022), with what a log has at hand in place of a table of write times;
//! `docs/decisions/0005-placement.md` has its arithmetic. Time is counted in records written. A version is expected to
//! live about as long as its predecessor did: if that was less than `ℓ`, the mean life of the segments of short-lived records
//! that were collected of late, it goes to a segment of short-lived ones. What survives a collection has shown its age, and
//! goes by that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_log::Stream;
use parking_lot::Mutex;

/// `ℓ` is the mean of so many collected segments.
const LIVES: usize = 16;
/// Ages, in units of `ℓ`, at which collected records part.
const AGES: [u64; 2] = [4, 16];
/// One put in so many is looked at to learn whether writes are skewed.
const SAMPLE_EVERY: u64 = 16;
/// So many samples are an answer; twice that many are halved, so that old ones are forgotten.
const ENOUGH_SAMPLES: u64 = 512;
/// Brief lives are so much more frequent than under uniform load where records are parted; and where that ends.
const SKEWED: f64 = 1.3;
const NOT_SKEWED: f64 = 1.15;

/// What is known of how long records live, and where they go.
#[derive(Debug)]
pub struct Placement {
    /// `ℓ`; `u64::MAX` as long as nothing is known.
    brief_life: AtomicU64,
    /// Whether short-lived and lasting records are parted.
    parts: AtomicBool,
    sampled: AtomicU64,
    sampled_brief: AtomicU64,
    /// Segments for collected records: 0 if there is no room for more than one, so that nothing is parted.
    outputs: usize,
    lives: Mutex<VecDeque<u64>>,
}

impl Placement {
    /// For a tier that can spare `outputs` open segments, at most four, for collected records. With one, nothing is parted.
    pub fn new(outputs: usize) -> Placement {
        Placement {
            brief_life: AtomicU64::new(u64::MAX),
            parts: AtomicBool::new(false),
            sampled: AtomicU64::new(0),
            sampled_brief: AtomicU64::new(0),
            outputs: outputs.clamp(1, Stream::RELOCATED.len()),
            lives: Mutex::default(),
        }
    }

    /// Whether short-lived and lasting records are parted now.
    pub fn parts(&self) -> bool {
        self.parts.load(Ordering::Relaxed)
    }

    /// Whether the put with this number should be looked at although nothing is parted.
    pub fn samples(&self, sequence: u64) -> bool {
        self.outputs > 1 && sequence.is_multiple_of(SAMPLE_EVERY)
    }

    /// Whether a put whose predecessor lived so long is expected to live briefly; `None`: there was none, or it had been
    /// collected and so lived long.
    pub fn is_short_lived(&self, lived: Option<u64>) -> bool {
        lived.is_some_and(|lived| lived < self.brief_life.load(Ordering::Relaxed))
    }

    /// A sampled put was expected to live briefly, or not.
    pub fn note_put(&self, short_lived: bool) {
        if self.brief_life.load(Ordering::Relaxed) == u64::MAX {
            // Brief in comparison with what?
            return;
        }
        self.sampled.fetch_add(1, Ordering::Relaxed);
        if short_lived {
            self.sampled_brief.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A segment of short-lived records was collected after so long; the store has so many keys.
    ///
    /// Under uniform load over `n` keys a life is geometric, so a share of `1 - e^(-ℓ/n)` of all lives is brief. Records
    /// are parted if the share seen is noticeably more: else it costs an open segment and gives nothing.
    pub fn note_collected(&self, lived: u64, keys: u64) {
        let mean = {
            let mut lives = self.lives.lock();
            if lives.len() == LIVES {
                lives.pop_front();
            }
            lives.push_back(lived.max(1));
            if lives.len() < LIVES {
                return;
            }
            lives.iter().sum::<u64>() / LIVES as u64
        };
        self.brief_life.store(mean, Ordering::Relaxed);
        let sampled = self.sampled.load(Ordering::Relaxed);
        if self.outputs == 1 || sampled < ENOUGH_SAMPLES {
            return;
        }
        let short_lived = self.sampled_brief.load(Ordering::Relaxed);
        let uniform = 1.0 - (-(mean as f64) / keys.max(1) as f64).exp();
        let skew = short_lived as f64 / sampled as f64 / uniform;
        let needed = if self.parts() { NOT_SKEWED } else { SKEWED };
        self.parts.store(skew > needed, Ordering::Relaxed);
        if sampled > 2 * ENOUGH_SAMPLES {
            // A sample that is counted in between is lost, which is no matter.
            self.sampled.store(sampled / 2, Ordering::Relaxed);
            self.sampled_brief.store(short_lived / 2, Ordering::Relaxed);
        }
    }

    /// Where a destaged record goes.
    pub fn destaged(&self, short_lived: bool) -> Stream {
        if short_lived || !self.parts() { Stream::DESTAGED } else { Stream::LONG_LIVED }
    }

    /// Where a record goes that was collected from a segment of `from`, at this age; `None`: from before the store was
    /// opened, so nobody knows.
    pub fn collected(&self, from: Stream, age: Option<u64>) -> Stream {
        if !self.parts() {
            return Stream::RELOCATED[0];
        }
        let life = self.brief_life.load(Ordering::Relaxed);
        let class = if from.is_short_lived() {
            0
        } else {
            let passed =
                AGES.iter().filter(|&&n| age.is_none_or(|age| age >= life.saturating_mul(n))).count();
            1 + passed
        };
        Stream::RELOCATED[class.min(self.outputs - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A placement that has collected segments that lived `life` and seen this share of short-lived puts.
    fn seen(outputs: usize, life: u64, short_lived: u64, sampled: u64, keys: u64) -> Placement {
        let placement = Placement::new(outputs);
        for _ in 0..LIVES {
            placement.note_collected(life, keys);
        }
        for i in 0..sampled {
            placement.note_put(i < short_lived);
        }
        placement.note_collected(life, keys);
        placement
    }

    #[test]
    fn uniform_load_is_not_parted_and_skewed_load_is() {
        // ℓ = n/2: 39 % of lives are short-lived if all keys are alike.
        assert!(!seen(4, 500, 400, 1000, 1000).parts());
        assert!(seen(4, 500, 600, 1000, 1000).parts());
        assert!(!seen(1, 500, 600, 1000, 1000).parts(), "no room for it");
        assert!(!seen(4, 500, 60, 100, 1000).parts(), "too few samples");
    }

    #[test]
    fn parting_ends_when_the_skew_does() {
        let placement = seen(4, 500, 600, 1000, 1000);
        for _ in 0..20 {
            (0..1000).for_each(|i| placement.note_put(i < 390));
            placement.note_collected(500, 1000);
        }
        assert!(!placement.parts());
    }

    #[test]
    fn the_predecessor_tells_of_puts_and_age_of_survivors() {
        let placement = seen(4, 100, 900, 1000, 1000);
        assert!(
            placement.is_short_lived(Some(99))
                && !placement.is_short_lived(Some(100))
                && !placement.is_short_lived(None)
        );
        let [survivors, young, middle, old] = Stream::RELOCATED;
        assert_eq!(placement.collected(Stream::LANE, Some(1_000_000)), survivors);
        assert_eq!(placement.collected(Stream::LONG_LIVED, Some(399)), young);
        assert_eq!(placement.collected(survivors, Some(400)), middle);
        assert_eq!(placement.collected(old, Some(1600)), old);
        assert_eq!(placement.collected(young, None), old, "an unknown age is a great one");
        assert_eq!(placement.destaged(true), Stream::DESTAGED);
        assert_eq!(placement.destaged(false), Stream::LONG_LIVED);
        let narrow = seen(2, 100, 900, 1000, 1000);
        assert_eq!(narrow.collected(old, None), young, "two outputs for everything");
    }

    #[test]
    fn nothing_is_parted_before_anything_is_known() {
        let placement = Placement::new(4);
        assert!(placement.is_short_lived(Some(u64::MAX - 1)), "all lives are briefer than an unknown one");
        assert_eq!(placement.destaged(false), Stream::DESTAGED);
        assert_eq!(placement.collected(Stream::LONG_LIVED, None), Stream::RELOCATED[0]);
    }
}
