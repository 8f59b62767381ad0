use std::time::Duration;

use esker_device::{Fault, MemoryDevice, OperationKind, Runtime};
use esker_log::SuperblockError;
use parking_lot::Mutex as Shared;

use super::*;

use crate::testing::{DATA_OFFSET, Plan, SEGMENT_BYTES, UNIT_BYTES};

/// The tiers of a store, and their superblocks as first written.
struct Store {
    plan: Plan,
    devices: Vec<MemoryDevice>,
    tiers: Vec<Arc<Tier>>,
}

impl Store {
    fn new(plan: Plan) -> Store {
        let devices: Vec<_> = plan.tiers.iter().map(|_| plan.device()).collect();
        let tiers: Vec<_> = plan.tiers.iter().zip(&devices).map(|(name, d)| plan.tier(*name, d)).collect();
        let store = Store { plan, devices, tiers };
        for (tier, superblock) in store.tiers.iter().zip(store.formatted()) {
            let device = tier.device().expect("it is open");
            store
                .plan
                .world
                .run(write_superblock(&device, tier.accounting(), &superblock))
                .expect("it is written");
        }
        store
    }

    fn formatted(&self) -> Vec<Superblock> {
        self.plan.tiers.iter().map(|tier| self.plan.superblock(*tier)).collect()
    }

    /// Restores the devices to their state after the power cut.
    fn put_back(&self, left: &[Vec<u8>]) {
        for (device, bytes) in self.devices.iter().zip(left) {
            let buffer = Source::Owned(Buffer::copy_from(bytes));
            self.plan.world.run(device.write(0, buffer, WriteMode::Durable)).expect("it is put back");
        }
    }

    /// Begins an update, cuts the power after a while, and returns the content of the devices.
    fn cut_after(&self, wait: Duration, work: impl Future<Output = Result<()>>) -> Vec<Vec<u8>> {
        let world = &self.plan.world;
        world.run(async {
            let (work, sleep) = (std::pin::pin!(work), world.sleep(wait));
            let _ = futures_util::future::select(work, sleep).await;
        });
        let mut random = world.fork_random();
        self.devices.iter().map(|device| device.crash(&mut || random.bits()).snapshot()).collect()
    }
}

fn slow(seed: u64, tiers: &[TierName]) -> Plan {
    Plan { tiers: tiers.to_vec(), slow: true, ..Plan::new(seed) }
}

/// Returns the times at which the power is cut: an update of two tiers takes some 150 µs.
fn moments() -> impl Iterator<Item = Duration> {
    (0..100).map(|n| Duration::from_nanos(1500 * n))
}

/// Returns the generation that is found after the loss of any one copy.
fn generation(bytes: &[u8]) -> std::result::Result<u64, SuperblockError> {
    let stride = Superblock::stride_bytes(UNIT_BYTES.into()) as usize;
    for copy in 0..SUPERBLOCK_COPIES {
        let mut without = bytes.to_vec();
        without[copy * stride..(copy + 1) * stride].fill(0);
        Superblock::find(&without)?;
    }
    Superblock::find(bytes).map(|found| found.generation)
}

#[test]
fn a_crash_in_an_update_leaves_one_generation_twice() {
    let (mut old, mut new) = (0, 0);
    for (seed, moment) in (0..).zip(moments()) {
        let store = Store::new(slow(seed, &[TierName::Capacity]));
        let superblocks = Superblocks::new(store.formatted());
        let update = superblocks.update(&store.tiers, |_, superblock| superblock.staging_bytes = 9);
        let left = store.cut_after(moment, update);
        match generation(&left[0]).expect("one is whole, and not only once") {
            1 => old += 1,
            2 => new += 1,
            other => panic!("generation {other} was never written"),
        }
        let found = Superblock::find(&left[0]).expect("one is whole");
        assert_eq!(found.staging_bytes == 9, found.generation == 2);
    }
    assert!(old > 0 && new > 5, "the power was cut before and after: {old}, {new}");
}

/// Otherwise a second crash could tear the only two copies of the newest generation, and the previous one would return.
#[test]
fn an_update_spares_the_copies_of_the_newest_generation() {
    let mut halves = 0;
    for (seed, moment) in (0..).zip(moments()) {
        let store = Store::new(slow(seed, &[TierName::Capacity]));
        let mut generation = 1;
        // Each pair is the first one in turn.
        for wait in [Duration::from_secs(1), Duration::from_secs(1), moment, moment] {
            let mut bytes = store.devices[0].snapshot();
            let found = Superblock::find(&bytes).expect("one is whole");
            assert!(
                found.generation >= generation,
                "{generation} was there, and only {} is",
                found.generation
            );
            generation = found.generation;
            let stride = Superblock::stride_bytes(UNIT_BYTES.into()) as usize;
            let first = Arc::new(Shared::new(Vec::new()));
            let seen = first.clone();
            store.devices[0]
                .set_observer(Box::new(move |operation| seen.lock().push(operation.offset as usize)));
            let superblocks = Superblocks::new(vec![found]);
            let left = store.cut_after(wait, superblocks.update(&store.tiers, |_, _| ()));
            let torn: Vec<usize> = first.lock().iter().copied().take(2).collect();
            let mut alone = bytes.clone();
            let others = (0..SUPERBLOCK_COPIES).map(|copy| copy * stride).filter(|at| !torn.contains(at));
            others.for_each(|at| alone[at..at + stride].fill(0));
            halves += usize::from(Superblock::find(&alone).is_ok_and(|found| found.generation < generation));
            torn.iter().for_each(|&at| bytes[at..at + stride].fill(0));
            assert_eq!(Superblock::find(&bytes).map(|found| found.generation), Ok(generation), "{wait:?}");
            store.put_back(&left);
        }
    }
    assert!(halves > 5, "no crash came between the pairs");
}

#[test]
fn those_that_are_behind_are_written_first() {
    let store = Store::new(slow(1, &[TierName::Fast, TierName::Capacity]));
    for behind in [0, 1] {
        let mut superblocks = store.formatted();
        superblocks[1 - behind].epoch += 1;
        let order = Arc::new(Shared::new(Vec::new()));
        for (number, device) in store.devices.iter().enumerate() {
            let order = order.clone();
            device.set_observer(Box::new(move |_| order.lock().push(number)));
        }
        let update = Superblocks::new(superblocks);
        store.plan.world.run(update.update(&store.tiers, |_, s| s.epoch = 3)).expect("it is written");
        assert_eq!(*order.lock(), [[behind; SUPERBLOCK_COPIES], [1 - behind; SUPERBLOCK_COPIES]].concat());
    }
}

/// Like two openings that are interrupted one after the other.
#[test]
fn two_crashes_leave_epochs_that_are_one_apart_at_most() {
    let mut apart = 0;
    for (seed, moment) in (0..).zip(moments()) {
        let store = Store::new(slow(seed, &[TierName::Fast, TierName::Capacity]));
        let mut found = store.formatted();
        for wait in [moment, Duration::from_micros(seed * 37 % 200)] {
            let epoch = found.iter().map(|superblock| superblock.epoch).max().unwrap_or(0) + 1;
            let superblocks = Superblocks::new(found);
            let update = superblocks.update(&store.tiers, |_, superblock| superblock.epoch = epoch);
            let left = store.cut_after(wait, update);
            found = left.iter().map(|bytes| Superblock::find(bytes).expect("one is whole")).collect();
            store.put_back(&left);
        }
        let difference = found[0].epoch.abs_diff(found[1].epoch);
        assert!(difference <= 1, "seed {seed}: the epochs are {difference} apart");
        apart += difference;
    }
    assert!(apart > 5, "no crash came between the tiers");
}

#[test]
fn a_file_is_long_enough_before_its_superblock_covers_a_slot() {
    let mut covered = 0;
    for (seed, moment) in (0..).zip(moments()) {
        let store = Store::new(Plan { grows: true, ..slow(seed, &[TierName::Capacity]) });
        let superblocks = Superblocks::new(store.formatted());
        let left = store.cut_after(4 * moment, superblocks.cover_slot(&store.tiers[0], 2));
        let found = Superblock::find(&left[0]).expect("one is whole");
        let needs = DATA_OFFSET + u64::from(found.used_slots) * u64::from(SEGMENT_BYTES);
        assert!(left[0].len() as u64 >= needs, "{moment:?}: the file looks cut off");
        covered += usize::from(found.used_slots > 2);
    }
    assert!((5..95).contains(&covered), "the power was cut before and after: {covered}");
}

#[test]
fn slots_read_as_free_before_superblock_covers_them() {
    let mut covered = 0;
    for (seed, moment) in (0..).zip(moments()) {
        let store = Store::new(slow(seed, &[TierName::Capacity]));
        let device = store.tiers[0].device().expect("it is open");
        // The device holds other data from before.
        let bytes = store.devices[0].snapshot().len() - DATA_OFFSET as usize;
        let foreign = Source::Owned(Buffer::copy_from(&vec![0xaa; bytes]));
        store.plan.world.run(device.write(DATA_OFFSET, foreign, WriteMode::Durable)).expect("it is written");
        let superblocks = store.formatted().into_iter().map(|s| Superblock { used_slots: 0, ..s }).collect();
        let superblocks = Superblocks::new(superblocks);
        let left = store.cut_after(moment * 10, superblocks.cover_slot(&store.tiers[0], 2));
        let found = Superblock::find(&left[0]).expect("one is whole");
        if found.generation == 1 {
            continue;
        }
        covered += 1;
        for slot in 0..found.used_slots {
            let start = DATA_OFFSET as usize + slot as usize * SEGMENT_BYTES as usize;
            let (unit, end) = (UNIT_BYTES as usize, start + SEGMENT_BYTES as usize);
            let ends = [&left[0][start..start + unit], &left[0][end - unit..end]];
            assert!(ends.concat().iter().all(|byte| *byte == 0), "{moment:?}: slot {slot} holds something");
        }
    }
    assert!((5..95).contains(&covered), "the power was cut before and after: {covered}");
}

#[test]
fn a_slot_is_not_covered_by_a_file_that_cannot_be_extended() {
    let store = Store::new(Plan { grows: true, ..slow(1, &[TierName::Capacity]) });
    let (world, tier, device) = (&store.plan.world, &store.tiers[0], &store.devices[0]);
    let superblocks = Superblocks::new(store.formatted());
    device.set_faults(Box::new(|operation| match operation.kind {
        OperationKind::Resize => Fault::Error(28),
        _ => Fault::None,
    }));
    assert!(world.run(superblocks.cover_slot(tier, 2)).is_err());
    assert_eq!(Superblock::find(&device.snapshot()).map(|found| found.used_slots), Ok(0));
    device.clear_faults();
    world.run(superblocks.cover_slot(tier, 2)).expect("there is room again");
    assert!(Superblock::find(&device.snapshot()).is_ok_and(|found| found.used_slots > 2));
    let written = device.snapshot();
    world.run(superblocks.cover_slot(tier, 1)).expect("it is covered");
    assert!(written == device.snapshot(), "a covered slot needs no write");
}

/// Clears slots in one task while another takes one of them and writes to it.
#[test]
fn slot_is_not_cleared_after_it_was_covered_and_written() {
    for (seed, moment) in (0..).zip(moments()) {
        let plan = Plan { slots: 200, ..slow(seed, &[TierName::Capacity]) };
        let store = Store::new(plan);
        let (world, tier) = (&store.plan.world, &store.tiers[0]);
        let superblocks = store.formatted().into_iter().map(|s| Superblock { used_slots: 0, ..s }).collect();
        let superblocks = Superblocks::new(superblocks);
        let device = tier.device().expect("it is open");
        let write = async {
            superblocks.cover_slot(tier, 60).await.expect("it is covered");
            let bytes = Source::Owned(Buffer::copy_from(&vec![7; UNIT_BYTES as usize]));
            let written = device.write(tier.device_offset(60, 0), bytes, WriteMode::Durable);
            written.await.expect("it is written");
        };
        let ahead = async {
            world.sleep(moment * 8).await;
            superblocks.cover_ahead(tier, 0).await.expect("they are cleared");
        };
        world.run(async { futures_util::future::join(write, ahead).await });
        let at = tier.device_offset(60, 0) as usize;
        assert_eq!(store.devices[0].snapshot()[at], 7, "{moment:?}: the slot was cleared after the write");
    }
}

/// One of the writes that clear slots finds no space; the others are slow.
#[test]
fn failed_clearing_leaves_no_write_in_flight() {
    for seed in 0..20 {
        let store = Store::new(Plan { slots: 200, ..slow(seed, &[TierName::Capacity]) });
        let (world, tier) = (&store.plan.world, &store.tiers[0]);
        let superblocks = store.formatted().into_iter().map(|s| Superblock { used_slots: 0, ..s }).collect();
        let superblocks = Superblocks::new(superblocks);
        let device = tier.device().expect("it is open");
        let mut clears = 0;
        let (first, rest) = (tier.device_offset(0, 0), Fault::Late(Duration::from_millis(5)));
        store.devices[0].set_faults(Box::new(move |operation| {
            let is_clear = operation.kind == OperationKind::Write && operation.offset >= first;
            clears += i32::from(is_clear);
            match clears {
                1 if is_clear => Fault::Error(28),
                2..=32 if is_clear => rest,
                _ => Fault::None,
            }
        }));
        assert!(world.run(superblocks.cover_slot(tier, 10)).is_err());
        world.run(superblocks.cover_slot(tier, 10)).expect("there is room again");
        let bytes = Source::Owned(Buffer::copy_from(&vec![7; UNIT_BYTES as usize]));
        let at = tier.device_offset(10, 0);
        world.run(device.write(at, bytes, WriteMode::Durable)).expect("it is written");
        world.run(world.sleep(Duration::from_millis(10)));
        assert_eq!(
            store.devices[0].snapshot()[at as usize],
            7,
            "seed {seed}: the slot was cleared after the write"
        );
    }
}

#[test]
fn clearing_does_not_hold_up_other_updates() {
    let store = Store::new(Plan { slots: 200, ..slow(1, &[TierName::Capacity]) });
    let (world, tier) = (&store.plan.world, &store.tiers[0]);
    let superblocks = store.formatted().into_iter().map(|s| Superblock { used_slots: 64, ..s }).collect();
    let superblocks = Superblocks::new(superblocks);
    let during = Shared::new(Vec::new());
    let ahead = async {
        superblocks.cover_ahead(tier, 64).await.expect("they are cleared");
        during.lock().push("cleared");
    };
    let take = async {
        world.sleep(Duration::from_micros(1)).await;
        superblocks.cover_slot(tier, 63).await.expect("it is covered");
        during.lock().push("taken");
    };
    world.run(async { futures_util::future::join(ahead, take).await });
    assert_eq!(*during.lock(), ["taken", "cleared"]);
    let found = superblocks.into_inner();
    assert_eq!(found[0].used_slots, 200);
    assert!(found[0].generation > 2, "the slots are cleared in several steps");
}

/// A store on a device that is large enough for far copies.
fn with_far_copies(seed: u64) -> (Store, Superblock) {
    let store = Store::new(Plan { slots: 100, ..slow(seed, &[TierName::Capacity]) });
    let mut first = store.formatted().remove(0);
    (first.used_slots, first.unit_bytes) = (10, 4096);
    first.far_copies =
        first.place_far_copies(store.devices[0].snapshot().len() as u64 / 4 * 3, |slot| slot < 10);
    assert_eq!(first.far_copies.len(), 2);
    let device = store.tiers[0].device().expect("it is open");
    let write = write_superblock(&device, store.tiers[0].accounting(), &first);
    store.plan.world.run(write).expect("it is written");
    (store, first)
}

/// Returns the generation that a search finds after the loss of the start of a device.
fn far_generation(bytes: &[u8]) -> Option<u64> {
    let mut search = esker_log::FarSearch::of(bytes.len() as u64);
    while let Some(at) = search.next_offset() {
        search.add(at, &bytes[at as usize..]);
    }
    match search.finish() {
        esker_log::FoundFar::One(_, found) => Some(found.generation),
        _ => None,
    }
}

/// The update moves the end copy, as after the device has grown.
#[test]
fn crash_in_an_update_leaves_a_whole_far_copy() {
    let (mut old, mut new) = (0, 0);
    for (seed, moment) in (0..).zip(moments()) {
        let (store, first) = with_far_copies(seed);
        let bytes = store.devices[0].snapshot().len() as u64;
        let far_copies = first.place_far_copies(bytes, |slot| slot < 10);
        assert!(far_copies[0] == first.far_copies[0] && far_copies[1] > first.far_copies[1]);
        let superblocks = Superblocks::new(vec![first]);
        let update = superblocks.update(&store.tiers, |_, s| s.far_copies.clone_from(&far_copies));
        let left = store.cut_after(moment, update);
        match far_generation(&left[0]) {
            Some(1) => old += 1,
            Some(2) => new += 1,
            other => panic!("{moment:?}: generation {other:?} is left"),
        }
        assert!(generation(&left[0]).is_ok(), "the start is whole, too");
    }
    assert!(old > 5 && new > 5, "the power was cut before and after: {old}, {new}");
}

#[test]
fn scrub_names_damaged_far_copies_with_their_offsets() {
    let (store, first) = with_far_copies(1);
    let superblocks = Superblocks::new(vec![first.clone()]);
    let find = || {
        let damaged = superblocks.damaged_copies(store.tiers.iter().map(Arc::as_ref));
        let damaged = store.plan.world.run(damaged).expect("it can be read");
        damaged.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(find(), Vec::<String>::new());
    for (number, at) in (4..).zip(first.far_copies.clone()) {
        store.devices[0].corrupt(at + 60, 1);
        let found = find();
        assert_eq!(found.len(), number - 3, "{found:?}");
        let words = format!("copy {number} of the superblock of the capacity tier, at byte {at}, is damaged");
        assert!(found[number - 4].contains(&words), "{found:?}");
    }
}

#[test]
fn slots_under_far_copies_are_not_cleared() {
    let (store, first) = with_far_copies(1);
    let device = store.tiers[0].device().expect("it is open");
    let clear = clear_slots(&device, store.tiers[0].accounting(), &first, 10..100);
    store.plan.world.run(clear).expect("they are cleared");
    let bytes = store.devices[0].snapshot();
    for at in first.far_copies.clone() {
        assert_eq!(Superblock::decode_far(&bytes[at as usize..], at).as_ref(), Ok(&first));
    }
}
