//! Tests of the in-memory device: possible and impossible results of a power failure, and the faults.

use std::collections::BTreeSet;

use super::*;

fn block(fill: u8, blocks: usize) -> Source {
    let mut buffer = Buffer::zeroed(blocks * 512);
    buffer.fill(fill);
    buffer.into()
}

fn write(device: &MemoryDevice, at: u64, fill: u8, blocks: usize, mode: WriteMode) {
    device.write(at * 512, block(fill, blocks), mode).wait().unwrap();
}

/// Returns all images, as the first byte of each block, that a power failure leaves in many tries, excluding images
/// with a torn block.
fn images(device: &MemoryDevice) -> BTreeSet<Vec<u8>> {
    let mut seed = 1;
    let mut random = || split_mix(&mut seed);
    let images = (0..4000).map(|_| device.crash(&mut random).snapshot());
    let is_whole =
        |image: &Vec<u8>| image.chunks(512).all(|block| block.iter().all(|byte| *byte == block[0]));
    images.filter(is_whole).map(|image| image.chunks(512).map(|block| block[0]).collect()).collect()
}

#[test]
fn a_power_cut_leaves_a_write_that_ends_at_any_byte() {
    let device = MemoryDevice::new(2 * 512);
    write(&device, 0, 1, 2, WriteMode::Plain);
    let mut seed = 1;
    let mut random = || split_mix(&mut seed);
    let mut cuts = BTreeSet::new();
    for _ in 0..10_000 {
        let image = device.crash(&mut random).snapshot();
        let changes: Vec<usize> = (1..image.len()).filter(|at| image[*at] != image[*at - 1]).collect();
        assert!(changes.len() <= 1, "a write of two blocks was torn at {changes:?}");
        cuts.extend(changes);
    }
    assert!(cuts.range(..64).count() > 60 && cuts.len() > 400, "{} different cuts: {cuts:?}", cuts.len());
}

#[test]
fn a_power_cut_leaves_any_sectors_of_what_was_not_flushed() {
    let device = MemoryDevice::new(4 * 512);
    write(&device, 0, 1, 4, WriteMode::Plain);
    assert!(device.durable_snapshot().iter().all(|byte| *byte == 0));
    assert_eq!(images(&device).len(), 16, "every subset of four sectors");
    device.flush().wait().unwrap();
    assert_eq!(images(&device), BTreeSet::from([vec![1; 4]]));
    // A later write to two of them: the old bytes or the new, nothing else.
    write(&device, 1, 2, 2, WriteMode::Plain);
    let found = images(&device);
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|image| image[0] == 1 && image[3] == 1 && image[1] > 0 && image[2] > 0));
}

#[test]
fn a_durable_write_is_not_undone_by_an_older_one() {
    let device = MemoryDevice::new(4 * 512);
    write(&device, 0, 1, 4, WriteMode::Plain);
    write(&device, 1, 2, 2, WriteMode::Durable);
    let found = images(&device);
    assert!(found.iter().all(|image| image[1] == 2 && image[2] == 2), "{found:?}");
    assert_eq!(found.len(), 4, "the rest of the older one is still uncertain");
    device.flush().wait().unwrap();
    assert_eq!(images(&device), BTreeSet::from([vec![1, 2, 2, 1]]));
}

#[test]
fn without_a_cache_every_write_is_durable() {
    let mut options = MemoryOptions::new(512);
    options.geometry.write_cache = false;
    let device = MemoryDevice::with(options);
    write(&device, 0, 7, 1, WriteMode::Plain);
    assert_eq!(images(&device), BTreeSet::from([vec![7]]));
}

#[test]
fn a_failed_flush_is_never_made_good() {
    let device = MemoryDevice::new(512);
    write(&device, 0, 7, 1, WriteMode::Plain);
    device.set_faults(Box::new(|operation| match operation.kind {
        OperationKind::Flush => Fault::Error(libc::EIO),
        _ => Fault::None,
    }));
    assert!(matches!(device.flush().wait(), Err(DeviceError::Io { op: OperationKind::Flush, .. })));
    device.clear_faults();
    device.flush().wait().unwrap();
    assert_eq!(
        images(&device),
        BTreeSet::from([vec![0], vec![7]]),
        "the second flush promises nothing for it"
    );
    assert_eq!(device.snapshot()[0], 7, "reads see it all the same");
    write(&device, 0, 8, 1, WriteMode::Plain);
    device.flush().wait().unwrap();
    assert_eq!(images(&device), BTreeSet::from([vec![8]]), "what is written again is covered again");
}

#[test]
fn discards_are_uncertain_until_flushed_and_read_as_told() {
    for (discarded, expected) in
        [(Discarded::Zeros, Some(0)), (Discarded::Stale, Some(7)), (Discarded::Noise, None)]
    {
        let mut options = MemoryOptions::new(1024);
        options.discarded = discarded;
        let device = MemoryDevice::with(options);
        write(&device, 0, 7, 2, WriteMode::Durable);
        device.discard(0, 512).wait().unwrap();
        let snapshot = device.snapshot();
        match expected {
            Some(byte) => assert!(snapshot[..512].iter().all(|found| *found == byte)),
            None => assert!(snapshot[..512].iter().any(|found| *found != 0 && *found != 7)),
        }
        assert!(snapshot[512..].iter().all(|found| *found == 7));
        if discarded == Discarded::Zeros {
            assert_eq!(images(&device), BTreeSet::from([vec![0, 7], vec![7, 7]]));
        }
    }
}

#[test]
fn writes_fail_torn_get_lost_and_go_astray() {
    let device = MemoryDevice::new(8 * 512);
    let plan = |fault: Fault| {
        device.set_faults(Box::new(move |operation| match operation.kind {
            OperationKind::Write => fault,
            _ => Fault::None,
        }));
    };
    let mut torn = BTreeSet::new();
    plan(Fault::TornThenError(libc::EIO));
    for _ in 0..100 {
        assert!(device.write(0, block(3, 2), WriteMode::Durable).wait().is_err());
        let snapshot = device.snapshot();
        torn.insert((snapshot[0], snapshot[512]));
        device.clear_faults();
        write(&device, 0, 0, 2, WriteMode::Durable);
        plan(Fault::TornThenError(libc::EIO));
    }
    assert_eq!(torn, BTreeSet::from([(0, 0), (0, 3), (3, 0), (3, 3)]));
    plan(Fault::Lost);
    write(&device, 0, 4, 1, WriteMode::Durable);
    assert_eq!(device.snapshot()[0], 0);
    plan(Fault::Misdirected(3 * 512));
    write(&device, 0, 5, 1, WriteMode::Durable);
    assert_eq!((device.snapshot()[0], device.snapshot()[3 * 512]), (0, 5));
    plan(Fault::Error(libc::ENOSPC));
    assert!(matches!(device.write(0, block(6, 1), WriteMode::Plain).wait(), Err(DeviceError::Full { .. })));
    plan(Fault::Vanish);
    assert!(matches!(
        device.write(0, block(6, 1), WriteMode::Plain).wait(),
        Err(DeviceError::Vanished { .. })
    ));
    device.clear_faults();
    assert!(matches!(device.read(0, Buffer::zeroed(512)).wait().1, Err(DeviceError::Vanished { .. })));
}

#[test]
fn rot_reaches_what_is_durable() {
    let device = MemoryDevice::from_bytes(MemoryOptions::new(1024), &[1; 1024]);
    device.corrupt(700, 0x82);
    assert_eq!((device.snapshot()[700], device.durable_snapshot()[700]), (0x83, 0x83));
    assert_eq!(device.crash(&mut || 0).snapshot()[700], 0x83);
    assert_eq!(device.snapshot()[699], 1);
}

#[test]
fn growth_has_a_limit_and_shrinking_forgets() {
    let mut options = MemoryOptions::new(512);
    options.bytes_max = 2048;
    let device = MemoryDevice::with(options);
    device.resize(2048).wait().unwrap();
    write(&device, 3, 9, 1, WriteMode::Durable);
    assert!(matches!(device.resize(4096).wait(), Err(DeviceError::Full { .. })));
    device.resize(512).wait().unwrap();
    device.resize(2048).wait().unwrap();
    assert!(device.snapshot().iter().all(|byte| *byte == 0));
}

#[test]
fn the_observer_sees_what_was_submitted() {
    let device = MemoryDevice::new(1 << 30);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = seen.clone();
    device.set_observer(Box::new(move |operation| {
        observed.lock().push((operation.kind, operation.offset, operation.bytes));
    }));
    write(&device, 1 << 20, 1, 8, WriteMode::Plain);
    device.flush().wait().unwrap();
    drop(device.read(0, Buffer::zeroed(100)));
    let expected = [(OperationKind::Write, 512 << 20, 4096), (OperationKind::Flush, 0, 0)];
    assert_eq!(*seen.lock(), expected, "what is refused is not shown");
}
