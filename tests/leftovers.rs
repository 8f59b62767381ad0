//! What earlier openings left on the medium is never taken for something of a later one.

mod support;

use esker::Store;
use esker_device::{MemoryDevice, MemoryOptions};
use esker_log::{FOOTER_BYTES, Secret, Superblock, free_marker};

use support::{Config, Tiers, World};

fn get(world: &World, store: &Store, key: &str) -> Option<Vec<u8>> {
    world.runtime.run(store.get(key)).expect("the get succeeds").map(Into::into)
}

fn put(world: &World, store: &Store, key: &str, value: &[u8]) {
    world.runtime.run(store.put(key.to_owned(), value.to_vec())).expect("the put is acknowledged");
}

/// The bytes of the one device of a store, and where the slots are in them.
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

    /// The world goes on with these bytes, after a power cut.
    fn put_into(self, world: &mut World) {
        world.power_cut();
        world.capacity =
            Some(MemoryDevice::from_bytes(MemoryOptions::new(self.bytes.len() as u64), &self.bytes));
    }
}

/// A slot whose segment was freed has that segment's marker at its end until the next one in it is sealed. A later
/// opening must not give that segment's number out again, or else what it writes there would seem to be freed.
#[test]
fn the_number_of_a_freed_segment_is_not_given_out_again() {
    let mut world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    put(&world, &store, "before", b"1");
    drop(store);
    // The newest segments were freed, and those after them left nothing.
    let mut medium = Medium::of(&world);
    for slot in 1..8 {
        let marker = free_marker(&medium.secret, slot as u64 + 1);
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
