//! The I/O scheduler: short operations go at once, long ones in pieces while there are short ones.
//!
//! A device serves in turn what it was given. A read of 4 KiB that comes after 8 MiB of frames and relocation waits for all
//! of it, which takes milliseconds. So while short operations come, long ones go in pieces of [`PIECE_BYTES`], one piece at
//! a time, and one more for every [`SHORTS_PER_PIECE`] short ones in flight: many readers wait for each other anyway, and
//! long ones keep a share beside them. When none came for [`SHORT_EXPECTED_FOR`], long ones go whole, all at once. Decision 0010 has
//! the figures.

use std::collections::VecDeque;
use std::time::Duration;

use super::operation::{Length, Operation};

/// A piece of a long operation; one write unit where that is more.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// With so many short operations in flight, one piece more is.
const SHORTS_PER_PIECE: usize = 4;
/// For so long after a short operation the next one is waited for: a reader a hundred times a second is one.
const SHORT_EXPECTED_FOR: Duration = Duration::from_millis(10);

/// Long operations that wait, and what is in flight.
pub(super) struct Scheduler<T = Operation> {
    /// Long ones of which there is something left to do, the next one first.
    waiting: VecDeque<T>,
    long_in_flight: usize,
    short_in_flight: usize,
    /// Until when another short one is expected.
    short_until: Option<Duration>,
    clock: Box<dyn Fn() -> Duration + Send>,
}

impl<T> Scheduler<T> {
    pub(super) fn new(clock: impl Fn() -> Duration + Send + 'static) -> Scheduler<T> {
        let clock = Box::new(clock);
        Scheduler {
            waiting: VecDeque::new(),
            long_in_flight: 0,
            short_in_flight: 0,
            short_until: None,
            clock,
        }
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
    pub(super) fn most_bytes(&mut self) -> usize {
        if self.expects_short() { PIECE_BYTES } else { usize::MAX }
    }

    /// An operation, or a piece of it, goes to the kernel.
    pub(super) fn began(&mut self, length: Length) {
        match length {
            Length::Short => {
                self.short_in_flight += 1;
                self.short_until = Some((self.clock)() + SHORT_EXPECTED_FOR);
            }
            Length::Long => self.long_in_flight += 1,
            Length::Other => {}
        }
    }

    /// It came back.
    pub(super) fn ended(&mut self, length: Length) {
        match length {
            Length::Short => self.short_in_flight -= 1,
            Length::Long => self.long_in_flight -= 1,
            Length::Other => {}
        }
    }

    /// Those that wait, which nobody is going to serve.
    pub(super) fn give_up(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }

    /// Never while no long one is in flight, so that those who wait get on when it comes back.
    fn is_full(&mut self) -> bool {
        self.long_in_flight > self.short_in_flight / SHORTS_PER_PIECE && self.expects_short()
    }

    fn expects_short(&mut self) -> bool {
        if self.short_in_flight == 0 && self.short_until.is_some_and(|until| (self.clock)() >= until) {
            self.short_until = None;
        }
        self.short_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn long_ones_go_whole_and_all_at_once_where_there_are_no_short_ones() {
        let mut scheduler = Scheduler::new(|| Duration::ZERO);
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
        let mut scheduler = Scheduler::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
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
        let mut scheduler = Scheduler::new(|| Duration::ZERO);
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
