//! The I/O scheduler: short operations go at once, long ones in pieces while there are short ones.
//!
//! A device serves in turn what it was given. A read of 4 KiB that comes after 8 MiB of frames and relocation waits for all
//! of it, which takes milliseconds. So while short operations come, long ones go in pieces of [`PIECE_BYTES`], one piece at
//! a time, and one more for every [`SHORTS_PER_PIECE`] short ones in flight: many readers wait for each other anyway, and
//! long ones keep a share beside them. When none came for [`SHORT_EXPECTED_FOR`], long ones go whole, all at once. Decision 0010 has
//! the figures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::operation::{Length, Operation};

/// A piece of a long operation; one write unit where that is more.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// With so many short operations in flight, one piece more is.
const SHORTS_PER_PIECE: usize = 4;
/// For so long after a short operation the next one is waited for: a reader a hundred times a second is one.
const SHORT_EXPECTED_FOR: Duration = Duration::from_millis(10);

/// Short operations of one device, whichever ring they are on.
pub(super) struct Shorts {
    in_flight: AtomicUsize,
    /// Until when another one is expected, in microseconds of the clock; 0 if none is.
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

/// Long operations that wait, and what is in flight.
pub(super) struct Scheduler<T = Operation> {
    /// Long ones of which there is something left to do, the next one first.
    waiting: VecDeque<T>,
    long_in_flight: usize,
    shorts: Arc<Shorts>,
}

impl<T> Scheduler<T> {
    pub(super) fn new(shorts: Arc<Shorts>) -> Scheduler<T> {
        Scheduler { waiting: VecDeque::new(), long_in_flight: 0, shorts }
    }

    /// A long operation waits for its turn, behind the others.
    pub(super) fn wait(&mut self, long: T) {
        self.waiting.push_back(long);
    }

    /// The long operation whose turn it is, if it is anybody's.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.waiting.is_empty() || self.is_full() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// How many bytes of a long operation may go now.
    pub(super) fn most_bytes(&self) -> usize {
        if self.shorts.are_expected() { PIECE_BYTES } else { usize::MAX }
    }

    /// An operation, or a piece of it, goes to the kernel.
    pub(super) fn began(&mut self, length: Length) {
        match length {
            Length::Short => self.shorts.began(),
            Length::Long => self.long_in_flight += 1,
            Length::Other => {}
        }
    }

    /// It came back.
    pub(super) fn ended(&mut self, length: Length) {
        match length {
            Length::Short => self.shorts.ended(),
            Length::Long => self.long_in_flight -= 1,
            Length::Other => {}
        }
    }

    /// Those that wait, which nobody is going to serve.
    pub(super) fn give_up(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }

    /// Never while no long one is in flight, so that those who wait get on when it comes back.
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
    fn long_ones_go_whole_and_all_at_once_where_there_are_no_short_ones() {
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
        // The short one is back, but another may come soon.
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
