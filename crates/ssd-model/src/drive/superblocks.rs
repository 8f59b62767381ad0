//! Superblocks: their state (free, open or sealed), valid IUs and erase counts.
//!
//! The superblock that was freed first is opened first, which levels wear among the superblocks that change at all.

use std::collections::VecDeque;

use super::counters::Wear;
use super::shape::Collector;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Sealed,
}

#[derive(Debug)]
struct Superblock {
    state: State,
    /// Handle of its IUs.
    handle: u16,
    erases: u32,
    /// Sequence number of its sealing.
    sealed_at: u64,
}

#[derive(Debug)]
pub(super) struct Superblocks {
    all: Vec<Superblock>,
    /// Valid IUs per superblock. In a separate array, because every write changes two of them.
    valid: Vec<u32>,
    free: VecDeque<u32>,
    superblock_ius: u32,
    sealed: u64,
}

impl Superblocks {
    pub(super) fn new(count: u32, superblock_ius: u32) -> Superblocks {
        let empty = || Superblock { state: State::Free, handle: 0, erases: 0, sealed_at: 0 };
        Superblocks {
            all: std::iter::repeat_with(empty).take(count as usize).collect(),
            valid: vec![0; count as usize],
            free: (0..count).collect(),
            superblock_ius,
            sealed: 0,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Opens a free superblock for a handle.
    pub(super) fn open(&mut self, handle: u16) -> u32 {
        let superblock = self.free.pop_front().expect("the collector keeps superblocks free");
        let opened = &mut self.all[superblock as usize];
        assert_eq!(opened.state, State::Free);
        (opened.state, opened.handle) = (State::Open, handle);
        superblock
    }

    /// Seals an open superblock; from then on it may be collected.
    pub(super) fn seal(&mut self, superblock: u32) {
        let closed = &mut self.all[superblock as usize];
        assert_eq!(closed.state, State::Open);
        (closed.state, closed.sealed_at) = (State::Sealed, self.sealed);
        self.sealed += 1;
    }

    /// Erases a sealed superblock without valid IUs.
    pub(super) fn erase(&mut self, superblock: u32) {
        let erased = &mut self.all[superblock as usize];
        let valid = self.valid[superblock as usize];
        assert!(erased.state == State::Sealed && valid == 0, "what is erased is not needed");
        erased.state = State::Free;
        erased.erases += 1;
        self.free.push_back(superblock);
    }

    pub(super) fn validate(&mut self, superblock: u32) {
        self.valid[superblock as usize] += 1;
    }

    pub(super) fn invalidate(&mut self, superblock: u32) {
        self.valid[superblock as usize] -= 1;
    }

    pub(super) fn valid(&self, superblock: u32) -> u32 {
        self.valid[superblock as usize]
    }

    pub(super) fn handle(&self, superblock: u32) -> u16 {
        self.all[superblock as usize].handle
    }

    /// Returns the best sealed superblock to collect next, if any would free space.
    pub(super) fn victim(&self, collector: Collector) -> Option<u32> {
        let sealed = self.all.iter().zip(&self.valid).enumerate();
        let sealed = sealed
            .filter(|(_, (one, valid))| one.state == State::Sealed && **valid < self.superblock_ius)
            .map(|(superblock, (one, valid))| (superblock as u32, one, *valid));
        let best = match collector {
            Collector::Greedy => sealed.min_by_key(|(_, one, valid)| (*valid, one.sealed_at)),
            Collector::CostBenefit => sealed.max_by(|(_, one, valid), (_, other, other_valid)| {
                self.benefit(one, *valid).total_cmp(&self.benefit(other, *other_valid))
            }),
        };
        best.map(|(superblock, _, _)| superblock)
    }

    fn benefit(&self, one: &Superblock, valid: u32) -> f64 {
        let used = f64::from(valid) / f64::from(self.superblock_ius);
        let age = (self.sealed - one.sealed_at) as f64;
        age * (1.0 - used) / (2.0 * used).max(f64::MIN_POSITIVE)
    }

    pub(super) fn wear(&self) -> Wear {
        let erases = || self.all.iter().map(|one| one.erases);
        Wear {
            least: erases().min().unwrap_or(0),
            mean: erases().map(f64::from).sum::<f64>() / self.all.len() as f64,
            most: erases().max().unwrap_or(0),
        }
    }
}
