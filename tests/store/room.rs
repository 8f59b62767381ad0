//! Lack of space: for a slot, for a batch, for the memory of segments.
//!
//! The last test needs root, to mount a small file system; if that fails, `SKIPPED: ` and the reason are
//! printed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Blocking, Durability, Error, Options, WriteOptions};
use esker_device::{DeviceError, Fault, Operation, OperationKind, Runtime, WriteMode};

use crate::support::{Config, Tiers, World, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// A thin volume has no space for the blocks of slots that were never used, until puts were refused for it.
#[test]
fn slots_without_room_are_cleared_again_before_they_are_used() {
    const REFUSED: u64 = 20;
    let mut config = Config::new(Tiers::Capacity);
    config.capacity_segments = 160;
    config.durability = Durability::None;
    let world = World::new(3, config);
    let store = world.open();
    let device = world.capacity.clone().expect("it has one");
    let mut acknowledged = BTreeSet::new();
    let (refused, in_vain) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen, failed) = (refused.clone(), in_vain.clone());
    device.set_faults(Box::new(move |operation: &Operation| {
        let is_new = operation.kind == OperationKind::Write
            && operation.offset >= (1 << 20) + 64 * (64 << 10)
            && operation.mode == WriteMode::Plain
            && operation.bytes == 4096
            && seen.load(Ordering::Relaxed) < REFUSED;
        failed.fetch_add(is_new.into(), Ordering::Relaxed);
        if is_new { Fault::Error(28) } else { Fault::None }
    }));
    for n in 0..1100 {
        let written = world.runtime.run(store.put(key(n), value(&key(n), n, 5000)));
        match written {
            Ok(_) => drop(acknowledged.insert(n)),
            Err(Error::Io(DeviceError::Full { .. })) => drop(refused.fetch_add(1, Ordering::Relaxed)),
            Err(error) => panic!("{n}: {error}"),
        }
        if n % 10 == 0 {
            world.runtime.run(world.runtime.sleep(Duration::from_millis(5)));
        }
    }
    assert!(
        in_vain.load(Ordering::Relaxed) > REFUSED,
        "slots were cleared in vain more often than puts waited"
    );
    assert_eq!(acknowledged.len() as u64, 1100 - REFUSED, "writing continues when there is room");
    world.runtime.run(store.flush()).expect("it is flushed");
    world.runtime.run(store.close()).expect("it is closed");
    drop(store);
    let store = world.open();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|n| world.runtime.run(store.get(key(**n))).expect("it is read").is_none())
        .collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
}

/// A batch is not refused if space for it can be freed.
#[test]
fn a_batch_waits_for_relief_as_puts_do() {
    let mut config = Config::new(Tiers::Capacity);
    config.capacity_segments = 40;
    let world = World::new(1, config);
    let store = world.open();
    let expires_at_ms = Some(store.now_ms() + 10_000);
    let options = WriteOptions { expires_at_ms, ..WriteOptions::default() };
    // Expired keys stop counting after a sweep, or when the batch needs space.
    let mut n = 0u64;
    let room = loop {
        let stats = store.stats();
        let room = stats.user_limit_bytes.saturating_sub(stats.live_bytes + stats.keys * 24);
        if room < 6000 {
            break room;
        }
        let last = room < 11_000;
        let options = if last { options } else { WriteOptions::default() };
        world.runtime.run(store.put_with(key(n), vec![3u8; 4000], options)).expect("it is put");
        n += 1;
    };
    world.runtime.run(world.runtime.sleep(Duration::from_secs(20)));
    assert!((2400..7100).contains(&room), "room for {room} bytes");
    let mut batch = Batch::new();
    for n in 0..150 {
        batch.put(format!("b{n:07}"), vec![1u8; 8]);
    }
    // 2,400 bytes of keys and values, 7,200 with overhead.
    world.runtime.run(store.write(batch)).expect("what has expired makes room for it");
}

/// `/dev/shm` of a container may have space for less segment memory than the budget allows.
#[test]
fn a_small_file_system_for_staging_is_made_do_with() {
    const SEGMENT_BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let Some(small) = SmallFileSystem::mount(directory.path(), "3500k") else {
        return println!("SKIPPED: a small tmpfs cannot be mounted here");
    };
    let store = tempfile::tempdir().expect("a directory");
    let options = || {
        Options::capacity_only(store.path().join("data"))
            .capacity_limit_bytes(64 * SEGMENT_BYTES)
            .segment_bytes(SEGMENT_BYTES)
            .memory_bytes(128 << 20)
            .staging(small.0.join("staging"))
            .durability(Durability::Process)
    };
    let blocking = Blocking::open(options()).expect("two segments fit");
    for n in 0..3000 {
        blocking.put(key(n), value(&key(n), n, 4000)).expect("it goes on with those that fit");
    }
    blocking.close().expect("it closes");
    let blocking = Blocking::open(options()).expect("it opens");
    for n in 0..3000 {
        let found = blocking.get(key(n)).expect("it is read");
        assert_eq!(found.as_deref(), Some(&value(&key(n), n, 4000)[..]), "key {n}");
    }
    blocking.close().expect("it closes");
}

struct SmallFileSystem<'a>(&'a Path);

impl SmallFileSystem<'_> {
    fn mount<'a>(at: &'a Path, size: &str) -> Option<SmallFileSystem<'a>> {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(at).output();
        mount.ok().filter(|output| output.status.success()).map(|_| SmallFileSystem(at))
    }
}

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0).status().ok();
    }
}
