//! The coalescing buffer: partially written IUs that wait for the rest of their sectors.
//!
//! It lets a drive accept sequential writes of 4 KiB without read-modify-write. When it is full, the IU with the oldest
//! last write is evicted.

use super::Handle;

/// Result of adding a part of an IU.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The IU waits for the rest.
    Held,
    /// All sectors of the IU are present, and the buffer has dropped it.
    Complete,
    /// An IU was evicted, and needs a read-modify-write.
    Evicted(u32, Handle),
}

#[derive(Debug)]
pub(super) struct Coalescer {
    /// IUs in the order of the last write to them.
    ius: Vec<u32>,
    /// Per IU, its present sectors as bits, and the handle of the last write.
    parts: Vec<(u128, Handle)>,
    room: usize,
    whole: u128,
}

impl Coalescer {
    pub(super) fn new(room: usize, sectors_per_iu: u32) -> Coalescer {
        let (ius, parts) = (Vec::with_capacity(room + 1), Vec::with_capacity(room + 1));
        Coalescer { ius, parts, room, whole: sectors(0, sectors_per_iu) }
    }

    pub(super) fn holds(&self, iu: u32) -> bool {
        self.ius.contains(&iu)
    }

    /// Drops the buffered part of an IU, because all of it was written or trimmed.
    pub(super) fn forget(&mut self, iu: u32) {
        self.take(iu);
    }

    /// Adds a part of an IU.
    pub(super) fn add(&mut self, iu: u32, first: u32, count: u32, handle: Handle) -> Outcome {
        let before = self.take(iu).map_or(0, |(there, _)| there);
        let there = before | sectors(first, count);
        if there == self.whole {
            return Outcome::Complete;
        }
        self.ius.push(iu);
        self.parts.push((there, handle));
        if self.ius.len() <= self.room {
            return Outcome::Held;
        }
        let (iu, handle) = self.take_oldest().expect("one was added");
        Outcome::Evicted(iu, handle)
    }

    pub(super) fn take_oldest(&mut self) -> Option<(u32, Handle)> {
        let oldest = *self.ius.first()?;
        self.take(oldest).map(|(_, handle)| (oldest, handle))
    }

    fn take(&mut self, iu: u32) -> Option<(u128, Handle)> {
        let at = self.ius.iter().position(|held| *held == iu)?;
        self.ius.remove(at);
        Some(self.parts.remove(at))
    }
}

/// Returns sectors of an IU as a bit mask.
fn sectors(first: u32, count: u32) -> u128 {
    (u128::MAX >> (128 - count)) << first
}
