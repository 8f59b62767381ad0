//! Remains of earlier openings on the medium are never taken for data of a later one.

use esker::{Batch, Store};
use esker_device::{MemoryDevice, MemoryOptions};
use esker_log::{
    FOOTER_BYTES, FRAME_HEADER_BYTES, SEQUENCE_EPOCH_SHIFT, Secret, SlotStart, Superblock, free_marker,
    record_header_bytes, slot_start,
};

use crate::support::{Config, Tiers, World, value};

/// Without discards, the lowest free slot is taken next.
fn config() -> Config {
    Config { discard_after: None, ..Config::new(Tiers::Capacity) }
}

fn get(world: &World, store: &Store, key: &str) -> Option<Vec<u8>> {
    world.runtime.run(store.get(key)).expect("the get succeeds").map(Into::into)
}

fn put(world: &World, store: &Store, key: &str, value: &[u8]) {
    world.runtime.run(store.put(key.to_owned(), value.to_vec())).expect("the put is acknowledged");
}

/// The bytes of the only device of a store, and the position of its slots.
#[derive(Clone)]
struct Medium {
    bytes: Vec<u8>,
    data_offset: usize,
    segment_bytes: usize,
    secret: Secret,
}

impl Medium {
    fn of(world: &World) -> Medium {
        let bytes = world.capacity.as_ref().expect("it has a capacity tier").durable_snapshot();
        let superblock = Superblock::find(&bytes).expect("it was formatted");
        Medium {
            data_offset: superblock.data_offset as usize,
            segment_bytes: superblock.segment_bytes as usize,
            secret: superblock.secret(),
            bytes,
        }
    }

    fn slot(&mut self, slot: usize) -> &mut [u8] {
        let at = self.data_offset + slot * self.segment_bytes;
        &mut self.bytes[at..at + self.segment_bytes]
    }

    /// Restores, from `from` on, the earlier bytes of a slot that was written a second time.
    fn keep_of(&mut self, earlier: &mut Medium, slot: usize, from: usize) {
        self.slot(slot)[from..].copy_from_slice(&earlier.slot(slot)[from..]);
    }

    /// Continues the world with these bytes, after a power failure.
    fn put_into(self, world: &mut World) {
        world.power_cut();
        world.capacity =
            Some(MemoryDevice::from_bytes(MemoryOptions::new(self.bytes.len() as u64), &self.bytes));
    }
}

/// A slot whose segment was freed has that segment's marker at its end until the next segment in it is
/// sealed. A later opening must not reuse that segment's number, because otherwise its own segment in the
/// slot would seem to be freed.
#[test]
fn the_number_of_a_freed_segment_is_not_given_out_again() {
    let mut world = World::new(1, config());
    let store = world.open();
    put(&world, &store, "before", b"1");
    drop(store);
    // The newest segments were freed, and later ones left no trace. They had the numbers that the next
    // opening would assign if it continued from the remaining segment.
    let mut medium = Medium::of(&world);
    let secret = medium.secret;
    let SlotStart::Frame(first) = slot_start(medium.slot(0), &secret, 0) else {
        panic!("there is a segment in the first slot")
    };
    for slot in 1..8 {
        let marker = free_marker(&secret, first.segment + ((slot as u64) << 16) + 1, slot as u32);
        let slot = medium.slot(slot);
        let end = slot.len() - FOOTER_BYTES;
        slot[..marker.len()].copy_from_slice(&marker);
        slot[end..].copy_from_slice(&marker);
    }
    medium.put_into(&mut world);
    let store = world.open();
    put(&world, &store, "after", b"2");
    world.power_cut();
    drop(store);
    let store = world.open();
    assert_eq!(get(&world, &store, "before").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&world, &store, "after").as_deref(), Some(&b"2"[..]));
    drop(store);
    world.end();
}

/// A power failure can preserve any sectors of a segment's first frame except the one with its header.
/// The next opening does not find that segment, and writes another one over it, of which another power
/// failure can again preserve any sectors.
#[test]
fn records_of_unknown_segment_complete_no_frame_of_another() {
    const SECTOR_BYTES: usize = 512;
    // So that a record ends at a sector boundary.
    let header = record_header_bytes(2, SECTOR_BYTES + 1, 1 << SEQUENCE_EPOCH_SHIFT | 1, None);
    let value_bytes = 2 * SECTOR_BYTES - FRAME_HEADER_BYTES - header - 2;
    let write = |world: &World, keys: [&'static str; 3]| {
        let store = world.open();
        let mut batch = Batch::new();
        for key in keys {
            batch.put(key, value(key.as_bytes(), 1, value_bytes));
        }
        world.runtime.run(store.write(batch)).expect("the batch is acknowledged");
        drop(store);
        Medium::of(world)
    };
    let mut world = World::new(1, config());
    let mut earlier = write(&world, ["a0", "a1", "a2"]);
    earlier.slot(0)[..SECTOR_BYTES].fill(0);
    earlier.clone().put_into(&mut world);
    let mut later = write(&world, ["b0", "b1", "b2"]);
    later.keep_of(&mut earlier, 0, 2 * SECTOR_BYTES);
    later.put_into(&mut world);
    let store = world.open();
    for key in ["a0", "a1", "a2", "b0", "b1", "b2"] {
        assert!(get(&world, &store, key).is_none(), "{key} is part of a batch that is not whole");
    }
    drop(store);
    world.end();
}
