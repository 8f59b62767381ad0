//! The I/O scheduler: short operations are submitted at once, long ones in pieces while short ones are in progress.
//!
//! A device serves operations roughly in order. A read of 4 KiB behind 8 MiB of frames and relocation waits for all of
//! it, which takes milliseconds. So while short operations arrive, long ones are submitted in pieces of
//! [`PIECE_BYTES`], one piece at a time plus one for every [`SHORTS_PER_PIECE`] short ones in flight: many concurrent
//! readers delay each other anyway, and long operations keep a share of the device. If no short operation arrived for
//! [`SHORT_EXPECTED_FOR`], long ones are submitted whole, all at once. Figures: decision 0010.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::operation::{Length, Operation};

/// Piece size in bytes of a long operation; one write unit if that is larger.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// Number of short operations in flight per additional piece of long ones in flight.
const SHORTS_PER_PIECE: usize = 4;
/// Time after a short operation during which another one is expected, long enough for a reader with 100 reads per
/// second.
const SHORT_EXPECTED_FOR: Duration = Duration::from_millis(10);

/// Short operations of one device, on all rings.
pub(super) struct Shorts {
    in_flight: AtomicUsize,
    /// Time until which another one is expected, in microseconds of the clock; 0: none.
    until: AtomicU64,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Shorts {
    pub(super) fn new() -> Shorts {
        #[expect(clippy::disallowed_methods, reason = "it only says in which order a device is asked")]
        let began = Instant::now();
        Shorts::with_clock(move || began.elapsed())
    }

    fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Shorts {
        Shorts { in_flight: AtomicUsize::new(0), until: AtomicU64::new(0), clock: Box::new(clock) }
    }

    fn now(&self) -> u64 {
        (self.clock)().as_micros() as u64
    }

    pub(super) fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.until.store(self.now() + SHORT_EXPECTED_FOR.as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    fn are_expected(&self) -> bool {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let until = self.until.load(Ordering::Relaxed);
        until > 0 && self.now() < until
    }
}

/// Waiting long operations, and counts of operations in flight.
pub(super) struct Scheduler<T = Operation> {
    /// Long operations with a remainder to submit, in order.
    waiting: VecDeque<T>,
    long_in_flight: usize,
    shorts: Arc<Shorts>,
}

impl<T> Scheduler<T> {
    pub(super) fn new(shorts: Arc<Shorts>) -> Scheduler<T> {
        Scheduler { waiting: VecDeque::new(), long_in_flight: 0, shorts }
    }

    /// Appends a long operation to the wait queue.
    pub(super) fn wait(&mut self, long: T) {
        self.waiting.push_back(long);
    }

    /// Returns the next long operation, or `None` if none may be submitted now.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.waiting.is_empty() || self.is_full() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Returns the bytes of a long operation that may be submitted now.
    pub(super) fn most_bytes(&self) -> usize {
        if self.shorts.are_expected() { PIECE_BYTES } else { usize::MAX }
    }

    /// Counts an operation, or a piece of one, as submitted to the kernel.
    pub(super) fn began(&mut self, length: Length) {
        match length {
            Length::Short => self.shorts.began(),
            Length::Long => self.long_in_flight += 1,
            Length::Other => {}
        }
    }

    /// Counts it as completed.
    pub(super) fn ended(&mut self, length: Length) {
        match length {
            Length::Short => self.shorts.ended(),
            Length::Long => self.long_in_flight -= 1,
            Length::Other => {}
        }
    }

    /// Returns the waiting operations, which will not be submitted any more.
    pub(super) fn give_up(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns true if no further long operation may be submitted. False while none is in flight, because a completion
    /// of one resumes the others.
    fn is_full(&self) -> bool {
        let shorts = self.shorts.in_flight.load(Ordering::Relaxed);
        self.long_in_flight > shorts / SHORTS_PER_PIECE && self.shorts.are_expected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rest<T>() -> Scheduler<T> {
        Scheduler::new(Arc::new(Shorts::with_clock(|| Duration::ZERO)))
    }

    #[test]
    fn scheduler_sends_long_operations_whole_without_short_ones() {
        let mut scheduler = at_rest();
        for number in 0..10 {
            scheduler.wait(number);
        }
        for number in 0..10 {
            assert_eq!(scheduler.next(), Some(number));
            assert_eq!(scheduler.most_bytes(), usize::MAX);
            scheduler.began(Length::Long);
        }
        assert_eq!(scheduler.next(), None);
    }

    #[test]
    fn beside_short_ones_they_go_piece_by_piece_and_take_turns() {
        let millis = Arc::new(AtomicU64::new(0));
        let clock = millis.clone();
        let shorts = Shorts::with_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        let mut scheduler = Scheduler::new(Arc::new(shorts));
        scheduler.began(Length::Short);
        scheduler.wait('a');
        scheduler.wait('b');
        for expected in ['a', 'b', 'a', 'b'] {
            assert_eq!(scheduler.most_bytes(), PIECE_BYTES);
            assert_eq!(scheduler.next(), Some(expected));
            scheduler.began(Length::Long);
            assert_eq!(scheduler.next(), None);
            scheduler.ended(Length::Long);
            scheduler.wait(expected);
        }
        scheduler.began(Length::Other);
        scheduler.ended(Length::Other);
        // The short one has completed, but another may arrive soon.
        scheduler.ended(Length::Short);
        assert_eq!((scheduler.most_bytes(), scheduler.next()), (PIECE_BYTES, Some('a')));
        scheduler.began(Length::Long);
        assert_eq!(scheduler.next(), None);
        millis.store(SHORT_EXPECTED_FOR.as_millis() as u64, Ordering::Relaxed);
        assert_eq!((scheduler.most_bytes(), scheduler.next()), (usize::MAX, Some('b')));
    }

    #[test]
    fn beside_many_short_ones_there_are_more_pieces() {
        let mut scheduler = at_rest();
        for _ in 0..16 {
            scheduler.began(Length::Short);
            scheduler.wait(());
        }
        let mut pieces = 0;
        while scheduler.next().is_some() {
            scheduler.began(Length::Long);
            pieces += 1;
        }
        assert_eq!(pieces, 1 + 16 / SHORTS_PER_PIECE);
    }
}
