//! Eviction policy of a full cache store: per-key reference and ghost bits, and the rules built on them.
//!
//! The policy is CLOCK over segments. The CLOCK hand passes over the sealed segments, oldest first. A segment with next
//! to no referenced bytes since the hand's last visit is freed: its referenced records are copied, within a budget that
//! is a share of the bytes users put, and its other records are dropped without being read. Any other segment is passed
//! over, which costs no write, and the reference bits of its keys are cleared. A key that is put again soon after it
//! was dropped (a ghost) goes to segments of such keys, and the hand then passes over those.
//!
//! Segments of new keys are on probation, as in S3-FIFO (Yang et al., SOSP 2023): while they are more than a tenth of
//! all sealed segments, the oldest of them is freed and the hand does not move. Keys read only once therefore do not
//! displace popular keys.
//!
//! Two bit tables are addressed by the keys' digests, with a few bits per key: [`Reference`] and [`Ghosts`]. Neither
//! outlives the process. `docs/decisions/0028-cache-mode.md` compares the policy with others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_log::{KeyHash, Keyspace};

/// Share of referenced bytes below which a segment is evicted without examining further segments.
pub const COLD_SHARE: f64 = 0.2;
/// Share of all sealed segments above which the oldest segment of new keys is evicted first.
const PROBATION_SHARE: f64 = 0.1;
/// Number of segments the CLOCK hand examines before it takes one above [`COLD_SHARE`].
pub const LOOKS: usize = 8;
/// Bytes of referenced records that may be copied per byte that users put.
pub const COPY_SHARE: f64 = 0.02;
/// Ghosts per generation, as a share of the number of keys in the store.
const GHOST_SHARE: f64 = 0.5;
/// Minimum number of ghosts per generation.
const GHOSTS_MIN: u64 = 1024;
/// Number of low bits of [`KeyHash::check`] that hold the keyspace. All keys of a database share them, so they must not
/// select a bit of the table.
const KEYSPACE_BITS: u32 = Keyspace::BITS;

/// A power-of-two bit table addressed by the low bits of a digest.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// Returns a table with the largest power of two of bits that fits in `bytes`, at least one word.
    fn new(bytes: u64) -> Bits {
        let words = 1 << (bytes / 8).max(1).ilog2();
        Bits((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, bit: u64) -> (&AtomicU64, u64) {
        (&self.0[(bit >> 6) as usize & (self.0.len() - 1)], 1 << (bit & 63))
    }

    fn is_set(&self, bit: u64) -> bool {
        let (word, mask) = self.place(bit);
        word.load(Ordering::Relaxed) & mask != 0
    }

    /// Writes only if the bit is clear, so that readers of popular keys share the cache line instead of invalidating
    /// it.
    fn set(&self, bit: u64) {
        let (word, mask) = self.place(bit);
        if word.load(Ordering::Relaxed) & mask == 0 {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    fn unset(&self, bit: u64) {
        let (word, mask) = self.place(bit);
        if word.load(Ordering::Relaxed) & mask != 0 {
            word.fetch_and(!mask, Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64 * 8
    }
}

/// Reference bits: one bit per key, set when the key is read, cleared when the CLOCK hand passes its segment.
#[derive(Debug)]
pub struct Reference(Bits);

impl Reference {
    /// Returns a table of at most `bytes`.
    pub fn new(bytes: u64) -> Reference {
        Reference(Bits::new(bytes))
    }

    /// Returns the bit number of a key, with the keyspace rotated into the unused top bits.
    fn bit(key: &KeyHash) -> u64 {
        key.check.rotate_right(KEYSPACE_BITS)
    }

    /// Sets the reference bit of a key that was read and found.
    #[inline]
    pub fn note(&self, key: &KeyHash) {
        self.0.set(Reference::bit(key));
    }

    /// Returns true if the reference bit of the key is set.
    pub fn is_noted(&self, key: &KeyHash) -> bool {
        self.0.is_set(Reference::bit(key))
    }

    /// Clears the reference bit of a key whose segment the CLOCK hand has passed.
    pub fn forget(&self, key: &KeyHash) {
        self.0.unset(Reference::bit(key));
    }

    /// Memory of the table in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Recently evicted keys, in two generations: when the younger one is full, the older one is cleared and reused. Each
/// is a Bloom filter with two bits per key. A false positive places a new key in a long-lived segment and has no other
/// effect.
#[derive(Debug)]
pub struct Ghosts {
    generations: [Bits; 2],
    younger: AtomicUsize,
    noted: AtomicU64,
}

impl Ghosts {
    /// Returns an empty filter of at most `bytes`.
    pub fn new(bytes: u64) -> Ghosts {
        let generations = [Bits::new(bytes / 2), Bits::new(bytes / 2)];
        Ghosts { generations, younger: AtomicUsize::new(0), noted: AtomicU64::new(0) }
    }

    /// Returns the two bit numbers of a key: one from the low end of the digest, one from the high end. The keyspace is
    /// moved to the unused top bits of both.
    fn bits(key: &KeyHash) -> [u64; 2] {
        [key.check.rotate_right(KEYSPACE_BITS), key.check.swap_bytes()]
    }

    /// Records an evicted key. `keys` is the number of keys in the store. Called by one thread at a time.
    pub fn note(&self, key: &KeyHash, keys: u64) {
        let full = ((keys as f64 * GHOST_SHARE) as u64).max(GHOSTS_MIN);
        if self.noted.fetch_add(1, Ordering::Relaxed) >= full {
            let older = 1 - self.younger.load(Ordering::Relaxed);
            self.generations[older].clear();
            self.younger.store(older, Ordering::Relaxed);
            self.noted.store(1, Ordering::Relaxed);
        }
        let younger = &self.generations[self.younger.load(Ordering::Relaxed)];
        Ghosts::bits(key).into_iter().for_each(|bit| younger.set(bit));
    }

    /// Returns true if the key was evicted recently, or on a false positive of the filter.
    pub fn knows(&self, key: &KeyHash) -> bool {
        self.generations.iter().any(|bits| Ghosts::bits(key).into_iter().all(|bit| bits.is_set(bit)))
    }

    /// Memory of both generations in bytes.
    pub fn bytes(&self) -> u64 {
        self.generations.iter().map(Bits::bytes).sum()
    }
}

/// Byte budget for copying referenced records: a share of the bytes that users put, with an upper limit on the unused
/// part.
#[derive(Debug, Default)]
pub struct CopyBudget {
    /// Total bytes users had put at the previous call of [`CopyBudget::left_bytes`].
    put_bytes: u64,
    left: f64,
}

impl CopyBudget {
    /// Returns the bytes that may be copied. `put_bytes` is the total that users have put since open; unused budget is
    /// limited to `most_bytes`.
    pub fn left_bytes(&mut self, put_bytes: u64, most_bytes: u64) -> u64 {
        let put = put_bytes.saturating_sub(std::mem::replace(&mut self.put_bytes, put_bytes));
        self.left = (self.left + put as f64 * COPY_SHARE).min(most_bytes as f64);
        self.left as u64
    }

    /// Deducts `bytes` that were copied.
    pub fn spend(&mut self, bytes: u64) {
        self.left = (self.left - bytes as f64).max(0.0);
    }
}

/// Returns true if the oldest segment on probation is to be evicted before the CLOCK hand examines any other. `sealed` and
/// `on_probation`: numbers of segments; `oldest`: number of the oldest segment on probation; `last_back`: highest number of
/// a segment of returning keys, 0 if there is none.
///
/// Returns false if segments on probation are few, or if no long-lived segment is younger than the oldest of them:
/// returning keys are then among the new ones, and evicting by probation would be plain FIFO.
pub fn ends_probation(sealed: u64, on_probation: u64, oldest: u64, last_back: u64) -> bool {
    on_probation as f64 > PROBATION_SHARE * sealed as f64 && oldest < last_back
}

/// One pass of the CLOCK hand: the coldest segment seen so far, and the number of segments examined.
#[derive(Debug)]
pub struct Look<T> {
    coldest: Option<(f64, T)>,
    seen: usize,
}

impl<T> Default for Look<T> {
    fn default() -> Look<T> {
        Look { coldest: None, seen: 0 }
    }
}

impl<T> Look<T> {
    /// Adds a segment with the share of its bytes that eviction would keep. Returns the warmer of this segment and the coldest
    /// so far, if there was one.
    pub fn see(&mut self, kept_share: f64, segment: T) -> Option<T> {
        self.seen += 1;
        if self.coldest.as_ref().is_some_and(|(least, _)| *least <= kept_share) {
            return Some(segment);
        }
        self.coldest.replace((kept_share, segment)).map(|(_, warmer)| warmer)
    }

    /// Returns true if the coldest segment so far is to be evicted: at once if it would keep at most [`COLD_SHARE`], after
    /// [`LOOKS`] segments if it would keep at most `most_kept`.
    pub fn is_over(&self, most_kept: f64) -> bool {
        let least = self.coldest.as_ref().map_or(1.0, |(least, _)| *least);
        least <= COLD_SHARE || self.seen >= LOOKS && least <= most_kept
    }

    /// Returns the coldest segment and the share of its bytes that eviction would keep.
    pub fn coldest(self) -> Option<(f64, T)> {
        self.coldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a digest like those of one database: evenly distributed except for the keyspace bits.
    fn key(number: u64) -> KeyHash {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let keyspace = Keyspace::new(11).expect("there are 16");
        KeyHash { slot: number, check: mixed ^ mixed >> 31 }.in_keyspace(keyspace)
    }

    #[test]
    fn probation_ends_if_segments_are_many_and_keys_return() {
        assert!(!ends_probation(3, 2, 2, 0), "no segment of returned keys");
        assert!(ends_probation(3, 2, 2, 4));
        assert!(!ends_probation(3, 2, 3, 2), "no segment of returned keys since the oldest");
        assert!(!ends_probation(20, 1, 1, 20), "they are few");
        assert!(ends_probation(22, 3, 0, 20));
    }

    /// Asserts that as many bits are set as expected when `chosen` bits are selected uniformly at random.
    fn assert_all_in_use(bits: &Bits, chosen: u64) {
        let set: u64 = bits.0.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        let there = 8 * bits.bytes();
        let share = set as f64 / there as f64;
        let ideal = 1.0 - (-(chosen as f64) / there as f64).exp();
        assert!((share / ideal - 1.0).abs() < 0.02, "{share} of the bits are set; expected {ideal}");
    }

    #[test]
    fn keys_of_one_database_use_all_bits() {
        for bytes in [1 << 10, 64 << 10, 4 << 20] {
            let reference = Reference::new(bytes);
            let keys = 4 * bytes;
            (0..keys).for_each(|number| reference.note(&key(number)));
            assert_all_in_use(&reference.0, keys);
            let ghosts = Ghosts::new(2 * bytes);
            (0..keys / 2).for_each(|number| ghosts.note(&key(number), u64::MAX));
            assert_all_in_use(&ghosts.generations[0], keys);
        }
    }

    #[test]
    fn reference_notes_key_until_it_is_forgotten() {
        let reference = Reference::new(1 << 10);
        (0..100).for_each(|number| reference.note(&key(number)));
        assert!((0..100).all(|number| reference.is_noted(&key(number))));
        let others = (1000..2000).filter(|number| reference.is_noted(&key(*number))).count();
        assert!(others < 50, "{others} of 1000 unreferenced keys are noted; 100 of 8192 bits are set");
        (0..100).for_each(|number| reference.forget(&key(number)));
        assert!(!(0..100).any(|number| reference.is_noted(&key(number))));
        assert_eq!(reference.bytes(), 1 << 10);
        assert_eq!(Reference::new(1500).bytes(), 1 << 10, "at most the given size");
    }

    #[test]
    fn ghosts_are_known_for_one_generation_at_least_and_two_at_most() {
        let ghosts = Ghosts::new(64 << 10);
        let keys = 4 * GHOSTS_MIN;
        let generation = keys / 2;
        (0..3 * generation).for_each(|number| ghosts.note(&key(number), keys));
        let known = |numbers: std::ops::Range<u64>| numbers.filter(|n| ghosts.knows(&key(*n))).count() as u64;
        assert_eq!(known(2 * generation..3 * generation), generation);
        assert_eq!(known(generation..2 * generation), generation);
        assert!(known(0..generation) < generation / 50, "they are forgotten");
        assert!(known(100_000..101_000) < 20, "they were never evicted");
        assert_eq!(ghosts.bytes(), 64 << 10);
    }

    #[test]
    fn copies_are_a_share_of_what_is_put() {
        let mut budget = CopyBudget::default();
        assert_eq!(budget.left_bytes(10_000, 1 << 20), 200);
        budget.spend(150);
        assert_eq!(budget.left_bytes(10_000, 1 << 20), 50);
        assert_eq!(budget.left_bytes(20_000, 1 << 20), 250);
        assert_eq!(budget.left_bytes(1 << 40, 1 << 20), 1 << 20, "unused budget is limited");
        budget.spend(2 << 20);
        assert_eq!(budget.left_bytes(1 << 40, 1 << 20), 0);
    }

    #[test]
    fn look_takes_first_cold_segment_or_coldest_of_several() {
        let mut look = Look::default();
        assert_eq!(look.see(0.9, 1), None);
        assert!(!look.is_over(0.95));
        assert_eq!(look.see(0.1, 2), Some(1));
        assert!(look.is_over(0.95));
        assert_eq!(look.coldest(), Some((0.1, 2)));
        let mut look = Look::default();
        let warmer: Vec<_> =
            (0..LOOKS).filter_map(|at| look.see(0.5 + (at as f64 - 3.0).abs() / 100.0, at)).collect();
        assert_eq!(warmer, [0, 1, 2, 4, 5, 6, 7]);
        assert!(look.is_over(0.95));
        assert_eq!(look.coldest(), Some((0.5, 3)));
        let mut look = Look::default();
        (0..2 * LOOKS).for_each(|at| {
            let _ = look.see(0.97, at);
        });
        assert!(!look.is_over(0.95), "there may be a colder one");
    }
}
