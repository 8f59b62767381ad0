//! Scans of a store whose records become damaged during the scan.

use std::collections::BTreeMap;
use std::time::Duration;

use esker::Cursor;
use esker_device::{Fault, Operation, OperationKind, Runtime};
use futures_util::future::{Either, select};

use crate::support::{Config, Tiers, World, value};

/// The first record of the scan is damaged from the first read on, the second from its second read on.
#[test]
fn scan_ends_although_record_becomes_damaged_meanwhile() {
    let world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    for key in ["a", "b"] {
        world.runtime.run(store.put(key, value(key.as_bytes(), 1, 20_000))).expect("it is put");
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    let mut reads: BTreeMap<u64, u64> = BTreeMap::new();
    let device = world.capacity.as_ref().expect("there is one");
    device.set_faults(Box::new(move |operation: &Operation| {
        if operation.kind != OperationKind::Read {
            return Fault::None;
        }
        let number = reads.len() as u64;
        let times = reads.entry(operation.offset).or_insert(10 * number);
        *times += 1;
        // Reads as zeros: the first record always, the second from its second read on.
        if *times == 11 { Fault::None } else { Fault::Lost }
    }));
    let scan = Box::pin(store.scan_keys(Cursor::START, 100, 1 << 20));
    let long = world.runtime.sleep(Duration::from_secs(1));
    match world.runtime.run(select(scan, long)) {
        Either::Left((page, _)) => {
            let page = page.expect("what is damaged is told in the page");
            assert_eq!((page.keys.len(), page.damaged.len(), page.next.is_some()), (0, 2, false));
        }
        Either::Right(_) => panic!("the scan does not end"),
    }
    drop(store);
    world.end();
}
