//! Openings that are refused.

use std::sync::Arc;

use esker_device::{MemoryOptions, Runtime};
use esker_engine::{Error, OptionName, Store};
use esker_simulated::SimRuntime;

use crate::support::{Devices, SEGMENT_BYTES, Tiers};

/// Opens a store with these options, which must be refused.
fn refusal(world: &SimRuntime, options: esker_engine::Options) -> Error {
    let opened = world.run(Store::open(options));
    world.crash();
    opened.expect_err("it is refused")
}

#[test]
fn member_of_a_cluster_is_not_opened_alone() {
    let world = SimRuntime::new(1);
    let devices = Devices::new(&world, Tiers::Fast, 5);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    world.run(async {
        let (store, log) = devices.open(runtime.clone()).await;
        for index in 0..40 {
            log.append(1, index, &[vec![5; 4000]]).await.unwrap().durable().await.unwrap();
        }
        store.close().await.unwrap();
    });
    world.crash();
    let error = refusal(&world, devices.options_alone(runtime.clone()));
    assert!(matches!(error, Error::Option { option: OptionName::GroupLog, .. }), "{error}");
    assert!(error.to_string().contains("member of its cluster"), "{error}");
    let error = refusal(&world, devices.options_alone(runtime.clone()).group_log_segments(3));
    assert!(error.to_string().contains("must be at least 4"), "{error}");
    // It is not harmed by the refusals.
    world.run(async {
        let (store, log) = devices.open(runtime.clone()).await;
        assert_eq!(log.range(1), 0..40);
        store.close().await.unwrap();
    });
    world.crash();
}

/// The number of segments is a maximum, because the size of a device is known only when it is opened.
#[test]
fn log_fits_small_tier_and_is_refused_on_smaller_one() {
    let world = SimRuntime::new(3);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let mut devices = Devices::new(&world, Tiers::Fast, 1000);
    world.run(async {
        let (store, log) = devices.open(runtime.clone()).await;
        log.append(1, 0, &[vec![5; 4000]]).await.unwrap().durable().await.unwrap();
        store.put("key", "value").await.expect("three quarters are left for records");
        store.close().await.unwrap();
    });
    world.crash();
    devices.fast = esker_simulated::device(&world, MemoryOptions::new((1 << 20) + 12 * SEGMENT_BYTES));
    let text = refusal(&world, devices.options(runtime)).to_string();
    assert!(text.contains("needs at least 16 segments"), "{text}");
    assert!(text.contains("make the tier larger"), "{text}");
}

/// Damages each segment of the log in turn.
#[test]
fn log_with_lost_records_is_refused() {
    let world = SimRuntime::new(2);
    let devices = Devices::new(&world, Tiers::Fast, 6);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let written = (0..48).map(|index| vec![index as u8 + 1; 4000]).collect::<Vec<_>>();
    world.run(async {
        let (store, log) = devices.open(runtime.clone()).await;
        for (index, entry) in (0..).zip(&written) {
            log.append(1, index, &[entry]).await.unwrap().durable().await.unwrap();
        }
        store.close().await.unwrap();
    });
    world.crash();
    let image = devices.fast.snapshot();
    let place = |index: u8| {
        let row = [index + 1; 4000];
        image.windows(row.len()).position(|window| window == row).expect("the entry is there") as u64
    };
    for index in [0, 20, 47] {
        let cut = devices.power_cut(&world);
        cut.fast.corrupt(place(index) + 100, 0x10);
        let error = refusal(&world, cut.options(runtime.clone()));
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("new node"), "{error}");
    }
    // A whole segment in the middle that is overwritten with zeros is missed too.
    let cut = devices.power_cut(&world);
    let middle = place(20);
    let start = middle - middle % SEGMENT_BYTES;
    let base = start - SEGMENT_BYTES;
    let from = (base..=start).rev().find(|at| image[*at as usize..].starts_with(b"EFRM")).unwrap_or(start);
    let to = from + SEGMENT_BYTES;
    for at in from..to {
        let byte = image[at as usize];
        if byte != 0 {
            cut.fast.corrupt(at, byte);
        }
    }
    let error = refusal(&world, cut.options(runtime.clone()));
    assert!(error.to_string().contains("missing"), "{error}");
}
