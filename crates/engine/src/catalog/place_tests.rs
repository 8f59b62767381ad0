use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;

use crate::base::word::{ModelWord, Word, check_interleavings};
use crate::segments::slot::SegmentNumber;

/// A slot: the number of its segment, and the number under which the record at the offset verifies.
#[derive(Default)]
struct Slot {
    number: SegmentNumber<ModelWord>,
    record: ModelWord,
}

/// The index word of a key, which leads to one of two slots. A device read comes after the write, so it has the
/// ordering of a lock.
#[derive(Default)]
struct World {
    pointer: ModelWord,
    slots: [Slot; 2],
}

impl World {
    fn write(&self, slot: usize, segment: u64) {
        self.slots[slot].number.set(segment);
        self.slots[slot].record.store(segment, Ordering::Release);
    }

    fn swing(&self, slot: u64) {
        self.pointer.store(slot, Ordering::Release);
    }

    /// Markers are written first; then the slot is free.
    fn free(&self, slot: usize) {
        self.slots[slot].record.store(0, Ordering::Release);
        self.slots[slot].number.set(0);
    }

    /// Follows the steps of a get. Returns the number of the segment in which it found the key's record.
    fn get(&self) -> u64 {
        loop {
            let pointer = self.pointer.load(Ordering::Acquire);
            let slot = &self.slots[pointer as usize];
            let is_current = || self.pointer.load(Ordering::Acquire) == pointer;
            if let Some(number) = in_order(|| slot.number.get(), is_current) {
                if slot.record.load(Ordering::Acquire) == number {
                    return number;
                }
                let is_same = || slot.number.get() == number;
                assert!(!is_there(is_current, is_same), "damage, where there is none");
            }
            ModelWord::pause(0);
        }
    }
}

/// The key's record is in segment 1 in the first slot. It is relocated to segment 2 in the other slot; the first slot
/// is freed, and reused for segment 3.
fn relocating(then: impl Fn(&World) + Send + Sync + Copy + 'static, may_find: &'static [u64]) {
    check_interleavings(move || {
        let world = Arc::new(World::default());
        world.write(0, 1);
        let relocated = world.clone();
        let writer = loom::thread::spawn(move || {
            relocated.write(1, 2);
            relocated.swing(1);
            relocated.free(0);
            relocated.write(0, 3);
            then(&relocated);
        });
        let found = world.get();
        assert!(may_find.contains(&found), "the record that was found is another key's, in segment {found}");
        writer.join().expect("it does not panic");
    });
}

#[test]
fn every_interleaving_with_a_reuse_of_the_slot_finds_the_key() {
    relocating(|_| {}, &[1, 2]);
}

/// The key is written again, to its previous location: the pointer is the same, the segment is not.
#[test]
fn key_returning_to_same_place_is_found_in_every_interleaving() {
    relocating(|world| world.swing(0), &[1, 2, 3]);
}
