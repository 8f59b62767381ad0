//! Simulates the store's own eviction rule with records of equal size.

use std::collections::{BTreeMap, VecDeque};

use esker_gc::{CopyBudget, Ghosts, Look, Reference, ends_probation};
use esker_log::{KeyHash, Stream};

use super::lru::Cache;

const NOWHERE: u32 = u32::MAX;
/// Indices of the segments being filled: with puts, with puts of recently evicted keys, and with copies.
const PUTS: usize = 0;
const BACK: usize = 1;
const COPIES: usize = 2;
const STREAMS: [Stream; 3] = [Stream::LANE, Stream::LONG_LIVED, Stream::RELOCATED[1]];

/// A full segment.
struct Full {
    number: u32,
    stream: Stream,
}

/// CLOCK over segments, with ghosts and a copy budget.
pub(super) struct Segments {
    asked: Reference,
    dropped: Ghosts,
    budget: CopyBudget,
    /// The segment of each key.
    segment_of: Vec<u32>,
    segments: BTreeMap<u32, Vec<u32>>,
    open: [u32; 3],
    /// Full segments, in the order of the CLOCK hand.
    order: VecDeque<Full>,
    next: u32,
    capacity: usize,
    records: usize,
    len: u64,
    puts: u64,
    copies: u64,
}

impl Segments {
    /// A cache of `capacity` segments of `records` records. Each of the two tables has `bits` bits per
    /// record.
    pub(super) fn new(keys: usize, capacity: usize, records: usize, bits: u64) -> Segments {
        let bytes = (capacity * records) as u64 * bits / 8;
        let mut cache = Segments {
            asked: Reference::new(bytes),
            dropped: Ghosts::new(bytes),
            budget: CopyBudget::default(),
            segment_of: vec![NOWHERE; keys],
            segments: BTreeMap::new(),
            open: [NOWHERE; 3],
            order: VecDeque::new(),
            next: 0,
            capacity,
            records,
            len: 0,
            puts: 0,
            copies: 0,
        };
        (PUTS..=COPIES).for_each(|point| cache.open_one(point));
        cache
    }

    /// Stands in for the store's keyed hash.
    fn hash(key: u32) -> KeyHash {
        let mixed = (u64::from(key) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        KeyHash { slot: u64::from(key), check: mixed ^ mixed >> 32 }
    }

    fn open_one(&mut self, point: usize) {
        self.segments.insert(self.next, Vec::with_capacity(self.records));
        self.open[point] = self.next;
        self.next += 1;
    }

    fn append(&mut self, key: u32, point: usize) {
        let segment = self.open[point];
        self.segment_of[key as usize] = segment;
        let keys = self.segments.get_mut(&segment).expect("it is open");
        keys.push(key);
        if keys.len() == self.records {
            self.order.push_back(Full { number: segment, stream: STREAMS[point] });
            self.open_one(point);
        }
    }

    fn is_asked(&self, segment: u32, key: u32) -> bool {
        self.segment_of[key as usize] == segment && self.asked.is_noted(&Segments::hash(key))
    }

    /// Frees a segment: copies its requested keys within the budget, and evicts the others.
    fn make_room(&mut self) {
        let of_all = self.order.iter().map(|segment| (u64::from(segment.number), segment.stream));
        let coldest = match ends_probation(of_all) {
            Some(first) => {
                self.order.retain(|segment| u64::from(segment.number) != first);
                first as u32
            }
            None => self.coldest(),
        };
        let keys = self.segments.remove(&coldest).expect("it is there");
        let mut left = self.budget.left_bytes(self.puts, self.records as u64);
        for key in
            keys.into_iter().filter(|key| self.segment_of[*key as usize] == coldest).collect::<Vec<_>>()
        {
            let hash = Segments::hash(key);
            if left > 0 && self.asked.is_noted(&hash) {
                (left, self.copies) = (left - 1, self.copies + 1);
                self.budget.spend(1);
                self.asked.forget(&hash);
                self.append(key, COPIES);
            } else {
                self.segment_of[key as usize] = NOWHERE;
                self.len -= 1;
                self.asked.forget(&hash);
                self.dropped.note(&hash, self.len);
            }
        }
    }
}

impl Segments {
    /// Moves the CLOCK hand to the next segment to free.
    fn coldest(&mut self) -> u32 {
        let mut look = Look::default();
        for _ in 0..self.order.len() {
            let Some(segment) = self.order.pop_front() else { break };
            let keys = &self.segments[&segment.number];
            let kept = keys.iter().filter(|key| self.is_asked(segment.number, **key)).count();
            if let Some(warmer) = look.see(kept as f64 / self.records as f64, segment) {
                let number = warmer.number;
                let keys = self.segments[&number].iter();
                let current = keys.filter(|key| self.segment_of[**key as usize] == number);
                current.for_each(|key| self.asked.forget(&Segments::hash(*key)));
                self.order.push_back(warmer);
            }
            if look.is_over(1.0) {
                break;
            }
        }
        look.coldest().expect("there is a full segment").1.number
    }
}

impl Cache for Segments {
    fn ask(&mut self, key: u32) -> bool {
        let hash = Segments::hash(key);
        if self.segment_of[key as usize] != NOWHERE {
            self.asked.note(&hash);
            return true;
        }
        (self.puts, self.len) = (self.puts + 1, self.len + 1);
        self.append(key, if self.dropped.knows(&hash) { BACK } else { PUTS });
        while self.segments.len() > self.capacity {
            self.make_room();
        }
        false
    }

    fn copies(&self) -> u64 {
        self.copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_outlives_a_scan_and_little_is_copied() {
        let mut cache = Segments::new(20_000, 32, 64, 8);
        let mut missed = 0;
        for key in 500..20_000 {
            cache.ask(key);
            missed += u64::from(!cache.ask(key % 200));
        }
        assert!(missed < 1000, "{missed} of 19,500 requests for 200 keys missed");
        assert!(cache.copies() * 50 <= cache.puts, "{} copies of {} puts", cache.copies(), cache.puts);
        let there = cache.segment_of.iter().filter(|segment| **segment != NOWHERE).count();
        assert_eq!(there as u64, cache.len);
        assert!(there <= 32 * 64);
    }
}
