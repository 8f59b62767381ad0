//! The collector: it empties superblocks, at the pace at which the host fills them.
//!
//! A victim with `v` valid IUs of `s` gives room for `s − v` writes of the host. So each of those pays for `v / (s − v)` moves,
//! and nobody waits for a whole superblock. Only if the host needs a superblock and the last free one is all there is, does
//! the collector finish its victim first.

use super::{AppendPoint, Cause, Drive, Flash};

/// Free superblocks without which the host gets none: the collector may need one of them itself.
const FREE_FOR_COLLECTOR: usize = 2;

/// A victim on its way out.
#[derive(Debug)]
pub(super) struct Collection {
    victim: u32,
    /// The next place in it.
    next: u32,
    /// Moves that are paid for at each program of the host: this many for so many programs.
    moves: u32,
    programs: u32,
    /// What has been paid and not been used.
    credit: u32,
}

impl<F: Flash> Drive<F> {
    /// The moves that one program of the host pays for.
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

    /// Gives the host a superblock, whatever that takes.
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

    /// Moves the victim's next valid IU; `false` if none was left, and the victim is erased.
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

    /// Where the next moved IU of a handle goes.
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

    /// Erases the victim once nothing in it is valid.
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
