//! Placement: records that are expected to be overwritten at about the same time share a segment.
//!
//! The rule is that of SepBIT (Wang et al., FAST 2022), with information available in the log instead of a table of
//! write times; `docs/decisions/0005-placement.md` has its arithmetic. Time is counted in records written. A version is
//! expected to live about as long as its predecessor did: if that was less than `ℓ`, the mean life of recently
//! collected segments of short-lived records, it goes to a segment of short-lived records. A record that survived a
//! collection is placed by its age.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_log::Stream;
use parking_lot::Mutex;

/// Number of collected segments over which `ℓ` is averaged.
const LIVES: usize = 16;
/// Age limits between output segments of collected records, in units of `ℓ`.
const AGES: [u64; 2] = [4, 16];
/// One in this many puts is sampled to detect skewed writes.
const SAMPLE_EVERY: u64 = 16;
/// Number of samples needed for a decision. At twice this number both counts are halved, so that old samples decay.
const ENOUGH_SAMPLES: u64 = 512;
/// Ratio of observed to uniform-load brief lives above which separation starts (`SKEWED`) and below which it ends
/// (`NOT_SKEWED`).
const SKEWED: f64 = 1.3;
const NOT_SKEWED: f64 = 1.15;

/// Lifetime statistics of records, and the choice of write stream that follows from them.
#[derive(Debug)]
pub struct Placement {
    /// `ℓ`, or `u64::MAX` until enough segments were collected.
    brief_life: AtomicU64,
    /// True if short-lived and long-lived records are separated.
    parts: AtomicBool,
    sampled: AtomicU64,
    sampled_brief: AtomicU64,
    /// Number of output segments for collected records. With 1, records are not separated.
    outputs: usize,
    lives: Mutex<VecDeque<u64>>,
}

impl Placement {
    /// Creates a placement for a tier that can spare `outputs` open segments, at most four, for collected records. With
    /// one, records are not separated.
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

    /// Returns true if short-lived and long-lived records are currently separated.
    pub fn parts(&self) -> bool {
        self.parts.load(Ordering::Relaxed)
    }

    /// Returns true if the put with this sequence number is sampled although records are not separated.
    pub fn samples(&self, sequence: u64) -> bool {
        self.outputs > 1 && sequence.is_multiple_of(SAMPLE_EVERY)
    }

    /// Returns true if a put whose predecessor lived for `lived` is expected to be short-lived. `None` means that there
    /// was no predecessor, or that it had been collected and was therefore long-lived.
    pub fn is_short_lived(&self, lived: Option<u64>) -> bool {
        lived.is_some_and(|lived| lived < self.brief_life.load(Ordering::Relaxed))
    }

    /// Counts a sampled put and its predicted lifetime.
    pub fn note_put(&self, short_lived: bool) {
        if self.brief_life.load(Ordering::Relaxed) == u64::MAX {
            // `ℓ` is not known yet, so `short_lived` means nothing.
            return;
        }
        self.sampled.fetch_add(1, Ordering::Relaxed);
        if short_lived {
            self.sampled_brief.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that a segment of short-lived records was collected after `lived` records; the store has `keys` keys.
    ///
    /// Under uniform load over `n` keys lifetimes are geometric, so a share of `1 - e^(-ℓ/n)` of all lives is brief.
    /// Records are separated only if the observed share is noticeably higher, because otherwise separation costs an
    /// open segment for no gain.
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
            // A sample counted between the load and the store is lost, which is harmless.
            self.sampled.store(sampled / 2, Ordering::Relaxed);
            self.sampled_brief.store(short_lived / 2, Ordering::Relaxed);
        }
    }

    /// Returns the write stream for a destaged record.
    pub fn destaged(&self, short_lived: bool) -> Stream {
        if short_lived || !self.parts() { Stream::DESTAGED } else { Stream::LONG_LIVED }
    }

    /// Returns the write stream for a record collected from a segment of `from` at this age. `None` means that the
    /// record was written before the store was opened, so that its age is unknown.
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

    /// Returns a placement that has collected segments of this life and sampled `sampled` puts, `short_lived` of them
    /// short-lived.
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
        // ℓ = n/2: under uniform load 39 % of lives are brief.
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
        assert_eq!(placement.collected(young, None), old, "an unknown age counts as old");
        assert_eq!(placement.destaged(true), Stream::DESTAGED);
        assert_eq!(placement.destaged(false), Stream::LONG_LIVED);
        let narrow = seen(2, 100, 900, 1000, 1000);
        assert_eq!(narrow.collected(old, None), young, "two outputs for everything");
    }

    #[test]
    fn placement_without_history_separates_no_streams() {
        let placement = Placement::new(4);
        assert!(
            placement.is_short_lived(Some(u64::MAX - 1)),
            "every life counts as brief while ℓ is unknown"
        );
        assert_eq!(placement.destaged(false), Stream::DESTAGED);
        assert_eq!(placement.collected(Stream::LONG_LIVED, None), Stream::RELOCATED[0]);
    }
}
