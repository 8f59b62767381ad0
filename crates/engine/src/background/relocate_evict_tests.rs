//! Tests of relocations that evict.

use super::*;

/// An evicted record leaves the index when the end of its slot is marked free, durably, and not before, because otherwise a
/// crash could bring back a key that a client has seen absent.
#[test]
fn evicted_record_stays_in_index_until_slot_end_is_marked() {
    let mut filled = Filled::new(Plan { when_full: WhenFull::Evict, ..Plan::new(31) }, 3);
    let victim = filled.sealed()[0];
    let bench = &filled.bench;
    let tier = bench.space.first_tier();
    let entries =
        bench.run(bench.space.read_entries(tier, victim)).expect("it is read").expect("it is whole");
    let found = Arc::new(Mutex::new(Vec::new()));
    let (seen, space, catalog, evicted) =
        (found.clone(), bench.space.clone(), bench.catalog.clone(), entries.clone());
    bench.devices[0].set_observer(Box::new(move |operation| {
        let slot = space.first_tier().slot_at(operation.offset);
        if operation.kind == OperationKind::Write && slot == Some(victim) {
            let is_there = |entry: &Entry| catalog.index.get(&entry.key_hash).is_some();
            seen.lock().push(evicted.iter().filter(is_there).count());
        }
    }));
    let offsets = entries.iter().map(|entry| entry.offset).collect();
    let done = bench.run(filled.relocator().evict(tier.name(), victim, 1.0, offsets));
    assert_eq!(done.expect("nothing fails"), Outcome::Freed(1));
    assert_eq!(
        *found.lock(),
        [entries.len(), 0],
        "when the end of the slot is marked, and when its start is"
    );
    assert_eq!(bench.space.counters.activity().records_evicted, entries.len() as u64);
    let hash = |key: &str| bench.catalog.hash(Keyspace::FIRST, key.as_bytes());
    let is_evicted = |key: &&String| entries.iter().any(|entry| entry.key_hash == hash(key));
    let gone: Vec<String> = filled.keys.keys().filter(is_evicted).cloned().collect();
    assert_eq!(gone.len(), entries.len());
    gone.iter().for_each(|key| filled.expect(key, None));
    filled.check();
}

/// An evicted record leaves a tombstone if an older version may still be on the device, because the next opening would find
/// that version; and none if there never was one.
#[test]
fn eviction_of_record_hiding_older_version_leaves_tombstone() {
    let mut filled = Filled::new(Plan { when_full: WhenFull::Evict, ..Plan::new(32) }, 1);
    let older = filled.sealed()[0];
    let hidden: Vec<String> = filled.keys.keys().cloned().collect();
    hidden.iter().for_each(|key| filled.put(key, value(7)));
    for number in 1000.. {
        if filled.sealed().len() == 4 {
            break;
        }
        filled.put(&format!("key {number}"), value(number));
    }
    let evict = |filled: &mut Filled, slot: u32| {
        let Bench { space, catalog, .. } = &filled.bench;
        let tier = space.first_tier();
        let entries =
            filled.bench.run(space.read_entries(tier, slot)).expect("it is read").expect("it is whole");
        let hash = |key: &String| catalog.hash_in(0, key.as_bytes());
        let current = |entry: &Entry| catalog.is_current(tier.name(), slot, entry);
        let is_evicted =
            |key: &&String| entries.iter().filter(current).any(|entry| entry.key_hash == hash(key));
        let gone: Vec<String> = filled.keys.keys().filter(is_evicted).cloned().collect();
        let offsets = entries.iter().map(|entry| entry.offset).collect();
        let before = space.tombstone_bytes();
        let done = filled.bench.run(filled.relocator().evict(tier.name(), slot, 1.0, offsets));
        assert_eq!(done.expect("nothing fails"), Outcome::Freed(1));
        let left = space.tombstone_bytes() - before;
        gone.iter().for_each(|key| filled.expect(key, None));
        filled.check();
        (gone, left)
    };
    let (first, last) = (filled.sealed()[1], filled.sealed()[3]);
    let (gone, tombstones) = evict(&mut filled, first);
    assert!(gone.iter().any(|key| hidden.contains(key)) && filled.state(older) == SlotState::Sealed);
    assert!(tombstones > 0, "nothing hides what lies in the older segment");
    let (gone, tombstones) = evict(&mut filled, last);
    assert!(!gone.iter().any(|key| hidden.contains(key)));
    assert_eq!(tombstones, 0, "there is nothing to hide");
}

/// A failed relocation leaves copies that the index does not point at. The next opening finds them.
#[test]
fn eviction_of_record_with_leftover_copy_leaves_tombstone() {
    let filled = Filled::new(Plan { when_full: WhenFull::Evict, ..Plan::new(33) }, 3);
    let (first, second) = (filled.sealed()[0], filled.sealed()[1]);
    let Bench { space, .. } = &filled.bench;
    let tier = space.first_tier();
    [first, second].into_iter().for_each(|slot| filled.forget_memory(slot));
    let half = u64::from(tier.shape().segment_bytes) / 2;
    let faulty = space.clone();
    // Reads of its records fail, but not of its summary.
    filled.bench.devices[0].set_faults(Box::new(move |operation| {
        let is_of = |offset| faulty.first_tier().slot_at(offset) == Some(second);
        let fails = operation.kind == OperationKind::Read && is_of(operation.offset);
        if fails && !is_of(operation.offset - half) { Fault::Error(5) } else { Fault::None }
    }));
    let mut relocator = filled.relocator();
    let done = filled.bench.run(relocator.relocate(tier.name(), &[first, second], 1.0, Terms::Always));
    assert_eq!(done.map_err(|(slot, _)| slot), Err(second));
    filled.bench.devices[0].clear_faults();
    filled.check();

    let entries =
        filled.bench.run(space.read_entries(tier, first)).expect("it is read").expect("it is whole");
    let offsets = entries.iter().map(|entry| entry.offset).collect();
    let before = space.tombstone_bytes();
    let done = filled.bench.run(relocator.evict(tier.name(), first, 1.0, offsets));
    assert_eq!(done.expect("nothing fails"), Outcome::Freed(1));
    assert!(space.tombstone_bytes() > before, "nothing hides the copies");
}

/// The writer may have read the key under its reservation.
#[test]
fn a_key_that_a_writer_has_reserved_is_not_evicted() {
    let filled = Filled::new(Plan { when_full: WhenFull::Evict, ..Plan::new(34) }, 3);
    let victim = filled.sealed()[0];
    let key = filled.key_in(victim);
    let Bench { space, catalog, writer, .. } = &filled.bench;
    let stored = catalog.index.stored_hash(&catalog.hash_in(0, key.as_bytes()));
    let _reservation = filled.bench.run(writer.lane.reserve(vec![stored])).expect("nothing fails");
    let entries = filled.bench.run(space.read_entries(space.first_tier(), victim));
    let entries = entries.expect("it is read").expect("it is whole");
    let offsets = entries.iter().map(|entry| entry.offset).collect();
    let done = filled.bench.run(filled.relocator().evict(space.first_tier().name(), victim, 1.0, offsets));
    assert_eq!(done.expect("nothing fails"), Outcome::Freed(1));
    assert_eq!(space.counters.activity().records_evicted, entries.len() as u64 - 1);
    let found = filled.bench.run(filled.bench.get(&key)).expect("it is read");
    assert!(found.is_some(), "{key} was dropped");
}

/// Returns a store with two versions of the same long keys, in segments of their own: tombstones of evicted records of the
/// second version fill most of a segment.
fn two_versions(seed: u64) -> (Filled, u32, Vec<Entry>) {
    let mut filled = Filled::new(Plan { when_full: WhenFull::Evict, ..Plan::new(seed) }, 0);
    let long = |number: usize| format!("{number:0>800}");
    let fill = |filled: &mut Filled, keys: &mut dyn Iterator<Item = usize>, sealed: usize| {
        while filled.sealed().len() < sealed {
            filled.put(&long(keys.next().expect("there are more")), vec![sealed as u8; 10]);
        }
    };
    fill(&mut filled, &mut (0..), 1);
    fill(&mut filled, &mut (0..), 2);
    fill(&mut filled, &mut (1000..), 3);
    let slot = filled.sealed()[1];
    let tier = filled.bench.space.first_tier();
    let entries = filled.bench.run(filled.bench.space.read_entries(tier, slot)).expect("it is read");
    (filled, slot, entries.expect("it is whole").iter().collect())
}

/// Returns the number of tombstones on the device. Asserts that none has the number of a current record, because the next
/// opening would drop that record.
fn tombstones(filled: &Filled) -> usize {
    let Bench { catalog, .. } = &filled.bench;
    let current = |key: &String| filled.bench.run(filled.bench.get(key)).ok().flatten();
    let keys = filled.keys.keys();
    let numbers: BTreeMap<_, u64> =
        keys.filter_map(|key| Some((catalog.hash_in(0, key.as_bytes()), current(key)?.1))).collect();
    let durable = filled.bench.durable().into_iter();
    let tombstones: Vec<Entry> = durable.filter(|entry| entry.kind == Kind::Tombstone).collect();
    for tombstone in &tombstones {
        let is_buried = numbers.get(&tombstone.key_hash) == Some(&tombstone.sequence);
        assert!(!is_buried, "the next opening would drop a current record");
    }
    tombstones.len()
}

#[test]
fn evicted_record_with_tombstone_is_dropped_if_segment_stays() {
    for is_damaged in [false, true] {
        let (mut filled, slot, entries) = two_versions(41);
        filled.forget_memory(slot);
        let last = *entries.iter().rfind(|entry| entry.kind == Kind::Put).expect("it has puts");
        if !is_damaged {
            // Half of another segment fills half of the only output.
            let other = filled.sealed()[2];
            while filled.bench.space.first_tier().slot(other).live_bytes() > 30_000 {
                let key = filled.key_in(other);
                filled.put(&key, vec![9; 10]);
            }
        }
        let Bench { space, writer, devices, .. } = &filled.bench;
        let tier = space.first_tier();
        let mut relocator = filled.relocator();
        if is_damaged {
            devices[0].corrupt(tier.device_offset(slot, last.offset) + 400, 0x10);
        } else {
            let other = filled.sealed()[2];
            let done = filled.bench.run(relocator.relocate(tier.name(), &[other], 1.0, Terms::Always));
            assert_eq!(done.ok(), Some(Outcome::Freed(1)));
            while tier.allocation(|slots| slots.take(0)).is_some() {}
        }
        let offsets = entries.iter().map(|entry| entry.offset).collect();
        let done = filled.bench.run(relocator.evict(tier.name(), slot, 1.0, offsets));
        assert!(!matches!(done, Ok(Outcome::Freed(1))), "{done:?}");
        filled.bench.run(async {
            relocator.finish().await.expect("it is sealed");
            writer.flush().await.expect("it is flushed");
        });
        let left = tombstones(&filled);
        assert!(left > 0 && left < entries.len(), "{left} of {}", entries.len());
        assert_eq!(space.counters.activity().records_evicted, left as u64);
    }
}
