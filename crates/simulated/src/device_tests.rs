//! Tests of devices in a simulated world: operations overlap, a power failure loses unflushed data, and everything
//! replays.

use std::collections::BTreeSet;

use esker_device::{Buffer, Device, Runtime};

use super::*;

const BLOCK: usize = 512;

fn block(fill: u8) -> Buffer {
    let mut block = Buffer::zeroed(BLOCK);
    block.fill(fill);
    block
}

/// Writers race; some flush. After a power failure at a random time, flushed data is present. Returns the trace and the
/// final image.
fn life_and_power_cut(seed: u64) -> (u64, Vec<u8>) {
    let runtime = SimRuntime::new(seed);
    let disk = device(&runtime, MemoryOptions::new(64 << 10));
    let acknowledged = Arc::new(parking_lot::Mutex::new(BTreeSet::new()));
    for writer in 0..8u64 {
        let (disk, acknowledged) = (disk.clone(), acknowledged.clone());
        let task = async move {
            for round in 0..12u64 {
                let place = writer * 12 + round;
                let mode = if writer % 2 == 0 { WriteMode::Durable } else { WriteMode::Plain };
                disk.write(place * BLOCK as u64, block(place as u8 + 1).into(), mode).await.unwrap();
                if mode == WriteMode::Plain {
                    disk.flush().await.unwrap();
                }
                acknowledged.lock().insert(place);
            }
        };
        runtime.spawn("writer", Box::pin(task));
    }
    let cut_us = runtime.random() % 1500;
    runtime.run(runtime.sleep(std::time::Duration::from_micros(cut_us)));
    let after = power_cut(&runtime, &disk);
    runtime.crash();
    let image = after.snapshot();
    for place in acknowledged.lock().iter() {
        let start = *place as usize * BLOCK;
        assert!(
            image[start..start + BLOCK].iter().all(|byte| *byte == *place as u8 + 1),
            "seed {seed}: block {place}"
        );
    }
    (runtime.trace(), image)
}

#[test]
fn device_keeps_flushed_data_after_cut_and_replays_by_seed() {
    let mut images = BTreeSet::new();
    for seed in 0..200 {
        let first = life_and_power_cut(seed);
        assert_eq!(first, life_and_power_cut(seed), "seed {seed}");
        images.insert(first.1);
    }
    assert!(images.len() > 150, "power cuts at different times leave different images: {}", images.len());
}

#[test]
fn operations_complete_in_any_order() {
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let runtime = SimRuntime::new(seed);
        let disk = device(&runtime, MemoryOptions::new(64 << 10));
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        for index in 0..3u64 {
            let write = disk.write(index * 512, block(1).into(), WriteMode::Plain);
            let order = order.clone();
            let task = async move {
                write.await.unwrap();
                order.lock().push(index);
            };
            runtime.spawn("waits", Box::pin(task));
        }
        runtime.run_until_idle();
        orders.insert(order.lock().clone());
    }
    assert_eq!(orders.len(), 6, "every order of three happens: {orders:?}");
}

#[test]
fn a_flush_covers_only_what_completed_before_it() {
    let runtime = SimRuntime::new(3);
    let micros = std::time::Duration::from_micros;
    let mut latency = Latency::flash(Arc::new(runtime.clone()));
    (latency.write, latency.flush) = (micros(10)..micros(10), micros(100)..micros(100));
    let disk = device(&runtime, MemoryOptions { latency: Some(latency), ..MemoryOptions::new(1024) });
    runtime.run(async {
        disk.write(0, block(1).into(), WriteMode::Plain).await.unwrap();
        let flush = disk.flush();
        disk.write(512, block(2).into(), WriteMode::Plain).await.unwrap();
        flush.await.unwrap();
        assert_eq!((disk.snapshot()[0], disk.snapshot()[512]), (1, 2));
        assert_eq!(
            (disk.durable_snapshot()[0], disk.durable_snapshot()[512]),
            (1, 0),
            "the second came too late"
        );
        disk.flush().await.unwrap();
        assert_eq!(disk.durable_snapshot()[512], 2);
    });
}

/// Kills the process while a write of eight blocks is in flight. Returns the number of blocks written.
fn blocks_after_kill(seed: u64) -> usize {
    let runtime = SimRuntime::new(seed);
    let disk = device(&runtime, MemoryOptions::new(64 << 10));
    let mut buffer = Buffer::zeroed(8 * BLOCK);
    buffer.fill(1);
    drop(disk.write(0, buffer.into(), WriteMode::Durable));
    let mut random = runtime.fork_random();
    disk.kill(&mut || random.bits());
    runtime.crash_except(DEVICE_TASK);
    runtime.run_until_idle();
    let image = disk.snapshot();
    let blocks: Vec<&[u8]> = image[..8 * BLOCK].chunks(BLOCK).collect();
    assert!(
        blocks.iter().all(|block| block.iter().all(|byte| *byte == block[0])),
        "a block is written or not"
    );
    blocks.iter().filter(|block| block[0] == 1).count()
}

#[test]
fn a_kill_leaves_any_blocks_of_what_was_in_flight() {
    let counts: BTreeSet<usize> = (0..200).map(blocks_after_kill).collect();
    assert_eq!(counts, (0..=8).collect(), "none, all, and any number between");
}
