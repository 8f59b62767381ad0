//! Recent rate of commands per second, without a timer: callers pass the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Length of an interval, and the number of intervals averaged; both as in Redis.
const PIECE_MS: u64 = 100;
const PIECES: u64 = 16;

/// Twice that number of slots, so that no slot is overwritten while it is added up.
const KEPT: usize = 2 * PIECES as usize;

/// Counts of the last intervals.
#[derive(Debug)]
pub(crate) struct Rate([AtomicU64; KEPT]);

impl Default for Rate {
    fn default() -> Rate {
        Rate(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Packs the number of an interval and its count into one word.
fn pack(piece: u64, count: u64) -> u64 {
    (piece as u32 as u64) << 32 | count.min(u64::from(u32::MAX))
}

fn unpack(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

impl Rate {
    /// Adds `count` events at a time since an arbitrary fixed start.
    pub(crate) fn add(&self, at: Duration, count: u64) {
        let piece = at.as_millis() as u64 / PIECE_MS;
        let slot = &self.0[piece as usize % KEPT];
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let (of, before) = unpack(word);
            Some(pack(piece, if of == piece { before + count } else { count }))
        });
    }

    /// Returns the mean rate over the last complete intervals.
    pub(crate) fn per_second(&self, now: Duration) -> u64 {
        let piece = now.as_millis() as u64 / PIECE_MS;
        let ended = PIECES.min(piece);
        let of_late = |(of, _): &(u64, u64)| *of < piece && piece - of <= ended;
        let words = self.0.iter().map(|slot| unpack(slot.load(Ordering::Relaxed)));
        let count: u64 = words.filter(of_late).map(|(_, count)| count).sum();
        (count * 1000).checked_div(ended * PIECE_MS).unwrap_or(0)
    }

    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_pieces() {
        let (rate, at) = (Rate::default(), Duration::from_millis);
        assert_eq!(rate.per_second(at(0)), 0);
        rate.add(at(10), 5);
        assert_eq!(rate.per_second(at(50)), 0, "the piece has not ended");
        assert_eq!(rate.per_second(at(100)), 50);
        for ms in (0..5000).step_by(10) {
            rate.add(at(10_000 + ms), 2);
        }
        assert_eq!(rate.per_second(at(15_000)), 200);
        assert_eq!(rate.per_second(at(15_800)), 100, "half of the pieces are of silence");
        assert_eq!(rate.per_second(at(16_600)), 0);
        assert_eq!(rate.per_second(at(1_000_000)), 0);
        rate.add(at(1_000_000), 7);
        rate.reset();
        assert_eq!(rate.per_second(at(1_000_100)), 0);
    }
}
