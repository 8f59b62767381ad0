//! A store made from a checkpoint has the content of the original at that moment, whatever is written,
//! sealed and collected while the checkpoint is read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Checkpoint, CheckpointSegment, Durability, Store};
use esker_device::{Buffer, Device, Fault, OperationKind, Runtime, Source, WriteMode};
use esker_log::{FOOTER_BYTES, Footer, SUPERBLOCK_COPIES, Superblock};
use esker_simulated::Random;
use futures_util::future::join;

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const KEYS: u64 = 150;
/// Bytes of a segment in one read.
const PIECE_BYTES: u32 = 16 << 10;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:03}"))
}

/// Puts random keys, and records the newest stamp of each.
async fn put_some(
    store: &Store,
    random: &mut Random,
    stamps: &mut BTreeMap<u64, u64>,
    (count, bytes): (u64, Range<u64>),
) {
    for _ in 0..count {
        let number = random.below(KEYS);
        let stamp = stamps.values().max().copied().unwrap_or(0) + 1;
        let bytes = (bytes.start + random.below(bytes.end - bytes.start)) as usize;
        store.put(key(number), value(&key(number), stamp, bytes)).await.expect("there is room");
        stamps.insert(number, stamp);
    }
}

/// Reads a checkpoint slowly, from its first segment to its last.
async fn read(world: &World, checkpoint: &mut Checkpoint) -> Vec<(CheckpointSegment, Vec<u8>)> {
    let secret = checkpoint.superblocks()[0].secret();
    let mut segments = Vec::new();
    while let Some(segment) = checkpoint.next() {
        let mut bytes = Vec::new();
        while (bytes.len() as u32) < segment.bytes {
            let piece = PIECE_BYTES.min(segment.bytes - bytes.len() as u32);
            bytes.extend(checkpoint.read(&segment, bytes.len() as u32, piece).await.expect("it is read"));
            world.runtime.sleep(Duration::from_millis(1)).await;
        }
        if segment.is_sealed {
            let end = &bytes[bytes.len() - FOOTER_BYTES..];
            let footer = Footer::parse(end, &secret, segment.bytes).expect("a sealed segment has a summary");
            let in_place =
                Footer::parse(&checkpoint.footer_in_place_of_lost(&segment), &secret, segment.bytes);
            assert_eq!(in_place.map(|footer| footer.tail), Some(footer.tail), "where its last frame ends");
        }
        checkpoint.let_go(&segment);
        segments.push((segment, bytes));
    }
    segments
}

/// Makes a world whose device holds the bytes read from a checkpoint.
fn restored(config: Config, superblock: &Superblock, segments: &[(CheckpointSegment, Vec<u8>)]) -> World {
    let world = World::new(1, config);
    let device = world.capacity.clone().expect("it has one");
    let write = |at: u64, bytes: &[u8]| {
        let written = device.write(at, Source::Owned(Buffer::copy_from(bytes)), WriteMode::Durable);
        world.runtime.run(written).expect("it is written");
    };
    for (segment, bytes) in segments {
        write(superblock.data_offset + u64::from(segment.slot) * superblock.segment_bytes, bytes);
    }
    let superblock = Superblock { census: None, ..superblock.clone() };
    for copy in 0..SUPERBLOCK_COPIES {
        write(copy as u64 * Superblock::stride_bytes(superblock.unit_bytes), &superblock.encode(copy));
    }
    world
}

#[test]
fn a_checkpoint_is_the_store_of_its_moment() {
    let most_open = std::cell::Cell::new(0);
    cases("checkpoints::a_checkpoint_is_the_store_of_its_moment", 8, |seed| {
        let config = Config { durability: Durability::None, ..Config::new(Tiers::Capacity) };
        let world = World::new(seed, config.clone());
        let (store, mut random) = (world.open(), Random::new(seed));
        let mut stamps = BTreeMap::new();
        // Enough for some segments to be collected.
        world.runtime.run(put_some(&store, &mut random, &mut stamps, (2000, 500..3500)));
        let then = stamps.clone();
        // Some keys are new until the checkpoint stops the writers.
        let new_keys = async {
            for number in 0..60 {
                store.put(format!("new {number}"), "value").await.expect("there is room");
                world.runtime.sleep(Duration::from_micros(7)).await;
            }
        };
        let (checkpoint, ()) = world.runtime.run(join(store.checkpoint(), new_keys));
        let mut checkpoint = checkpoint.expect("it is taken");
        let keys = checkpoint.keys();
        let superblock = checkpoint.superblocks()[0].clone();
        // Enough for every segment of the checkpoint to be collected, as far as allowed.
        let go_on = async {
            for _ in 0..40 {
                put_some(&store, &mut random, &mut stamps, (40, 500..3500)).await;
                world.runtime.sleep(Duration::from_millis(1)).await;
            }
        };
        let (segments, ()) = world.runtime.run(join(read(&world, &mut checkpoint), go_on));
        let open = segments.iter().filter(|(segment, _)| !segment.is_sealed).count();
        most_open.set(most_open.get().max(open));
        drop((checkpoint, store));
        world.end();

        let world = restored(config, &superblock, &segments);
        let store = world.open();
        assert_eq!(store.len(), keys, "keys that there were when the writers stood still");
        for number in 0..KEYS {
            let found = world.runtime.run(store.get(key(number))).expect("it is read");
            let found = found.map(|found| stamp_of(&key(number), &found));
            assert_eq!(found, then.get(&number).copied(), "key {number}");
        }
        drop(store);
        world.end();
    });
    assert!(most_open.get() > 1, "no checkpoint has an open segment of copies");
}

/// Writing the summary of a full segment takes long, and meanwhile the segment belongs to the checkpoint.
#[test]
fn segment_that_is_being_sealed_is_read_with_its_summary() {
    let config = Config { durability: Durability::Sync, ..Config::new(Tiers::Capacity) };
    let Config { segment_bytes, .. } = config;
    let world = World::new(1, config);
    let store = world.open();
    let device = world.capacity.as_ref().expect("it has one");
    let data_offset = Superblock::find(&device.durable_snapshot()).expect("it is formatted").data_offset;
    let is_sealing = Arc::new(AtomicBool::new(false));
    let begun = is_sealing.clone();
    device.set_faults(Box::new(move |operation| {
        let in_segment = operation.offset.wrapping_sub(data_offset) % segment_bytes;
        let is_last = operation.offset >= data_offset && in_segment + operation.bytes == segment_bytes;
        if operation.kind != OperationKind::Write || !is_last {
            return Fault::None;
        }
        begun.store(true, Ordering::Relaxed);
        Fault::Late(Duration::from_millis(500))
    }));
    // New keys, so that nothing is collected. The last unit of a slot is a marker or a summary; in some
    // rounds it is a summary.
    let mut numbers = 0..;
    let mut sealed = 0;
    for _ in 0..8 {
        is_sealing.store(false, Ordering::Relaxed);
        while !is_sealing.load(Ordering::Relaxed) {
            let number = numbers.next().expect("it has no end");
            world.runtime.run(store.put(key(number), value(&key(number), 1, 2000))).expect("there is room");
            world.runtime.run(world.runtime.sleep(Duration::from_micros(100)));
        }
        let mut checkpoint = world.runtime.run(store.checkpoint()).expect("it is taken");
        let segments = world.runtime.run(read(&world, &mut checkpoint));
        sealed += segments.iter().filter(|(segment, _)| segment.is_sealed).count();
        drop(checkpoint);
        world.runtime.run(world.runtime.sleep(Duration::from_secs(1)));
    }
    assert!(sealed > 0, "a segment was sealed");
    drop(store);
    world.end();
}
