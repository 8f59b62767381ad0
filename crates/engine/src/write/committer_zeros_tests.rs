//! Lanes in files, where zeros are written ahead of frames.

use super::*;

/// Minimum length of zeros written ahead; every frame here is shorter.
const ZEROS_BYTES: u64 = 30_000;

/// Returns a lane that fills blank slots of a file, so that zeros are written ahead, slowly.
fn in_a_file(seed: u64) -> Bench {
    let bench = Plan { slow: true, grows: true, ..Plan::new(seed) }.build();
    bench.devices[0].set_faults(Box::new(|operation| match operation.kind {
        OperationKind::Write if operation.bytes >= ZEROS_BYTES => Fault::Late(Duration::from_millis(5)),
        _ => Fault::None,
    }));
    bench.start();
    bench
}

#[test]
fn no_frame_is_lost_to_zeros_written_ahead_of_it() {
    let bench = in_a_file(1);
    let log = log(&bench);
    // The zeros behind the first frame are in flight when the others are written.
    bench.run(bench.put("first", b"value", SYNC)).expect("it is put");
    bench.run(put_many(&bench, 20, &[SYNC]));
    bench.run(bench.sleep(Duration::from_millis(50)));
    let is_zeros = |o: &&Operation| o.kind == OperationKind::Write && o.bytes >= ZEROS_BYTES;
    assert!(log.lock().iter().filter(is_zeros).count() > 0, "nothing was written ahead");
    let device = &bench.devices[0];
    assert!(device.snapshot() == device.durable_snapshot(), "zeros overwrote a durable frame");
    assert_eq!(bench.durable().len(), 21);
}

/// The marker names the previous segment of the slot until the summary replaces it.
#[test]
fn zeros_written_ahead_leave_the_marker_at_the_end_of_the_slot() {
    let bench = in_a_file(1);
    let log = log(&bench);
    bench.run(put_many(&bench, 5, &[SYNC]));
    bench.run(bench.sleep(Duration::from_millis(50)));
    let tier = bench.space.first_tier();
    assert_eq!(tier.slots().count(SlotState::Sealed), 0);
    let is_zeros = |o: &&Operation| o.kind == OperationKind::Write && o.bytes >= ZEROS_BYTES;
    let zeros: Vec<Operation> = log.lock().iter().filter(is_zeros).copied().collect();
    let [zeros] = zeros[..] else { panic!("{zeros:?}") };
    let slot = tier.slot_at(zeros.offset).expect("it lies in a slot");
    let unit_bytes = u64::from(tier.shape().unit_bytes);
    assert_eq!(zeros.offset + zeros.bytes, tier.device_offset(slot + 1, 0) - unit_bytes);
}

#[test]
fn no_summary_is_lost_to_zeros_written_ahead_of_it() {
    let bench = in_a_file(1);
    let (lane, tier) = (&bench.writer.lane, bench.space.first_tier());
    bench.run(async {
        // Its summary takes several write units.
        let puts = (0..80).map(|number| (name(number).into(), vec![7; 20].into(), None)).collect();
        let results = bench.writer.put_many(0, puts, sync()).await;
        assert!(results.iter().all(Result::is_ok));
        let (segment, _) = *lane.ends().first().expect("it is open");
        assert!(lane.seal_early(segment));
        bench.sleep(Duration::from_millis(50)).await;
        let (slot, _) = tier.slots().sealed().next().expect("it is sealed");
        let entries = bench.space.read_entries(tier, slot).await.expect("it is read");
        assert_eq!(entries.map(|entries| entries.len()), Some(80));
    });
}
