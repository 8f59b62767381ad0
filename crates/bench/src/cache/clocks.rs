//! Published eviction rules that keep records in put order: FIFO, CLOCK, SIEVE and S3-FIFO.
//!
//! A log can implement the first two if it copies the kept records. SIEVE shows the possible hit ratio if
//! records need not be moved, and S3-FIFO if they may be; its copies are counted.

use std::collections::VecDeque;

use super::lru::{Cache, Lru};

/// FIFO that reinserts its oldest record if that was requested (CLOCK, FIFO-reinsertion). Reinsertions
/// are limited to a share of the puts.
pub(super) struct Clock {
    order: VecDeque<u32>,
    is_there: Vec<bool>,
    was_asked: Vec<bool>,
    capacity: usize,
    copies: u64,
    /// Allowed copies per put; 0 means plain FIFO.
    share: f64,
    allowed: f64,
}

impl Clock {
    pub(super) fn new(keys: usize, capacity: usize, share: f64) -> Clock {
        Clock {
            order: VecDeque::new(),
            is_there: vec![false; keys],
            was_asked: vec![false; keys],
            capacity,
            copies: 0,
            share,
            allowed: 0.0,
        }
    }
}

impl Cache for Clock {
    fn ask(&mut self, key: u32) -> bool {
        if self.is_there[key as usize] {
            self.was_asked[key as usize] = true;
            return true;
        }
        self.allowed = (self.allowed + self.share).min(self.capacity as f64);
        while self.order.len() >= self.capacity {
            let Some(oldest) = self.order.pop_front() else { break };
            let was_asked = std::mem::take(&mut self.was_asked[oldest as usize]);
            if was_asked && self.allowed >= 1.0 {
                (self.allowed, self.copies) = (self.allowed - 1.0, self.copies + 1);
                self.order.push_back(oldest);
            } else {
                self.is_there[oldest as usize] = false;
            }
        }
        self.is_there[key as usize] = true;
        self.order.push_back(key);
        false
    }

    fn copies(&self) -> u64 {
        self.copies
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a hand moves from the oldest to the newest record, and evicts the
/// first that was not requested.
pub(super) struct Sieve {
    order: Lru,
    was_asked: Vec<bool>,
    hand: Option<u32>,
}

impl Sieve {
    pub(super) fn new(keys: usize, capacity: usize) -> Sieve {
        Sieve { order: Lru::new(keys, capacity), was_asked: vec![false; keys], hand: None }
    }
}

impl Cache for Sieve {
    fn ask(&mut self, key: u32) -> bool {
        if self.order.has(key) {
            self.was_asked[key as usize] = true;
            return true;
        }
        if self.order.is_full() {
            let mut at = self.hand.or(self.order.next(None)).expect("it is full");
            while std::mem::take(&mut self.was_asked[at as usize]) {
                at = self.order.next(Some(at)).or(self.order.next(None)).expect("it is full");
            }
            self.hand = self.order.next(Some(at));
            self.order.take_out(at);
        }
        self.order.put_in(key);
        false
    }
}

/// The queue of a key in an [`S3Fifo`].
#[derive(Clone, Copy, PartialEq)]
enum Queue {
    None,
    Small,
    Main,
}

/// S3-FIFO (Yang et al., SOSP 2023): a small FIFO of a tenth of the capacity, from which records
/// requested twice move to the main one; and ghosts, which enter the main one at once.
pub(super) struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    is_in: Vec<Queue>,
    is_ghost: Vec<bool>,
    asked: Vec<u8>,
    capacity: usize,
    copies: u64,
}

impl S3Fifo {
    pub(super) fn new(keys: usize, capacity: usize) -> S3Fifo {
        S3Fifo {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_in: vec![Queue::None; keys],
            is_ghost: vec![false; keys],
            asked: vec![0; keys],
            capacity,
            copies: 0,
        }
    }

    fn evict_small(&mut self) {
        let Some(key) = self.small.pop_front() else { return };
        if std::mem::take(&mut self.asked[key as usize]) > 1 {
            self.is_in[key as usize] = Queue::Main;
            self.main.push_back(key);
            self.copies += 1;
            return;
        }
        self.is_in[key as usize] = Queue::None;
        self.is_ghost[key as usize] = true;
        self.ghosts.push_back(key);
        if self.ghosts.len() > self.capacity * 9 / 10
            && let Some(oldest) = self.ghosts.pop_front()
        {
            self.is_ghost[oldest as usize] = false;
        }
    }

    fn evict_main(&mut self) {
        let Some(key) = self.main.pop_front() else { return };
        if self.asked[key as usize] > 0 {
            self.asked[key as usize] -= 1;
            self.main.push_back(key);
            self.copies += 1;
        } else {
            self.is_in[key as usize] = Queue::None;
        }
    }
}

impl Cache for S3Fifo {
    fn ask(&mut self, key: u32) -> bool {
        let at = key as usize;
        if self.is_in[at] != Queue::None {
            self.asked[at] = 3.min(self.asked[at] + 1);
            return true;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            if self.small.len() >= self.capacity / 10 { self.evict_small() } else { self.evict_main() }
        }
        self.asked[at] = 0;
        self.is_in[at] = if self.is_ghost[at] { Queue::Main } else { Queue::Small };
        if self.is_ghost[at] {
            self.main.push_back(key)
        } else {
            self.small.push_back(key)
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

    fn hits(cache: &mut impl Cache, asked: &[u32]) -> Vec<bool> {
        asked.iter().map(|key| cache.ask(*key)).collect()
    }

    #[test]
    fn a_fifo_drops_what_was_put_first_and_a_clock_keeps_what_was_asked_for() {
        let asked = [1, 2, 3, 1, 4, 1];
        assert!(!hits(&mut Clock::new(10, 3, 0.0), &asked)[5], "1 was put first");
        let mut clock = Clock::new(10, 3, 1.0);
        assert!(hits(&mut clock, &asked)[5], "1 was asked for");
        assert_eq!(clock.copies(), 1);
    }

    #[test]
    fn a_sieve_drops_what_nobody_asked_for_and_moves_nothing() {
        let mut sieve = Sieve::new(10, 3);
        assert_eq!(
            hits(&mut sieve, &[1, 2, 3, 1, 4, 1, 3, 5, 3, 4]),
            [false, false, false, true, false, true, true, false, true, false]
        );
        assert_eq!(sieve.copies(), 0);
    }

    #[test]
    fn s3_fifo_drops_new_ones_first_unless_they_are_back() {
        let mut s3 = S3Fifo::new(100, 20);
        assert!(!(0..18).any(|key| s3.ask(key)));
        (0..18).chain(0..18).for_each(|key| assert!(s3.ask(key)));
        assert!(!(50..70).any(|key| s3.ask(key)));
        assert!((0..17).all(|key| s3.ask(key)), "what was asked for twice outlives a scan");
        assert!(s3.copies() >= 17 && !s3.ask(60), "60 was dropped");
        assert_eq!(*s3.main.back().expect("it has some"), 60, "and is back");
    }
}
