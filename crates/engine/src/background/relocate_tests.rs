use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{Fault, OperationKind, Runtime};
use esker_index::Keyspace;
use esker_log::{Location, Stream};
use futures_util::future::join;
use tokio::sync::Notify;

use super::*;

use crate::base::durability::Durability;
use crate::base::when_full::WhenFull;
use crate::read::verification::SegmentVerification;
use crate::testing::{Bench, Plan};

#[path = "relocate_evict_tests.rs"]
mod evict;
#[path = "relocate_scan_tests.rs"]
mod scan;

const SYNC: Durability = Durability::Sync;
const CAPACITY: TierName = TierName::Capacity;

/// A store with sealed segments, and its expected content.
struct Filled {
    bench: Bench,
    /// Value, original sequence number, and expiry of each key.
    keys: BTreeMap<String, (Vec<u8>, u64, Option<u64>)>,
    gone: Vec<String>,
}

/// Returns the length of a record without padding.
fn record_bytes(key: &str, value: &[u8], sequence: u64, expires_at_ms: Option<u64>) -> usize {
    let (key, value) = (key.len(), value.len());
    esker_log::record_header_bytes(key, value, sequence, expires_at_ms) + key + value
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; 700 + number % 5 * 130]
}

impl Filled {
    /// Creates a store with this number of sealed segments and one open segment.
    fn new(plan: Plan, sealed: u32) -> Filled {
        let bench = plan.build();
        bench.start();
        let mut filled = Filled { bench, keys: BTreeMap::new(), gone: Vec::new() };
        for number in 0.. {
            if filled.bench.space.first_tier().slots().count(SlotState::Sealed) == sealed {
                break;
            }
            filled.put(&format!("key {number}"), value(number));
        }
        filled
    }

    fn put(&mut self, key: &str, value: Vec<u8>) {
        let sequence = self.bench.run(self.bench.put(key, &value, SYNC)).expect("it is put");
        self.keys.insert(key.to_owned(), (value, sequence, None));
    }

    /// Sets the value that readers are to find from now on.
    fn expect(&mut self, key: &str, value: Option<Vec<u8>>) {
        match value {
            Some(value) => drop(self.keys.insert(key.to_owned(), (value, 0, None))),
            None => {
                self.keys.remove(key);
                self.gone.push(key.to_owned());
            }
        }
    }

    /// Returns the sealed slots, in the order in which they were filled.
    fn sealed(&self) -> Vec<u32> {
        let tier = self.bench.space.first_tier();
        let mut sealed: Vec<u32> = tier.slots().sealed().map(|(slot, _)| slot).collect();
        sealed.sort_unstable_by_key(|slot| tier.slot(*slot).segment());
        sealed
    }

    /// Removes the victim's bytes from memory, so that they are only on its device.
    fn forget_memory(&self, slot: u32) {
        let segment = self.bench.space.first_tier().slot(slot).segment();
        self.bench.space.buffered.remove(segment);
    }

    fn relocator(&self) -> Relocator<'_> {
        let Bench { space, catalog, writer, .. } = &self.bench;
        Relocator::new(Expirer { space, catalog, writer })
    }

    fn relocate(&self, slots: &[u32]) -> std::result::Result<Outcome, (u32, Error)> {
        let tier = self.bench.space.first_tier().name();
        self.bench.run(self.relocator().relocate(tier, slots, 1.0, Terms::Always))
    }

    /// Relocates a segment; runs `race` after the first copies are in flight and before they are durable.
    fn relocate_beside(&self, slot: u32, race: impl Future<Output = ()>) -> Outcome {
        let bench = &self.bench;
        let tier = bench.space.first_tier();
        let copying = Arc::new(Notify::new());
        let (seen, space) = (copying.clone(), bench.space.clone());
        bench.devices[0].set_observer(Box::new(move |operation| {
            let tier = space.first_tier();
            let slot = tier.slot_at(operation.offset).filter(|_| operation.kind == OperationKind::Write);
            if slot.is_some_and(|slot| Stream::RELOCATED.contains(&tier.slot(slot).stream())) {
                seen.notify_one();
            }
        }));
        let mut relocator = self.relocator();
        let (relocated, ()) =
            bench.run(join(relocator.relocate(tier.name(), &[slot], 1.0, Terms::Always), async {
                copying.notified().await;
                race.await;
                assert_eq!(tier.slot(slot).state(), SlotState::Victim, "the race came too late");
            }));
        relocated.expect("nothing fails")
    }

    /// Checks that every key leads to its value, and that each slot's live bytes are the bytes that the index points at.
    fn check(&self) {
        self.check_but("");
    }

    /// Does the same, with one key whose value is damaged.
    fn check_but(&self, damaged: &str) {
        let Bench { catalog, space, .. } = &self.bench;
        let mut live: BTreeMap<(TierName, u32), i64> = BTreeMap::new();
        for (key, (value, sequence, expires)) in &self.keys {
            let hash = catalog.hash_in(0, key.as_bytes());
            self.bench.run(catalog.verify(&hash)).expect("it is verified");
            let found = self.bench.run(self.bench.get(key));
            let sequence = if key == damaged {
                assert!(matches!(found, Err(Error::Corrupt { .. })), "{key} is damaged");
                *sequence
            } else {
                let found = found.unwrap_or_else(|error| panic!("{key}: {error}"));
                let (found, sequence) = found.unwrap_or_else(|| panic!("{key} is not there"));
                assert!(found == *value, "{key} has another value");
                sequence
            };
            let location = self.location(key);
            let padded =
                space.tier(location.tier).shape().padded(record_bytes(key, value, sequence, *expires)) as i64;
            *live.entry((location.tier, location.slot)).or_default() += padded;
        }
        for key in &self.gone {
            let hash = catalog.hash_in(0, key.as_bytes());
            self.bench.run(catalog.verify(&hash)).expect("it is verified");
            assert!(matches!(self.bench.run(self.bench.get(key)), Ok(None)), "{key} is still there");
        }
        assert_eq!(catalog.index.len(), self.keys.len() as u64);
        for tier in space.tiers() {
            for (at, slot) in tier.slots().all().filter_map(|(at, slot)| Some((at, slot?))) {
                let expected = live.get(&(tier.name(), at)).copied().unwrap_or(0);
                let counted = slot.live_bytes() - slot.tombstone_bytes();
                assert_eq!(counted, expected, "slot {at} of the {} tier", tier.name().name());
            }
            let sum: i64 =
                tier.slots().all().filter_map(|(_, slot)| slot).map(|slot| slot.live_bytes()).sum();
            assert_eq!(tier.live_bytes() as i64, sum);
        }
    }

    /// Returns the location of a key's current record.
    fn location(&self, key: &str) -> Location {
        let Catalog { index, packing, .. } = &*self.bench.catalog;
        let pointer = index.get(&self.bench.catalog.hash_in(0, key.as_bytes())).expect("it is in the index");
        packing.unpack(pointer.get())
    }

    /// Returns a key whose current record is in a slot.
    fn key_in(&self, slot: u32) -> String {
        self.keys.keys().find(|key| self.location(key).slot == slot).expect("there is one").clone()
    }

    fn state(&self, slot: u32) -> SlotState {
        self.bench.space.first_tier().slot(slot).state()
    }
}

fn slow(seed: u64) -> Plan {
    Plan { slow: true, ..Plan::new(seed) }
}

/// From memory and from the device.
fn victims(seed: u64) -> impl Iterator<Item = (Filled, u32)> {
    [true, false].into_iter().map(move |in_memory| {
        let filled = Filled::new(slow(seed), 2);
        let victim = filled.sealed()[0];
        if !in_memory {
            filled.forget_memory(victim);
        }
        (filled, victim)
    })
}

#[test]
fn a_victim_is_freed_and_all_that_was_in_it_found_elsewhere() {
    for (filled, victim) in victims(1) {
        filled.check();
        assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(1)));
        assert_eq!(filled.state(victim), SlotState::Free);
        filled.check();
    }
}

#[test]
fn destaged_records_count_on_the_other_tier() {
    let plan = Plan { tiers: vec![TierName::Fast, CAPACITY], ..slow(1) };
    let filled = Filled::new(plan, 2);
    let before = filled.bench.space.first_tier().live_bytes();
    assert_eq!(filled.relocate(&filled.sealed()).ok(), Some(Outcome::Freed(2)));
    filled.check();
    let after = filled.bench.space.first_tier().live_bytes();
    assert!(after < before && filled.bench.space.output_tier().live_bytes() == before - after);
}

#[test]
fn a_put_during_the_copy_wins() {
    for seed in 0..5 {
        for (mut filled, victim) in victims(seed) {
            let key = filled.key_in(victim);
            let newer = vec![0xbb; 300];
            let outcome = filled.relocate_beside(victim, async {
                filled.bench.put(&key, &newer, Durability::None).await.expect("it is put");
            });
            assert_eq!((outcome, filled.state(victim)), (Outcome::Freed(1), SlotState::Free));
            filled.expect(&key, Some(newer));
            filled.check();
        }
    }
}

#[test]
fn a_delete_during_the_copy_wins() {
    for seed in 0..5 {
        for (mut filled, victim) in victims(seed) {
            let key = filled.key_in(victim);
            let outcome = filled.relocate_beside(victim, async {
                assert!(filled.bench.delete(&key).await.expect("it is deleted"));
            });
            assert_eq!((outcome, filled.state(victim)), (Outcome::Freed(1), SlotState::Free));
            filled.expect(&key, None);
            filled.check();
            let tombstones = filled.bench.space.tombstone_bytes();
            assert!(tombstones > 0, "the tombstone counts as long as a segment may hold the record");
        }
    }
}

#[test]
fn record_expired_during_relocation_does_not_come_back() {
    for seed in 0..5 {
        // A flush takes long enough for the expiry and a sweep to happen meanwhile.
        let bench = Plan { flush_takes: Some(Duration::from_secs(60)), ..slow(seed) };
        let at_ms = bench.world.wall_clock_ms() + 30_000;
        let mut filled = Filled::new(bench, 0);
        let sequence = filled.bench.run(filled.bench.put_expiring("brief", &value(3), at_ms));
        filled.keys.insert("brief".into(), (value(3), sequence.expect("it is put"), Some(at_ms)));
        for number in 0.. {
            if filled.bench.space.first_tier().slots().count(SlotState::Sealed) == 1 {
                break;
            }
            filled.put(&format!("key {number}"), value(number));
        }
        let victim = filled.sealed()[0];
        filled.check();
        let Bench { space, catalog, writer, .. } = &filled.bench;
        let outcome = filled.relocate_beside(victim, async {
            filled.bench.sleep(Duration::from_secs(40)).await;
            let tier = space.first_tier();
            let entries = space.read_entries(tier, victim).await.expect("it is read").expect("it is sealed");
            let expirer = Expirer { space, catalog, writer };
            expirer.expire_segment(tier.name(), victim, &entries).await.expect("it is swept");
        });
        assert_eq!((outcome, filled.state(victim)), (Outcome::Freed(1), SlotState::Free));
        filled.expect("brief", None);
        filled.check();
    }
}

#[test]
fn relocation_out_of_room_keeps_copies_and_leaves_the_rest() {
    for seed in 0..5 {
        let mut filled = Filled::new(slow(seed), 3);
        let [first, second, _] = filled.sealed()[..] else { panic!("three were sealed") };
        // Half of the first is dead, so that the only output has room for it and for a part of the second.
        while filled.bench.space.first_tier().slot(first).live_bytes() > 25_000 {
            let key = filled.key_in(first);
            filled.put(&key, vec![1; 10]);
        }
        let tier = filled.bench.space.first_tier();
        while tier.free_slots() > 1 {
            tier.allocation(|slots| slots.take(0)).expect("there are more");
        }
        let before = tier.slot(second).live_bytes();
        let outcome = filled.relocate(&[first, second]);
        assert_eq!(outcome.ok(), Some(Outcome::Freed(1)));
        assert_eq!((filled.state(first), filled.state(second)), (SlotState::Free, SlotState::Sealed));
        let after = tier.slot(second).live_bytes();
        assert!(0 < after && after < before, "it was not in the middle: {before}, {after}");
        assert_eq!(tier.slot(second).opened_at(), 0, "tombstones are needed as long as copies are left");
        filled.check();
        // Nothing was lost: the freed slot has room for the rest.
        assert_eq!(filled.relocate(&[second]).ok(), Some(Outcome::Freed(1)));
        filled.check();
    }
}

#[test]
fn without_any_room_nothing_changes() {
    let filled = Filled::new(slow(1), 2);
    let (victim, tier) = (filled.sealed()[0], filled.bench.space.first_tier());
    while tier.allocation(|slots| slots.take(0)).is_some() {}
    assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::OutOfRoom));
    assert_eq!(filled.state(victim), SlotState::Sealed);
    filled.check();
}

#[test]
fn relocation_keeps_damaged_record_and_moves_the_others() {
    for seed in 0..5 {
        let filled = Filled::new(slow(seed), 2);
        let (victim, tier) = (filled.sealed()[0], filled.bench.space.first_tier());
        filled.forget_memory(victim);
        let key = filled.key_in(victim);
        let at = tier.device_offset(victim, filled.location(&key).offset + 400);
        filled.bench.devices[0].corrupt(at, 0x10);
        assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(0)));
        assert_eq!(
            filled.state(victim),
            SlotState::Damaged,
            "otherwise reading the key would not be an error"
        );
        filled.check_but(&key);
        let (value, sequence, expires) = &filled.keys[&key];
        let bytes = tier.shape().padded(record_bytes(&key, value, *sequence, *expires));
        assert_eq!(tier.slot(victim).live_bytes(), bytes as i64, "only that record is still there");
    }
}

#[test]
fn a_copy_that_cannot_be_written_leaves_the_victim_as_it_was() {
    for kind in [OperationKind::Write, OperationKind::Flush] {
        let filled = Filled::new(slow(1), 2);
        let victim = filled.sealed()[0];
        filled.bench.devices[0].set_faults(Box::new(move |operation| {
            if operation.kind == kind { Fault::Error(5) } else { Fault::None }
        }));
        assert!(filled.relocate(&[victim]).is_err());
        filled.bench.devices[0].clear_faults();
        assert_eq!(filled.state(victim), SlotState::Sealed);
        filled.check();
    }
}

/// Otherwise a power failure could take the newer version from the device's cache, and the older one with its segment.
#[test]
fn victim_is_freed_after_newer_versions_are_durable() {
    for seed in 0..5 {
        let filled = Filled::new(slow(seed), 2);
        let (victim, bench) = (filled.sealed()[0], &filled.bench);
        let key = filled.key_in(victim);
        let newer = bench.run(bench.put(&key, b"newer", Durability::None)).expect("it is put");
        assert!(bench.durable().iter().all(|entry| entry.sequence != newer), "it is in memory");
        assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(1)));
        assert!(
            bench.durable().iter().any(|entry| entry.sequence == newer),
            "seed {seed}: {key} can be lost"
        );
    }
}

/// Damage to the copies of a freed victim must not look like a frame torn by a power failure.
#[test]
fn copies_are_proven_durable_before_their_victim_is_freed() {
    let filled = Filled::new(slow(1), 2);
    let (victim, Bench { catalog, space, devices, .. }) = (filled.sealed()[0], &filled.bench);
    let key = filled.key_in(victim);
    assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(1)));
    let hash = catalog.hash_in(0, key.as_bytes());
    let copy = filled.location(&key);
    let tier = space.tier(copy.tier);
    let mut bytes = devices[0].durable_snapshot();
    bytes[tier.device_offset(copy.slot, copy.offset + 400) as usize] ^= 1;
    let start = tier.device_offset(copy.slot, 0) as usize;
    let bytes = &bytes[start..start + tier.shape().segment_bytes as usize];
    let segment = tier.slot(copy.slot).segment();
    let scan = esker_log::scan_segment(bytes, &space.secret, tier.shape(), segment, false);
    assert!(scan.entries.iter().any(|entry| entry.key_hash == hash), "the damage is taken for a torn end");
}

/// A start torn by a power failure, with the segment's summary still at the end, would look like damage.
#[test]
fn the_end_of_a_slot_is_marked_free_before_its_start() {
    let filled = Filled::new(slow(1), 2);
    let (victim, tier) = (filled.sealed()[0], filled.bench.space.first_tier());
    let written = Arc::new(Mutex::new(Vec::new()));
    let seen = written.clone();
    filled.bench.devices[0].set_observer(Box::new(move |operation| {
        if operation.kind == OperationKind::Write {
            seen.lock().push(operation.offset);
        }
    }));
    assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(1)));
    let in_slot = |at: &u64| tier.slot_at(*at) == Some(victim);
    let markers: Vec<u64> = written.lock().iter().copied().filter(in_slot).collect();
    let last = tier.shape().segment_bytes - tier.shape().unit_bytes;
    assert_eq!(markers, [tier.device_offset(victim, last), tier.device_offset(victim, 0)]);
}

/// The output may get a copy of the record that the delete removes, so it must count as older than the tombstone.
#[test]
fn an_output_is_older_than_a_delete_that_is_not_seen_yet() {
    let filled = Filled::new(Plan { flush_takes: Some(Duration::from_secs(60)), ..slow(1) }, 2);
    let (victim, bench) = (filled.sealed()[0], &filled.bench);
    let key = bytes::Bytes::from(filled.key_in(victim));
    bench.run(async {
        // While this is being flushed, the frame of the delete waits.
        bench.put("other", b"value", Durability::None).await.expect("it is put");
        bench.sleep(Duration::from_millis(1100)).await;
    });
    let before = bench.space.sequence.load(Ordering::Acquire);
    let (deleted, relocated) = bench.run(join(bench.writer.delete(0, key, Default::default()), async {
        while bench.space.sequence.load(Ordering::Acquire) == before {
            bench.sleep(Duration::from_micros(5)).await;
        }
        let tier = bench.space.first_tier().name();
        filled.relocator().relocate(tier, &[victim], 1.0, Terms::Always).await
    }));
    assert!(deleted.expect("it is deleted"));
    assert_eq!(relocated.ok(), Some(Outcome::Freed(1)));
    let slots = bench.space.first_tier().slots().in_use().map(|(_, slot)| slot);
    let outputs: Vec<u64> =
        slots.filter(|s| Stream::RELOCATED.contains(&s.stream())).map(|s| s.opened_at()).collect();
    assert!(
        !outputs.is_empty() && outputs.iter().all(|opened_at| *opened_at <= before),
        "{outputs:?}, {before}"
    );
}

/// The first record is overwritten by the free marker when it is read, and its key has moved by then.
#[test]
fn a_segment_that_is_freed_while_it_is_verified_is_not_damaged() {
    let filled = Filled::new(slow(1), 2);
    let (victim, Bench { space, catalog, .. }) = (filled.sealed()[0], &filled.bench);
    let begun = SegmentVerification::begin(space, catalog, space.first_tier().name(), victim);
    let mut verification = filled.bench.run(begun).expect("its summary is read");
    assert_eq!(filled.relocate(&[victim]).ok(), Some(Outcome::Freed(1)));
    while filled.bench.run(verification.read_next()).expect("the device reads").is_some() {}
    let verdict = &verification.verdict;
    assert!(verdict.records > 0 && verdict.damaged.is_empty(), "{:?}", verdict.damaged);
}

/// The delete could not verify which key the preceding put had displaced. After that is known, the old record of the key stays
/// dead.
#[test]
fn deleted_key_stays_deleted_when_its_old_record_is_verified() {
    let mut filled = Filled::new(Plan::new(41), 2);
    let old = filled.sealed()[0];
    filled.forget_memory(old);
    let key = filled.key_in(old);
    filled.put(&key, value(7));
    let space = filled.bench.space.clone();
    filled.bench.devices[0].set_faults(Box::new(move |operation| {
        let is_in_old = space.first_tier().slot_at(operation.offset) == Some(old);
        let fails = operation.kind == OperationKind::Read && is_in_old;
        if fails { Fault::Error(5) } else { Fault::None }
    }));
    assert!(filled.bench.run(filled.bench.delete(&key)).expect("it is deleted"));
    assert_eq!(filled.bench.catalog.index.unverified_len(), 1, "the displaced record is not verified yet");
    filled.bench.devices[0].clear_faults();
    filled.expect(&key, None);
    filled.check();
}

/// Relocation of another task began while the segment was listed, so its `oldest` leaves that segment out.
#[test]
fn tombstone_is_needed_after_a_damaged_segment_is_unlisted() {
    let filled = Filled::new(Plan::new(42), 2);
    let (damaged, space) = (filled.sealed()[0], &filled.bench.space);
    let (tier, slot) = (space.first_tier(), space.first_tier().slot(damaged));
    let entries =
        filled.bench.run(space.read_entries(tier, damaged)).expect("it is read").expect("it is whole");
    let put = entries.iter().next().expect("it has records");
    let sequence = slot.opened_at() + 1;
    let tombstone = Entry { kind: Kind::Tombstone, sequence, ..put };
    assert!(tier.slots().advance(damaged, SlotState::Sealed, SlotState::Damaged));
    assert!(space.list_damaged((tier.name(), damaged), Some(&entries), Vec::new(), u64::MAX));
    let oldest = space.oldest_segments();
    assert!(
        oldest.other_than(0) > sequence && space.may_hold_older(&oldest, 0, &tombstone),
        "it lists the key"
    );
    space.unlist_damaged(slot.segment());
    assert!(space.may_hold_older(&oldest, 0, &tombstone), "the segment may be relocated and holds the key");
    assert!(space.may_hold_older(&space.oldest_segments(), 0, &tombstone));
}
