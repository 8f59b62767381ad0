//! The collector: it empties superblocks at the pace at which the host fills them.
//!
//! A victim with `v` valid IUs of `s` frees space for `s − v` host writes. So each of these writes pays for `v / (s −
//! v)` moves, and no write waits for a whole superblock. Only if the host needs a superblock and at most the
//! collector's last one is free does the collector finish its victim first.

use super::{AppendPoint, Cause, Drive, Flash};

/// Minimum number of free superblocks for opening one for the host: the collector may need one of them itself.
const FREE_FOR_COLLECTOR: usize = 2;

/// A victim being collected.
#[derive(Debug)]
pub(super) struct Collection {
    victim: u32,
    /// Next place to examine in the victim.
    next: u32,
    /// Moves per host program, as a fraction: `moves` for every `programs`.
    moves: u32,
    programs: u32,
    /// Moves that were paid for but not made yet.
    credit: u32,
}

impl<F: Flash> Drive<F> {
    /// Makes the moves that one host program pays for.
    pub(super) fn collect_a_little(&mut self) {
        if self.collection.is_none() {
            if self.superblocks.free() as u64 >= self.shape.free_target() {
                return;
            }
            self.start_collection();
        }
        let Some(collection) = &mut self.collection else { return };
        collection.credit += collection.moves;
        let mut due = 0;
        while collection.credit >= collection.programs {
            collection.credit -= collection.programs;
            due += 1;
        }
        for _ in 0..due {
            if !self.move_one() {
                return;
            }
        }
        self.finish_if_empty();
    }

    /// Collects until the host can open a superblock.
    pub(super) fn collect_until_there_is_room(&mut self) {
        while self.superblocks.free() < FREE_FOR_COLLECTOR {
            if self.collection.is_none() {
                self.start_collection();
            }
            assert!(self.collection.is_some(), "spare superblocks leave something to collect");
            while self.move_one() {}
        }
    }

    fn start_collection(&mut self) {
        let Some(victim) = self.superblocks.victim(self.shape.collector) else { return };
        let valid = self.superblocks.valid(victim);
        let programs = self.superblock_ius.get() - valid;
        self.collection = Some(Collection { victim, next: 0, moves: valid, programs, credit: 0 });
        self.finish_if_empty();
    }

    /// Moves the victim's next valid IU. Returns false if none was left, after erasing the victim.
    fn move_one(&mut self) -> bool {
        if self.finish_if_empty() {
            return false;
        }
        let Some(collection) = &mut self.collection else { return false };
        let (victim, first) = (collection.victim, collection.victim * self.superblock_ius.get());
        let found = (collection.next..self.superblock_ius.get())
            .find_map(|next| self.map.iu(first + next).map(|iu| (next, iu)));
        let (next, iu) = found.expect("valid IUs lie behind those that were moved");
        collection.next = next + 1;
        self.flash.read(first + next, self.shape.iu_bytes, Cause::Collect);
        self.counters.moved_ius += 1;
        let point = self.point_for_moved(self.superblocks.handle(victim));
        self.program(iu, point, Cause::Collect);
        !self.finish_if_empty()
    }

    /// Returns the append point for the next moved IU of a handle.
    fn point_for_moved(&mut self, handle: u16) -> AppendPoint {
        let point = self.moved[usize::from(handle)];
        let point = match point {
            Some(point) if point.next < self.superblock_ius.get() => point,
            _ => {
                self.seal(point);
                AppendPoint { superblock: self.superblocks.open(handle), next: 0 }
            }
        };
        self.moved[usize::from(handle)] = Some(AppendPoint { next: point.next + 1, ..point });
        point
    }

    /// Erases the victim once it has no valid IU.
    fn finish_if_empty(&mut self) -> bool {
        let Some(victim) = self.collection.as_ref().map(|collection| collection.victim) else { return true };
        if self.superblocks.valid(victim) > 0 {
            return false;
        }
        self.superblocks.erase(victim);
        self.counters.erases += 1;
        self.flash.erase(victim);
        self.collection = None;
        true
    }
}
