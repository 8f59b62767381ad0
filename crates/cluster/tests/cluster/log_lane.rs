//! The log of the store: random histories of several groups, with power cuts, restarts and full slots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_device::{Device, OperationKind, Runtime};
use esker_engine::{Error, GroupLog};
use esker_simulated::{Random, SimRuntime};
use parking_lot::Mutex;

use crate::history::{History, Model, Record};
use crate::support::{Devices, SEGMENT_BYTES, Tiers};

type Shared = Arc<Mutex<History>>;

/// Appends random records of one group, some of which it waits for. Ends with an error of the log.
async fn write(
    log: GroupLog,
    group: u8,
    mut random: Random,
    history: Shared,
    changes: u64,
) -> Result<(), Error> {
    let mut entries: u64 = 0;
    for _ in 0..changes {
        let range = log.range(group);
        let bytes = |random: &mut Random, most: u64| {
            let byte = random.bits() as u8;
            Bytes::from(vec![byte; random.below(most) as usize])
        };
        let length = range.end - range.start;
        // Beyond this length the log's slots might not suffice.
        let choice = if length > 100 { 3 } else { random.below(16) };
        let (written, records) = match choice {
            0 | 1 => {
                let (number, value) = (random.below(3) as u8, bytes(&mut random, 60));
                history.lock().add(Record::State(group, number, value.clone()));
                let records = history.lock().len();
                (log.set_state(group, number, &value).await?, records)
            }
            2 if !range.is_empty() => {
                let from = range.start + random.below(length);
                history.lock().add(Record::Truncate(group, from));
                let records = history.lock().len();
                (log.truncate(group, from).await?, records)
            }
            3 if length > 20 => {
                let through = range.start + random.below(length);
                let note = bytes(&mut random, 20);
                history.lock().add(Record::Purge(group, through, note.clone()));
                let records = history.lock().len();
                (log.purge(group, through, &note).await?, records)
            }
            _ => {
                let most = if random.one_in(10) { 9000 } else { 300 };
                let batch: Vec<_> = (0..1 + random.below(8)).map(|_| bytes(&mut random, most)).collect();
                let first = log.range(group).end;
                // One writer of a group appends at a time, so the log writes the entries in this order.
                for (index, entry) in (first..).zip(&batch) {
                    history.lock().add(Record::Entry(group, index, entry.clone()));
                }
                entries += batch.len() as u64;
                let records = history.lock().len();
                (log.append(group, first, &batch).await?, records)
            }
        };
        if random.one_in(3) {
            written.durable().await?;
            history.lock().is_durable(records);
        }
    }
    assert!(entries > changes / 4, "few entries");
    Ok(())
}

/// Writes, cuts the power at a random time, and compares the content that is left with the written history; several times.
fn history_with_power_cuts(seed: u64, tiers: Tiers) -> u64 {
    let world = SimRuntime::new(seed);
    let mut random = world.fork_random();
    let mut devices = Devices::new(&world, tiers, 5 + random.below(4) as u32);
    let mut expected = Model::default();
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    for round in 0..4 {
        let history: Shared = Arc::new(Mutex::new(History::after(expected)));
        world.run(async {
            let (store, log) = devices.open(runtime.clone()).await;
            if round > 0 {
                let found = Model::of(&log).await;
                assert_eq!(
                    found.without_empty(),
                    history.lock().now().without_empty(),
                    "seed {seed}, round {round}"
                );
            }
            let (log, history) = (log.clone(), history.clone());
            let writer = random.fork();
            let changes = 30 + random.below(300);
            let task = async move {
                // One after the other, so that the order of records is known; groups that write at a time are in
                // `groups_share_frames`.
                write(log, 1, writer, history, changes).await.expect("the log has room");
                drop(store);
            };
            runtime.spawn("writer", Box::pin(task));
            world.sleep(Duration::from_micros(random.below(60_000))).await;
        });
        devices = devices.power_cut(&world);
        world.crash();
        let found = world.run(async {
            let (store, log) = devices.open(runtime.clone()).await;
            let found = Model::of(&log).await;
            if random.one_in(2) {
                store.close().await.expect("the store closes");
            }
            found
        });
        let history = history.lock();
        let length = history.prefix(&found);
        assert!(
            length.is_some(),
            "seed {seed}, round {round}: the log is no prefix of what was written: {found:?}"
        );
        expected = found;
        devices = devices.power_cut(&world);
        world.crash();
    }
    world.trace()
}

#[test]
fn power_cut_leaves_a_prefix_with_everything_durable() {
    for tiers in [Tiers::Fast, Tiers::Both] {
        for seed in 0..40 {
            history_with_power_cuts(seed, tiers);
        }
    }
}

#[test]
fn log_history_replays_from_its_seed() {
    for seed in 0..3 {
        assert_eq!(history_with_power_cuts(seed, Tiers::Both), history_with_power_cuts(seed, Tiers::Both));
    }
}

/// Groups that write at the same time share durable writes, and each finds its own entries after a power cut.
#[test]
fn groups_share_durable_writes() {
    let world = SimRuntime::new(7);
    let devices = Devices::new(&world, Tiers::Fast, 8);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let (groups, rounds) = (16_u8, 20);
    let written = world.run(async {
        let (_store, log) = devices.open(runtime.clone()).await;
        let before = devices.fast.counters().writes;
        let appends = (0..groups).map(|group| {
            let log = log.clone();
            async move {
                for index in 0..rounds {
                    log.append(group, index, &[[group; 100]]).await.unwrap().durable().await.unwrap();
                }
            }
        });
        futures_util::future::join_all(appends).await;
        devices.fast.counters().writes - before
    });
    assert!(written < 3 * rounds, "{written} durable writes for {rounds} rounds of {groups} groups");
    let cut = devices.power_cut(&world);
    world.crash();
    world.run(async {
        let (_store, log) = cut.open(runtime.clone()).await;
        for group in 0..groups {
            let entries = log.read(group, 0..u64::MAX).await.unwrap();
            assert_eq!(entries, vec![Bytes::from(vec![group; 100]); rounds as usize]);
        }
    });
    world.crash();
}

/// Each crash leaves the segment that was open, so that more crashes than slots leave the log without a free one.
#[test]
fn log_goes_on_after_crashes_that_leave_it_no_slot() {
    let world = SimRuntime::new(1);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let mut devices = Devices::new(&world, Tiers::Fast, 5);
    for index in 0..40 {
        world.run(async {
            let (_store, log) = devices.open(runtime.clone()).await;
            assert_eq!(log.range(1), 0..index, "what was durable is there");
            let written = log.append(1, index, &[index.to_le_bytes()]).await;
            written.expect("there is room").durable().await.unwrap();
        });
        devices = devices.power_cut(&world);
        world.crash();
    }
}

/// The last slot is in use at the crash, so that an opening finds none for the purge that frees the others.
#[test]
fn log_that_was_full_at_a_crash_is_purged_afterwards() {
    let world = SimRuntime::new(3);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let devices = Devices::new(&world, Tiers::Fast, 5);
    let last = world.run(async {
        let (_store, log) = devices.open(runtime.clone()).await;
        let mut index = 0;
        while log.append(1, index, &[vec![index as u8; 4000]]).await.is_ok() {
            index += 1;
        }
        // Votes may take the last slot. Each is larger than any real one, so that they fill it.
        while let Ok(written) = log.set_state(1, 0, &[7; 3500]).await {
            written.durable().await.unwrap();
        }
        index - 1
    });
    let cut = devices.power_cut(&world);
    world.crash();
    world.run(async {
        let (_store, log) = cut.open(runtime.clone()).await;
        log.purge(1, last, b"all").await.expect("a purge has room").durable().await.unwrap();
        log.append(1, last + 1, &[[1; 4000]]).await.expect("there is room").durable().await.unwrap();
    });
}

/// An idle group's entries are copied forward, so that a busy group never runs out of slots; slots that all groups need
/// are refused, and the refusal ends with a purge.
#[test]
fn log_frees_slots_beside_idle_group_and_refuses_when_full() {
    for seed in 0..10 {
        let world = SimRuntime::new(seed);
        let devices = Devices::new(&world, Tiers::Fast, 5);
        let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
        let idle = Bytes::from(vec![1; 2000]);
        world.run(async {
            let (_store, log) = devices.open(runtime.clone()).await;
            log.append(0, 1, &[idle.clone(), idle.clone()]).await.unwrap().durable().await.unwrap();
            log.set_state(0, 0, b"vote").await.unwrap().durable().await.unwrap();
            // Twenty times the log's slots.
            let entry = vec![2; 4000];
            for index in 0..20 * 5 * SEGMENT_BYTES / 4000 {
                let written = log.append(1, index, &[&entry]).await.expect("the busy group purges");
                if index % 8 == 0 {
                    written.durable().await.unwrap();
                }
                if index % 10 == 9 {
                    let _written = log.purge(1, index - 5, b"").await.unwrap();
                }
            }
            let end = log.range(1).end;
            let mut refused = None;
            for index in end..end + 5 * SEGMENT_BYTES / 4000 {
                if let Err(error) = log.append(1, index, &[&entry]).await {
                    refused = Some(error);
                    break;
                }
            }
            assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
            let last = log.range(1).end - 1;
            log.purge(1, last, b"all").await.expect("a purge has room").durable().await.unwrap();
            log.append(1, last + 1, &[&entry]).await.unwrap().durable().await.unwrap();
        });
        let cut = devices.power_cut(&world);
        world.crash();
        world.run(async {
            let (_store, log) = cut.open(runtime.clone()).await;
            assert_eq!(log.read(0, 0..9).await.unwrap(), [idle.clone(), idle.clone()], "seed {seed}");
            assert_eq!(log.state(0, 0).as_deref(), Some(&b"vote"[..]));
            let range = log.range(1);
            assert_eq!(
                (range.end - range.start, log.purged(1)),
                (1, Some((range.start - 1, Bytes::from("all"))))
            );
        });
        world.crash();
    }
}

/// A state that is replaced soon after an opening: a vote or a floor must not be lost by a second power failure.
#[test]
fn found_segment_is_kept_until_replacements_are_durable() {
    for tiers in [Tiers::Fast, Tiers::Both] {
        let world = SimRuntime::new(12);
        let devices = Devices::new(&world, tiers, 5);
        let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
        world.run(async {
            let (_store, log) = devices.open(runtime.clone()).await;
            log.set_state(1, 0, b"first").await.unwrap().durable().await.unwrap();
        });
        let devices = devices.power_cut(&world);
        world.crash();
        world.run(async {
            let (_store, log) = devices.open(runtime.clone()).await;
            // It is not written before another record is waited for.
            log.note_state(1, 0, b"second").await.unwrap();
            world.sleep(Duration::from_secs(1)).await;
        });
        let devices = devices.power_cut(&world);
        world.crash();
        world.run(async {
            let (_store, log) = devices.open(runtime.clone()).await;
            assert!(log.state(1, 0).is_some(), "{tiers:?}: neither of two states is left");
        });
        world.crash();
    }
}

/// Cuts the power before every durable write or flush of any device, while users write too. The log that is left holds
/// everything that was durable before.
#[test]
fn power_cut_before_every_flush_loses_nothing_durable() {
    for tiers in [Tiers::Fast, Tiers::Both] {
        let world = SimRuntime::new(11);
        let devices = Devices::new(&world, tiers, 5);
        let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
        let history: Shared = Arc::default();
        let cuts: Arc<Mutex<Vec<(Devices, History)>>> = Arc::default();
        for device in devices.all() {
            let (world, devices, history, cuts) =
                (world.clone(), devices.clone(), history.clone(), cuts.clone());
            device.set_faults(Box::new(move |operation| {
                let is_flush = operation.kind == OperationKind::Flush
                    || operation.kind == OperationKind::Write
                        && operation.mode == esker_device::WriteMode::Durable;
                if is_flush && history.lock().len() > 0 {
                    cuts.lock().push((devices.power_cut(&world), history.lock().clone()));
                }
                esker_device::Fault::None
            }));
        }
        world.run(async {
            let (store, log) = devices.open(runtime.clone()).await;
            let puts = async {
                for number in 0..60_u32 {
                    store.put(format!("key {number}"), vec![3; 700]).await.unwrap();
                }
            };
            let random = world.fork_random();
            let (_, written) = futures_util::join!(puts, write(log.clone(), 2, random, history.clone(), 120));
            written.unwrap();
        });
        devices.all().for_each(|device| device.clear_faults());
        world.crash();
        let cuts = std::mem::take(&mut *cuts.lock());
        assert!(cuts.len() > 60, "{} cuts", cuts.len());
        let mut lengths = BTreeMap::new();
        for (at, (devices, history)) in cuts.into_iter().enumerate() {
            let found = world.run(async {
                let (_store, log) = devices.open(runtime.clone()).await;
                Model::of(&log).await
            });
            world.crash();
            let length = history.prefix(&found);
            assert!(length.is_some(), "{tiers:?}, cut {at}: no prefix with everything durable: {found:?}");
            *lengths.entry(length).or_insert(0) += 1;
        }
        assert!(lengths.len() > 20, "{lengths:?}");
    }
}
