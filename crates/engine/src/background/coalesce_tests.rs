use esker_log::{Entry, SegmentName};
use futures_util::FutureExt;
use futures_util::future::{Either, select};

use super::*;

use crate::base::durability::Durability;
use crate::testing::{Bench, Plan, SEGMENT_BYTES};
use crate::write::coalescing::CoalescingPlan;
use crate::write::lane::MAX_UNWRITTEN;
use crate::write::options::WriteOptions;

/// Returns a store whose puts coalesce for ten seconds, with its committer.
fn bench() -> Bench {
    let plan = CoalescingPlan { wait: Duration::from_secs(10), segments: 2 };
    let bench = Plan { coalescing: Some(plan), slow: true, ..Plan::new(1) }.build();
    bench.start();
    bench
}

/// Starts to provide segments, and to write memtables out.
fn start(bench: &Bench) {
    bench.writer.tasks.spawn("coalesce", run(bench.writer.clone()));
    bench.writer.tasks.spawn("coalescing segments", super::provide(bench.writer.clone()));
}

async fn put(bench: &Bench, key: &str) {
    bench.put(key, b"value", Durability::None).await.expect("it is put");
}

/// Gives the lane a segment to fill.
async fn provide(bench: &Bench) {
    provide_opened_at(bench, 0).await;
}

/// Gives the lane a segment that counts as opened at this sequence number.
async fn provide_opened_at(bench: &Bench, opened_at: u64) {
    let (space, lane) = (&bench.space, &bench.writer.lane);
    let tier = space.first_tier();
    let opened = space.try_open_segment(tier, Stream::DESTAGED, &lane.pool, (0, 0), opened_at).await;
    let piece = opened.expect("nothing fails").expect("there is a slot, and memory");
    space.buffered.add(BufferedSegment::of(&piece.0));
    lane.put_coalescing_spare(piece);
}

/// Returns the number of entries shown of open segments, and true if those are all.
fn shown(lane: &Lane) -> (usize, bool) {
    let mut count = 0;
    let is_all = lane.each_open_entry(|_, _| count += 1);
    (count, is_all)
}

/// Otherwise it could be removed from the index as expired, and no longer hide the record being written out.
#[test]
fn memtable_behind_one_being_flushed_yields_no_open_entries() {
    let bench = bench();
    bench.run(async {
        let lane = &bench.writer.lane;
        provide(&bench).await;
        put(&bench, "a").await;
        assert_eq!(shown(lane), (1, true));
        assert!(lane.flush_coalescing().is_some());
        let leaving = lane.next_memtable(bench.space.runtime.now()).expect("it was asked for");
        assert_eq!(shown(lane), (0, false));
        provide(&bench).await;
        put(&bench, "b").await;
        assert_eq!(shown(lane), (0, false), "it is in memory, and not durable");
        lane.memtable_written(Vec::new());
        assert_eq!(shown(lane), (1, true));
        drop(leaving);
    });
}

#[test]
fn a_segment_without_records_keeps_no_tombstone() {
    let bench = bench();
    start(&bench);
    bench.run(async {
        bench.sleep(Duration::from_millis(1)).await;
        assert!(!bench.writer.lane.wants_coalescing_spare(), "there is one");
        let slots = bench.space.first_tier().slots();
        let (unused, _) = slots.in_use().find(|(_, s)| s.opened_at() == u64::MAX).expect("it is unused");
        put(&bench, "a").await;
        assert!(slots.slot(unused).is_coalescing());
        assert!(
            slots.slot(unused).opened_at() < u64::MAX,
            "an older version of its key may have to be hidden"
        );
    });
}

/// Only writing a memtable out returns memory, so the task that does so must not wait for memory.
#[test]
fn without_memory_nothing_coalesces_and_a_flush_ends() {
    let bench = bench();
    let lane = &bench.writer.lane;
    let taken: Vec<_> = (0..2).map(|_| lane.pool.take(&bench.space.buffered).expect("it is there")).collect();
    assert!(taken.iter().all(Option::is_some));
    start(&bench);
    bench.run(async {
        bench.sleep(Duration::from_millis(1)).await;
        assert!(lane.wants_coalescing_spare(), "the only memory left is the lane's");
        put(&bench, "a").await;
        bench.writer.flush().await.expect("it is flushed");
        assert!(bench.get("a").now_or_never().is_some());
    });
    assert_eq!(bench.durable().len(), 1);
}

/// Falling back to the lane would write records to the device that are overwritten a moment later.
#[test]
fn puts_wait_for_the_next_memtable_when_this_one_is_full() {
    let bench = bench();
    bench.run(async {
        let lane = &bench.writer.lane;
        provide(&bench).await;
        let value = vec![7; SEGMENT_BYTES as usize / 10];
        let put = || bench.put("a", &value, Durability::None);
        let mut puts = 0;
        let mut waits = Box::pin(put());
        while let Some(done) = waits.as_mut().now_or_never() {
            done.expect("it is put");
            puts += 1;
            waits = Box::pin(put());
        }
        assert!((8..=10).contains(&puts), "{puts} fit into the segment that there is");
        let leaving = lane.next_memtable(bench.space.runtime.now()).expect("it is full");
        assert!(waits.as_mut().now_or_never().is_none(), "the next one has no segment yet");
        provide(&bench).await;
        assert!(waits.now_or_never().is_some_and(|done| done.is_ok()));
        drop(leaving);
        bench.sleep(2 * MAX_UNWRITTEN).await;
    });
    assert!(bench.durable().is_empty(), "nothing went to the lane");
}

/// The newest version must be copied, because the record that superseded it is not durable yet; earlier versions never.
#[test]
fn coalescer_copies_only_newest_version_of_rewritten_key() {
    let bench = bench();
    let mut third = 0;
    bench.run(async {
        let (space, catalog, writer) = (&*bench.space, &*bench.catalog, &*bench.writer);
        provide(&bench).await;
        for _ in 0..3 {
            third = bench.put("a", b"value", Durability::None).await.expect("it is put");
        }
        assert!(writer.lane.flush_coalescing().is_some());
        let memtable = writer.lane.next_memtable(space.runtime.now()).expect("it was asked for");
        provide(&bench).await;
        put(&bench, "a").await;
        let relocator = Relocator::new(Expirer { space, catalog, writer });
        let mut coalescer = Coalescer { space, catalog, lane: &writer.lane, relocator, wrote_at: None };
        coalescer.write_out(memtable.pieces).await.expect("it is written");
        memtable.completion.open(Ok(()));
    });
    let durable: Vec<u64> = bench.durable().iter().map(|entry| entry.sequence).collect();
    assert_eq!(durable, [third], "two older versions are not written");
}

/// Until then the segment looks like garbage, and the collector would free it.
#[test]
fn a_segment_of_copies_is_sealed_when_the_index_leads_to_it() {
    let bench = bench();
    bench.run(async {
        let (space, catalog, writer) = (&*bench.space, &*bench.catalog, &*bench.writer);
        let relocator = Relocator::new(Expirer { space, catalog, writer });
        let mut coalescer = Coalescer { space, catalog, lane: &writer.lane, relocator, wrote_at: None };
        let sealed = || space.first_tier().slots().sealed();
        // The survivors of two memtables fill more than a segment.
        for memtable in 0..2 {
            provide(&bench).await;
            for number in [0, 0, 0, 0, 1, 2, 3, 4] {
                let value = vec![7; SEGMENT_BYTES as usize / 10];
                bench
                    .put(&format!("{memtable} {number}"), &value, Durability::None)
                    .await
                    .expect("it is put");
            }
            assert!(writer.lane.flush_coalescing().is_some());
            let memtable = writer.lane.next_memtable(space.runtime.now()).expect("it was asked for");
            let watch = async {
                loop {
                    for (at, slot) in sealed() {
                        let most = i64::from(SEGMENT_BYTES) * 3 / 4;
                        assert!(slot.live_bytes() > most, "the copies in slot {at} look like garbage");
                    }
                    bench.sleep(Duration::from_micros(1)).await;
                }
            };
            let written = select(Box::pin(coalescer.write_out(memtable.pieces)), Box::pin(watch)).await;
            let Either::Left((written, _)) = written;
            written.expect("it is written");
            writer.lane.memtable_written(Vec::new());
            memtable.completion.open(Ok(()));
        }
        assert_eq!(sealed().count(), 1, "a segment of copies was filled");
    });
}

/// The list of expired records is older than the segment now in the slot.
#[test]
fn a_put_at_the_place_of_an_expired_one_stays() {
    let bench = bench();
    bench.run(async {
        let (space, catalog, writer) = (&*bench.space, &*bench.catalog, &*bench.writer);
        let expirer = Expirer { space, catalog, writer };
        let mut coalescer = Coalescer {
            space,
            catalog,
            lane: &writer.lane,
            relocator: Relocator::new(expirer),
            wrote_at: None,
        };
        let listed = || {
            let mut listed = Vec::new();
            writer.lane.each_open_entry(|name, entry| listed.push((*name, *entry)));
            listed.pop().expect("it waits")
        };
        let pointer = |(name, entry): &(SegmentName, Entry)| {
            catalog.pointer(space.location(space.first_tier().name(), name.slot, entry))
        };
        provide(&bench).await;
        let at_ms = catalog.now_ms() + 1000;
        let options = WriteOptions {
            expires_at_ms: Some(at_ms),
            durability: Some(Durability::None),
            ..WriteOptions::default()
        };
        writer.put(0, "a".into(), "value".into(), options).await.expect("it is put");
        let expired = listed();
        bench.sleep(Duration::from_secs(2)).await;

        assert!(writer.lane.flush_coalescing().is_some());
        let memtable = writer.lane.next_memtable(space.runtime.now()).expect("it was asked for");
        coalescer.write_out(memtable.pieces).await.expect("it is written");
        writer.lane.memtable_written(Vec::new());
        memtable.completion.open(Ok(()));
        provide(&bench).await;
        put(&bench, "a").await;
        assert_eq!(pointer(&listed()), pointer(&expired), "another place shows nothing");

        let (SegmentName { slot, segment, .. }, entry) = expired;
        let tier = space.first_tier().name();
        expirer
            .expire_entries(tier, slot, segment, &[entry].into_iter().collect())
            .await
            .expect("it is looked at");
        assert!(bench.get("a").await.expect("it is read").is_some());
    });
}

/// Writes the current memtable out.
async fn write_out(bench: &Bench) {
    let (space, catalog, writer) = (&*bench.space, &*bench.catalog, &*bench.writer);
    let relocator = Relocator::new(Expirer { space, catalog, writer });
    let mut coalescer = Coalescer { space, catalog, lane: &writer.lane, relocator, wrote_at: None };
    assert!(writer.lane.flush_coalescing().is_some());
    let memtable = writer.lane.next_memtable(space.runtime.now()).expect("it was asked for");
    coalescer.write_out(memtable.pieces).await.expect("it is written");
    writer.lane.memtable_written(Vec::new());
    memtable.completion.open(Ok(()));
}

/// A tombstone written after the first record of a memtable is needed as long as copies of the memtable exist.
#[test]
fn copies_of_a_memtable_are_as_old_as_its_first_segment() {
    let plan = CoalescingPlan { wait: Duration::from_secs(10), segments: 4 };
    let bench = Plan { coalescing: Some(plan), slow: true, ..Plan::new(1) }.build();
    bench.start();
    bench.run(async {
        let value = vec![7; SEGMENT_BYTES as usize / 10];
        let put = |key| bench.put(key, &value, Durability::None);
        provide_opened_at(&bench, 5).await;
        put("a").await.expect("it is put");
        provide_opened_at(&bench, 9).await;
        let slots = || bench.space.first_tier().slots().in_use().map(|(_, slot)| slot);
        while slots().filter(|slot| slot.is_coalescing()).count() < 2 {
            put("b").await.expect("it is put");
        }
        write_out(&bench).await;
        let outputs = slots().filter(|slot| slot.stream() == Stream::DESTAGED);
        let outputs: Vec<(u64, bool)> =
            outputs.map(|slot| (slot.opened_at(), slot.hides_nothing())).collect();
        assert_eq!(outputs, [(5, false)], "one segment has the copies of both keys");
    });
}

#[test]
fn a_periodic_put_waits_no_longer_than_its_period() {
    let bench = bench();
    start(&bench);
    bench.run(async {
        bench.sleep(Duration::from_millis(1)).await;
        let period = Duration::from_millis(50);
        bench.put("a", b"value", Durability::Periodic(period)).await.expect("it is put");
        bench.sleep(period + Duration::from_millis(5)).await;
    });
    assert_eq!(bench.durable().len(), 1);
}

/// The second put would be visible before the earlier one, which would then displace it.
#[test]
fn a_put_behind_an_unpublished_one_of_its_key_does_not_coalesce() {
    let bench = bench();
    bench.run(async {
        bench.put("other", b"value", Durability::Sync).await.expect("it is put");
        provide(&bench).await;
        let later = async {
            bench.sleep(Duration::from_nanos(100)).await;
            bench.put("a", b"second", Durability::None).await
        };
        let puts = futures_util::future::join(bench.put("a", b"first", Durability::Sync), later).await;
        let (first, second) = (puts.0.expect("it is put"), puts.1.expect("it is put"));
        assert!(first < second, "the first was appended first");
        let found = bench.get("a").await.expect("it is read").expect("it is there");
        assert_eq!(found.1, second);
    });
}

/// A power failure could leave a summary that names lost records.
#[test]
fn whole_segment_is_flushed_before_its_summary() {
    let bench = bench();
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    bench.run(async {
        provide(&bench).await;
        let value = vec![7; SEGMENT_BYTES as usize / 10];
        for number in 0..9 {
            bench.put(&format!("key {number}"), &value, Durability::None).await.expect("it is put");
        }
        let seen = log.clone();
        bench.devices[0].set_observer(Box::new(move |operation| seen.lock().push(*operation)));
        write_out(&bench).await;
    });
    let tier = bench.space.first_tier();
    assert_eq!(tier.slots().sealed().count(), 1, "most of it is current, so it was written as it is");
    let (mut unflushed, mut summaries) = (false, 0);
    for operation in log.lock().iter() {
        let end = operation.offset + operation.bytes;
        let is_summary =
            tier.slot_at(operation.offset).is_some_and(|at| tier.device_offset(at + 1, 0) == end);
        match operation.kind {
            esker_device::OperationKind::Flush => unflushed = false,
            esker_device::OperationKind::Write if is_summary => {
                summaries += 1;
                assert!(!unflushed, "the summary is written before its frame is flushed");
            }
            esker_device::OperationKind::Write => unflushed = true,
            _ => {}
        }
    }
    assert_eq!(summaries, 1);
}
