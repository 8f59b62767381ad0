use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_device::{Fault, Operation, OperationKind};
use esker_gc::Placement;
use futures_util::future::{join, join_all};
use parking_lot::Mutex;

use super::*;

use crate::base::durability::Durability;
use crate::segments::slot::SlotState;
use crate::testing::{Bench, Plan};

#[path = "committer_rows_tests.rs"]
mod rows;
#[path = "committer_zeros_tests.rs"]
mod zeros;

const SYNC: Durability = Durability::Sync;
const EIO: i32 = 5;

fn name(number: usize) -> String {
    format!("key {number}")
}

/// Returns a value of varying length, so that frames differ.
fn value(number: usize) -> Vec<u8> {
    vec![number as u8; 40 + number * 37 % 900]
}

/// Few sync puts, so that frames without waiters are written, and flushed with the next.
fn seldom_sync() -> [Durability; 12] {
    let mut durabilities = [Durability::Periodic(Duration::from_micros(20)); 12];
    (durabilities[3], durabilities[8]) = (Durability::None, SYNC);
    durabilities
}

/// Returns a started lane on a slow device, with its committer.
fn bench(seed: u64) -> Bench {
    let bench = Plan { slow: true, ..Plan::new(seed) }.build();
    bench.start();
    bench
}

/// Like [`bench`], with records separated by expected lifetime.
fn separating(seed: u64) -> Bench {
    let placement = Placement::new(4);
    (0..16).for_each(|_| placement.note_collected(500, 1000));
    (0..600).for_each(|_| placement.note_put(true));
    placement.note_collected(500, 1000);
    assert!(placement.parts());
    let bench = Plan { slow: true, placement, may_separate: true, ..Plan::new(seed) }.build();
    bench.start();
    bench
}

/// Records every operation that the device is given.
fn log(bench: &Bench) -> Arc<Mutex<Vec<Operation>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = log.clone();
    bench.devices[0].set_observer(Box::new(move |operation| seen.lock().push(*operation)));
    log
}

/// Puts `count` keys at about the same time, slightly staggered, with these durabilities in turn. Returns the result of each;
/// panics if a sync put was acknowledged before it was durable.
async fn put_many(bench: &Bench, count: usize, durabilities: &[Durability]) -> Vec<crate::Result<u64>> {
    let puts = (0..count).map(|number| async move {
        bench.sleep(Duration::from_micros(number as u64 * 3)).await;
        let durability = durabilities[number % durabilities.len()];
        let put = bench.put(&name(number), &value(number), durability).await;
        if let (Ok(sequence), Durability::Sync) = (&put, durability) {
            let durable = bench.durable();
            assert!(
                durable.iter().any(|e| e.sequence == *sequence),
                "{number} was acknowledged before it was durable"
            );
        }
        put
    });
    join_all(puts).await
}

/// Calls `look` repeatedly until `work` has ended.
async fn watching<T>(bench: &Bench, work: impl Future<Output = T>, look: impl Fn()) -> T {
    let ended = std::cell::Cell::new(false);
    let watcher = async {
        while !ended.get() {
            look();
            bench.sleep(Duration::from_micros(7)).await;
        }
    };
    let work = async {
        let done = work.await;
        ended.set(true);
        done
    };
    join(work, watcher).await.0
}

/// Returns the numbers of those of the first `count` keys that readers see.
fn visible(bench: &Bench, count: usize) -> Vec<usize> {
    let is_seen = |number: &usize| {
        let hash = bench.catalog.hash_in(0, name(*number).as_bytes());
        bench.catalog.index.get(&hash).is_some()
    };
    (0..count).filter(is_seen).collect()
}

#[test]
fn a_sync_put_is_seen_and_acknowledged_only_when_it_is_durable() {
    for seed in 0..10 {
        let bench = bench(seed);
        let look = || {
            let seen = visible(&bench, 60);
            let durable = bench.durable();
            for number in seen {
                let hash = bench.catalog.hash_in(0, name(number).as_bytes());
                let is_durable = durable.iter().any(|entry| entry.key_hash == hash);
                assert!(is_durable, "seed {seed}: {number} is seen and not durable");
            }
        };
        bench.run(watching(&bench, put_many(&bench, 60, &[SYNC]), look));
        bench.run(put_many(&bench, 120, &seldom_sync()));
    }
}

#[test]
fn frames_are_written_in_the_order_of_their_records() {
    for seed in 0..10 {
        let bench = bench(seed);
        let log = log(&bench);
        let sequences = bench.run(put_many(&bench, 200, &[SYNC, Durability::None]));
        bench.run(bench.writer.flush()).expect("it is flushed");
        assert!(sequences.iter().all(Result::is_ok));
        let ends_at = |operation: &Operation| operation.offset + operation.bytes;
        let writes = log.lock().clone();
        let tier = bench.space.first_tier();
        let mut tails = BTreeMap::new();
        for write in writes.iter().filter(|o| o.kind == OperationKind::Write) {
            let slot = tier.slot_at(write.offset).expect("it lies in a slot");
            let is_summary = ends_at(write) == tier.device_offset(slot + 1, 0);
            let tail = tails.insert(slot, ends_at(write)).unwrap_or(tier.device_offset(slot, 0));
            assert!(
                is_summary || tail == write.offset,
                "seed {seed}: a frame does not follow the one before"
            );
        }
        assert!(tails.len() > 1, "there is more than one segment");
        let durable = bench.durable();
        assert_eq!(durable.len(), 200);
        let mut at: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
        for (slot, held) in tier.slots().in_use() {
            let entries = bench.run(bench.space.read_entries(tier, slot)).expect("it is read");
            entries.iter().flatten().for_each(|e| {
                at.insert(e.sequence, (held.segment(), e.offset));
            });
        }
        assert!(
            !at.is_empty() && at.values().is_sorted(),
            "seed {seed}: the log is not in the order of numbers"
        );
    }
}

/// Otherwise a power failure could leave a summary that names lost records.
#[test]
fn a_summary_is_written_when_its_frames_are_durable() {
    for seed in 0..10 {
        let bench = bench(seed);
        let log = log(&bench);
        bench.run(put_many(&bench, 200, &[Durability::None]));
        bench.run(bench.writer.flush()).expect("it is flushed");
        let tier = bench.space.first_tier();
        let (mut not_durable, mut summaries) = (BTreeSet::new(), 0);
        for operation in log.lock().iter() {
            match operation.kind {
                OperationKind::Flush => not_durable.clear(),
                OperationKind::Write => {
                    let slot = tier.slot_at(operation.offset).expect("it lies in a slot");
                    if operation.offset + operation.bytes == tier.device_offset(slot + 1, 0) {
                        summaries += 1;
                        assert!(!not_durable.contains(&slot), "seed {seed}: slot {slot} is sealed too early");
                    } else {
                        not_durable.insert(slot);
                    }
                }
                _ => {}
            }
        }
        assert!(summaries > 0, "a segment is sealed");
    }
}

/// The visible records are all records before the last visible one, in whichever segment they are.
#[test]
fn two_append_points_share_one_order() {
    let mut separated = 0;
    for seed in 0..10 {
        let bench = separating(seed);
        // Keys that are overwritten soon are expected to be short-lived, and go to another segment than new keys.
        for round in 0..2 {
            for number in 0..5 {
                let key = format!("hot {number}");
                bench.run(bench.put(&key, &[round; 100], SYNC)).expect("it is put");
            }
        }
        let begun = bench.space.sequence.load(Ordering::Acquire);
        let seen_numbers = Mutex::new(Vec::new());
        let puts = async {
            let puts = (0..80usize).map(|number| {
                let (bench, seen_numbers) = (&bench, &seen_numbers);
                async move {
                    bench.sleep(Duration::from_micros(number as u64 * 20)).await;
                    let key = if number % 2 == 0 { format!("hot {}", number % 5) } else { name(number) };
                    let sequence = bench.put(&key, &value(number), SYNC).await.expect("it is put");
                    seen_numbers.lock().push(sequence);
                    let durable = bench.durable();
                    let known: Vec<u64> =
                        durable.iter().map(|entry| entry.sequence).filter(|at| *at > begun).collect();
                    let before = known.iter().filter(|at| **at <= sequence).count() as u64;
                    assert_eq!(before, sequence - begun, "seed {seed}: one before {sequence} is not durable");
                }
            });
            join_all(puts).await
        };
        let look = || {
            let mut newest = 0;
            let mut missing = u64::MAX;
            for entry in bench.durable().iter().filter(|entry| entry.sequence > begun) {
                let key_is_at = bench.catalog.index.get(&entry.key_hash);
                let hot =
                    (0..5).any(|n| bench.catalog.hash_in(0, format!("hot {n}").as_bytes()) == entry.key_hash);
                match key_is_at {
                    Some(_) if !hot => newest = newest.max(entry.sequence),
                    None => missing = missing.min(entry.sequence),
                    _ => {}
                }
            }
            assert!(newest < missing, "seed {seed}: {newest} is seen and {missing} before it is not");
        };
        bench.run(watching(&bench, puts, look));
        let streams = bench.space.first_tier().slots().in_use().map(|(_, slot)| slot.stream());
        separated +=
            usize::from(streams.filter(|stream| *stream == esker_log::Stream::LONG_LIVED).count() > 0);
    }
    assert!(separated > 0, "nothing was separated");
}

/// For any failing operation: every record acknowledged as durable is durable, all other writers get the error, and later
/// writes are refused.
#[test]
fn a_failed_operation_fails_the_waiters_and_everything_after() {
    for (fault, kind) in [
        (Fault::Error(EIO), OperationKind::Write),
        (Fault::TornThenError(EIO), OperationKind::Write),
        (Fault::Error(EIO), OperationKind::Flush),
    ] {
        for failing in 0.. {
            let bench = bench(failing);
            let mut left = failing;
            let failed = Arc::new(AtomicBool::new(false));
            let fails = failed.clone();
            bench.devices[0].set_faults(Box::new(move |operation| match operation.kind == kind {
                true if left == 0 && !fails.swap(true, Ordering::Relaxed) => fault,
                true => {
                    left = left.saturating_sub(1);
                    Fault::None
                }
                false => Fault::None,
            }));
            let durabilities = seldom_sync();
            let (puts, flushed) = bench.run(join(put_many(&bench, 240, &durabilities), async {
                bench.sleep(Duration::from_micros(400)).await;
                bench.writer.flush().await
            }));
            // Records that are only in memory fail when they are to be written.
            let flushed_later = bench.run(bench.writer.flush());
            if !failed.load(Ordering::Relaxed) {
                assert!(failing >= 3, "only {failing} {kind:?} operations were done");
                break;
            }
            let what = format!("{kind:?} {failing} {fault:?}");
            assert!(bench.space.health.check_latch().is_err(), "{what}: the store goes on");
            assert!(flushed_later.is_err(), "{what}: a flush behind the failure is acknowledged");
            assert!(bench.run(bench.put("later", b"", SYNC)).is_err(), "{what}: a put is taken");
            assert!(bench.run(bench.put("later", b"", Durability::None)).is_err(), "{what}: a put is taken");
            let durable = bench.durable();
            let first_failed = puts.iter().position(Result::is_err);
            for (number, put) in puts.iter().enumerate() {
                let is_durable = |sequence| durable.iter().any(|entry| entry.sequence == sequence);
                match put {
                    Ok(sequence) if durabilities[number % 12] == SYNC => {
                        assert!(is_durable(*sequence), "{what}: {number} was acknowledged");
                        assert!(first_failed.is_none_or(|at| number < at), "{what}: {number} came after");
                    }
                    _ => {}
                }
            }
            if flushed.is_ok() {
                let early = puts.iter().take(50).filter_map(|put| put.as_ref().ok());
                let all = early.into_iter().all(|at| durable.iter().any(|entry| entry.sequence == *at));
                assert!(all, "{what}: a flush was acknowledged before earlier puts were durable");
            }
        }
    }
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it() {
    for seed in 0..10 {
        let bench = bench(seed);
        let puts = bench.run(put_many(&bench, 40, &[Durability::None]));
        assert!(bench.durable().len() < 40, "they were acknowledged from memory");
        assert_eq!(visible(&bench, 40).len(), 40, "they are visible although not durable");
        bench.run(bench.writer.flush()).expect("it is flushed");
        let durable: Vec<u64> = bench.durable().iter().map(|entry| entry.sequence).collect();
        let puts: Vec<u64> = puts.into_iter().map(|put| put.expect("it is put")).collect();
        assert_eq!(durable, puts, "seed {seed}");
    }
}

#[test]
fn write_acknowledged_from_memory_is_durable_in_time() {
    let slack = Duration::from_millis(2);
    let period = Duration::from_millis(50);
    for (durability, within) in [(Durability::None, MAX_UNWRITTEN), (Durability::Periodic(period), period)] {
        let bench = bench(1);
        bench.run(async {
            // No other write is needed for it.
            for number in 0..3 {
                bench.put(&name(number), &value(number), durability).await.expect("it is put");
                bench.sleep(within + slack).await;
                assert_eq!(bench.durable().len(), number + 1, "{durability}");
            }
        });
    }
}

/// A stop may come when the committer has just found no work.
#[test]
fn a_lane_that_stops_ends_behind_its_last_frame() {
    let bench = bench(10);
    bench.run(bench.put("key", b"value", Durability::None)).expect("it is put");
    // The committer itself has ended.
    let (lane, now) = (&bench.writer.lane, bench.space.runtime.now());
    let next = || lane.next_job(Close::When(1), now);
    assert!(next().is_none());
    lane.stop();
    assert!(matches!(next(), Some(Job::Frame(_))));
    assert!(matches!(next(), Some(Job::End)));
}

/// Otherwise writers wait at the end of each segment. The padding of a frame may fill it to half.
#[test]
fn the_next_segment_is_there_when_one_is_more_than_half_full() {
    let bench = bench(11);
    let slots = bench.space.first_tier().slots();
    let mut is_wanted = false;
    for number in 0.. {
        if slots.count(SlotState::Sealed) == 2 {
            break;
        }
        bench.run(bench.put(&name(number), &[7; 100], SYNC)).expect("it is put");
        bench.run(bench.sleep(Duration::from_millis(100)));
        let was_wanted = std::mem::replace(&mut is_wanted, bench.writer.lane.wants_spare());
        assert!(!was_wanted || !is_wanted, "no spare segment is being opened after {number} puts");
    }
}

#[test]
fn a_lane_that_stops_writes_and_seals_what_it_has() {
    let bench = bench(3);
    bench.run(put_many(&bench, 40, &[Durability::None]));
    bench.writer.stop();
    bench.run(bench.writer.tasks.ended());
    assert_eq!(bench.durable().len(), 40);
    let slots = bench.space.first_tier().slots();
    let summaries = slots.sealed().map(|(slot, _)| {
        let entries = bench.run(bench.space.read_entries(bench.space.first_tier(), slot));
        entries.expect("it is read").expect("there is a summary").len()
    });
    assert_eq!(summaries.sum::<usize>(), 40);
    assert!(bench.run(bench.put("later", b"", SYNC)).is_err());
}

/// Recovery treats a hole below that offset as rot, not as a torn frame.
#[test]
fn a_frame_states_no_more_than_what_is_durable() {
    let mut stated = 0;
    for seed in 0..5 {
        let bench = bench(seed);
        let (tier, secret) = (bench.space.first_tier(), bench.space.secret);
        let checked = std::cell::Cell::new(0);
        let look = || {
            let (written, durable) = (bench.devices[0].snapshot(), bench.devices[0].durable_snapshot());
            for (slot, _) in tier.slots().in_use() {
                let start = tier.device_offset(slot, 0) as usize;
                for at in (0..tier.shape().segment_bytes).step_by(tier.shape().unit_bytes as usize) {
                    let header = esker_log::FrameHeader::parse(&written[start + at as usize..], &secret, at);
                    let through = header.map_or(0, |header| header.durable_through as usize);
                    let range = start..start + through;
                    assert!(
                        written[range.clone()] == durable[range],
                        "seed {seed}: not all below {through} is durable"
                    );
                    checked.set(checked.get() + u32::from(through > 0));
                }
            }
        };
        // From then on frames state how far the segment is durable.
        bench.run(bench.put("first", b"value", SYNC)).expect("it is put");
        bench.run(watching(&bench, put_many(&bench, 120, &[Durability::None]), look));
        stated += checked.get();
    }
    assert!(stated > 0, "no frame states anything");
}

/// Frames without waiting writers do not delay a flush that is due.
#[test]
fn a_flush_that_is_due_is_not_put_off_by_later_frames() {
    let bench = bench(1);
    bench.run(async {
        for number in 0..55 {
            bench.put(&name(number), &[7; 900], Durability::None).await.expect("it is put");
            bench.sleep(Duration::from_millis(20)).await;
        }
    });
    let slots = bench.space.first_tier().slots();
    assert_eq!(slots.count(SlotState::Sealed), 0, "a summary causes a flush as well");
    let first = bench.catalog.hash_in(0, name(0).as_bytes());
    assert!(bench.durable().iter().any(|entry| entry.key_hash == first), "it is more than a second old");
}

#[test]
fn reservation_sees_every_earlier_append() {
    for seed in 0..10 {
        let bench = bench(seed);
        let (lane, sequence) = (&bench.writer.lane, &bench.space.sequence);
        let reserve = async {
            for number in 0..60u64 {
                bench.sleep(Duration::from_micros(4)).await;
                let appended = sequence.load(Ordering::Acquire);
                let reservation = lane.reserve(vec![number]).await.expect("nothing fails");
                assert!(lane.published_through() >= appended, "seed {seed}: {appended} is not visible");
                drop(reservation);
            }
        };
        bench.run(join(put_many(&bench, 100, &[SYNC]), reserve));
    }
}

/// A segment opened meanwhile may get a copy of the record that it replaces.
#[test]
fn drawn_number_is_published_with_its_reservation() {
    let bench = bench(1);
    bench.run(async {
        let (lane, sequence) = (&bench.writer.lane, &bench.space.sequence);
        let mut reservation = lane.reserve(vec![1]).await.expect("nothing fails");
        let drawn = reservation.draw(sequence);
        assert_eq!(lane.published_through(), drawn - 1);
        drop(reservation);
        assert_eq!(lane.published_through(), drawn);
    });
}

fn sync() -> crate::write::options::WriteOptions {
    crate::write::options::WriteOptions { durability: Some(SYNC), ..Default::default() }
}
