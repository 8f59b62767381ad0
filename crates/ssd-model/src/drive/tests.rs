//! Invariants of the translation layer under arbitrary writes, and the cost of known workloads.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const IU: u64 = 4096 * 4;

/// Returns the shape of a drive of 512 IUs in superblocks of 16.
fn small(coalescing_ius: usize, handles: u16, collector: Collector) -> Shape {
    let raw_bytes = IU * 16 * 40;
    let superblock_bytes = 16 * IU;
    Shape {
        superblock_bytes,
        coalescing_ius,
        handles,
        collector,
        ..Shape::with_raw(IU as u32, 512 * IU, raw_bytes)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Write { offset: u64, sectors: u64, handle: u16 },
    Trim { offset: u64, sectors: u64 },
    Flush,
}

fn act() -> impl Strategy<Value = Act> {
    let place = || (0..512u64, 0..32u64).prop_map(|(iu, sector)| iu * IU + sector * 512);
    prop_oneof![
        // Half of all writes go to a sixteenth of the drive.
        4 => (0..32u64, 0..3u16).prop_map(|(iu, handle)| Act::Write { offset: iu * IU, sectors: 32, handle }),
        4 => (place(), 1..100u64, 0..3u16)
            .prop_map(|(offset, sectors, handle)| Act::Write { offset, sectors, handle }),
        1 => (place(), 1..200u64).prop_map(|(offset, sectors)| Act::Trim { offset, sectors }),
        1 => Just(Act::Flush),
    ]
}

/// Executes an act. Returns the bytes that the host wrote.
fn apply(drive: &mut Drive, act: &Act) -> u64 {
    let namespace = drive.shape().namespace_bytes;
    let room = |offset: u64, sectors: u64| (sectors * 512).min(namespace - offset);
    match *act {
        Act::Write { offset, sectors, handle } => {
            let handle = Handle(handle % drive.shape().handles);
            drive.write(offset, room(offset, sectors), handle).expect("it is in range");
            return room(offset, sectors);
        }
        Act::Trim { offset, sectors } => drive.trim(offset, room(offset, sectors)).expect("it is in range"),
        Act::Flush => drive.flush(),
    }
    0
}

/// Asserts that map and superblocks agree, and that no superblock mixes handles. `owners` contains the handle of each
/// IU.
fn check(drive: &Drive) {
    let ius = drive.superblock_ius.get();
    let mut valid = BTreeMap::new();
    for (iu, place) in drive.map.mapped() {
        assert_eq!(drive.map.iu(place), Some(iu), "the map is a bijection");
        *valid.entry(place / ius).or_insert(0) += 1;
    }
    let count = drive.shape.sizes().expect("the shape is good").superblocks;
    for superblock in 0..count {
        let expected = valid.get(&superblock).copied().unwrap_or(0);
        assert_eq!(drive.superblocks.valid(superblock), expected, "superblock {superblock}");
        let there = (0..ius).filter(|at| drive.map.iu(superblock * ius + at).is_some()).count();
        assert_eq!(there as u32, expected, "superblock {superblock}");
    }
    assert!((drive.wear().mean * f64::from(count) - drive.counters.erases as f64).abs() < 0.5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn counters_agree_with_map_for_any_writes(
        acts in proptest::collection::vec(act(), 1..1500),
        coalescing_ius in 0..4usize,
        handles in 1..4u16,
        is_greedy: bool,
    ) {
        let collector = if is_greedy { Collector::Greedy } else { Collector::CostBenefit };
        let shape = small(coalescing_ius, handles, collector);
        let mut drive = Drive::new(&shape).expect("the shape is good");
        let (mut owners, mut host_bytes) = (BTreeMap::new(), 0);
        for act in &acts {
            host_bytes += apply(&mut drive, act);
            if let Act::Write { offset, handle, .. } = act {
                owners.insert((offset / IU) as u32, *handle % handles);
            }
        }
        drive.flush();
        check(&drive);
        let counters = drive.counters();
        prop_assert_eq!(counters.host_bytes, host_bytes);
        if coalescing_ius == 0 && counters.trimmed_ius == 0 && host_bytes > 0 {
            prop_assert!(counters.write_amplification() >= 1.0);
        }
        // The programmed bytes are the IUs of the host's writes, the moved IUs, and a fiftieth of the assembled IUs.
        let kept_bytes = counters.assembled_ius * IU / 50;
        prop_assert_eq!(counters.nand_bytes(), (counters.host_ius() + counters.moved_ius) * IU + kept_bytes);
        prop_assert!(counters.assembled_ius <= counters.whole_ius);
        prop_assert!(counters.modify_reads <= counters.modified_ius);
    }

    #[test]
    fn superblock_holds_one_handle(ius in proptest::collection::vec(0..512u64, 500..3000)) {
        let shape = small(0, 4, Collector::Greedy);
        let mut drive = Drive::new(&shape).expect("the shape is good");
        for iu in ius {
            drive.write(iu * IU, IU, Handle((iu % 4) as u16)).expect("it is in range");
        }
        check(&drive);
        let mut owner = BTreeMap::new();
        for (iu, place) in drive.map.mapped() {
            let of = *owner.entry(drive.superblock_ius.divide(place)).or_insert(iu % 4);
            prop_assert_eq!(of, iu % 4);
        }
    }
}

#[test]
fn partial_and_misaligned_writes_cost_whole_units() {
    let shape = Shape { coalescing_ius: 0, ..small(0, 1, Collector::Greedy) };
    let cost = |writes: &[(u64, u64)]| {
        let mut drive = Drive::new(&shape).expect("the shape is good");
        drive.write(0, 64 * IU, Handle(0)).expect("it is in range");
        let before = drive.counters();
        for (offset, bytes) in writes {
            drive.write(*offset, *bytes, Handle(0)).expect("it is in range");
        }
        let done = drive.counters() - before;
        (done.whole_ius, done.modified_ius, done.modify_reads, done.partial_writes)
    };
    assert_eq!(cost(&[(IU, IU)]), (1, 0, 0, 0), "a whole IU");
    assert_eq!(cost(&[(IU, 512)]), (0, 1, 1, 1), "a sector");
    assert_eq!(cost(&[(IU + 512, IU)]), (0, 2, 2, 1), "an IU that starts behind a boundary");
    assert_eq!(cost(&[(IU - 512, IU + 1024)]), (1, 2, 2, 1), "an IU and a sector on either side");
    assert_eq!(cost(&[(100 * IU, 4096)]), (0, 1, 0, 1), "what was never written is not read");
}

#[test]
fn sequential_parts_coalesce_and_rewrites_do_not() {
    let shape = small(4, 1, Collector::Greedy);
    let mut drive = Drive::new(&shape).expect("the shape is good");
    // Four streams of 4 KiB, interleaved.
    for step in 0..64 {
        for stream in 0..4 {
            drive.write(stream * 100 * IU + step * 4096, 4096, Handle(0)).expect("it is in range");
        }
    }
    assert_eq!((drive.counters().whole_ius, drive.counters().modified_ius), (64, 0));
    // A fifth stream exceeds the coalescing buffer.
    for stream in 0..5 {
        drive.write(stream * 10 * IU, 4096, Handle(0)).expect("it is in range");
    }
    assert_eq!(drive.counters().modified_ius, 1);
    drive.flush();
    assert_eq!(drive.counters().modified_ius, 5);
}

#[test]
fn trim_avoids_moves() {
    let steady = |trims: bool| {
        let shape = small(0, 1, Collector::Greedy);
        let mut drive = Drive::new(&shape).expect("the shape is good");
        let (mut random, mut before) = (1u64, drive.counters());
        for step in 0..40_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let iu = (random >> 33) % 512;
            if trims && step % 2 == 0 {
                drive.trim(iu * IU, IU).expect("it is in range");
            } else {
                drive.write(iu * IU, IU, Handle(0)).expect("it is in range");
            }
            if step == 10_000 {
                before = drive.counters();
            }
        }
        (drive.counters() - before).write_amplification()
    };
    let (without, with) = (steady(false), steady(true));
    assert!(without > 1.5 && with < without * 0.75, "{without} {with}");

    let mut drive = Drive::new(&small(0, 1, Collector::Greedy)).expect("the shape is good");
    for iu in (0..512).cycle().take(10_000) {
        drive.write(iu * IU, IU, Handle(0)).expect("it is in range");
    }
    assert_eq!(drive.counters().write_amplification(), 1.0);
    let wear = drive.wear();
    assert!(wear.most - wear.least <= 1, "{wear:?}");
}

#[test]
fn impossible_shapes_are_refused_with_remedy() {
    let good = small(0, 1, Collector::Greedy);
    let said = |shape: Shape| Drive::new(&shape).expect_err("it is refused").to_string();
    assert!(said(Shape { iu_bytes: 12_288, ..good.clone() }).contains("power of two from 4 to 64 KiB"));
    let odd = said(Shape { namespace_bytes: 512 * IU + 4096, ..good.clone() });
    assert!(
        odd.contains("not a multiple of the indirection unit") && odd.contains(&(512 * IU).to_string()),
        "{odd}"
    );
    assert!(said(Shape { raw_bytes: 514 * IU, ..good.clone() }).contains("more over-provisioning"));
    assert!(said(Shape { handles: 0, ..good.clone() }).contains("placement handles"));
    for bytes in [0, IU] {
        let alone = said(Shape { superblock_bytes: bytes, ..good.clone() });
        assert!(
            alone.contains(&format!("a superblock is {bytes} bytes; it must be two IUs or more")),
            "{alone}"
        );
    }
    let huge = Shape { namespace_bytes: 1 << 50, raw_bytes: 1 << 51, ..good.clone() };
    assert!(said(huge).contains("model a smaller drive"));

    let mut drive = Drive::new(&good).expect("the shape is good");
    for (offset, bytes) in [(512 * IU, 512), (u64::MAX - 511, 512), (100, 512), (0, 100)] {
        let error = drive.write(offset, bytes, Handle(0)).expect_err("it is refused");
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    assert!(matches!(drive.write(0, 512, Handle(1)), Err(Error::NoSuchHandle { .. })));
}
