//! Fails every I/O of a store's life in turn, with each error, once and permanently; and cuts the power
//! at every I/O, with any part of the volatile data lost. Afterwards the store opens, and has all
//! acknowledged writes.
//!
//! `ESKER_IMAGES=N` makes N images at each I/O, and `ESKER_SCRIPTS=N` runs N lives of each kind; a soak
//! uses both. `--nocapture` prints the coverage.

mod images;
mod script;

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{Fault, MemoryDevice, Operation, OperationKind, WriteMode};
use parking_lot::Mutex;

use crate::support::World;
use crate::sweep::script::{KINDS, Life};

/// The failure of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    fault: Fault,
    /// True if every later I/O of its kind fails too.
    for_ever: bool,
}

/// Returns the possible failures of an operation, each a separate case.
fn failures(kind: OperationKind) -> Vec<Failure> {
    let once = |fault| Failure { fault, for_ever: false };
    let for_ever = |fault| Failure { fault, for_ever: true };
    let (eio, full) = (Fault::Error(libc::EIO), Fault::Error(libc::ENOSPC));
    match kind {
        OperationKind::Read => vec![once(eio), for_ever(eio)],
        OperationKind::Write => {
            vec![
                once(eio),
                once(Fault::TornThenError(libc::EIO)),
                once(full),
                for_ever(eio),
                once(Fault::Vanish),
            ]
        }
        OperationKind::Flush => vec![once(eio), for_ever(eio), once(Fault::Vanish)],
        _ => vec![once(eio), once(full)],
    }
}

/// Returns the place of an operation on its device, for the table of failed operations.
fn place(operation: &Operation, world: &World) -> &'static str {
    let segment_bytes = world.config.segment_bytes;
    let end = operation.offset + operation.bytes;
    match operation.kind {
        OperationKind::Flush | OperationKind::Resize | OperationKind::Allocate | OperationKind::Open => "",
        _ if operation.offset < 1 << 20 => "superblock",
        _ if end.is_multiple_of(segment_bytes) && operation.offset.is_multiple_of(segment_bytes) => {
            "whole slot"
        }
        _ if operation.offset.is_multiple_of(segment_bytes) => "start of slot",
        _ if end.is_multiple_of(segment_bytes) => "end of slot",
        _ => "middle of slot",
    }
}

/// Returns the operations of a life without failures.
fn operations(life: &Life) -> Vec<(Operation, &'static str)> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut world = life.world();
    for device in devices(&world) {
        let seen = seen.clone();
        device.set_observer(Box::new(move |operation: &Operation| seen.lock().push(*operation)));
    }
    life.live(&world).complete();
    check(life, &mut world);
    let seen = seen.lock().iter().map(|operation| (*operation, place(operation, &world))).collect();
    world.end();
    seen
}

fn devices(world: &World) -> Vec<MemoryDevice> {
    [&world.fast, &world.capacity].into_iter().flatten().cloned().collect()
}

/// Cuts the power, repairs the failure, and checks that the store keeps its promises.
fn check(life: &Life, world: &mut World) {
    world.power_cut();
    life.check(world);
}

/// Runs the life again, and fails the operation with this number, counted over all devices.
fn fail(life: &Life, number: usize, failure: Failure) {
    let mut world = life.world();
    let (count, failed) = (Arc::new(Mutex::new(0usize)), Arc::new(Mutex::new(None)));
    for device in devices(&world) {
        let (count, failed) = (count.clone(), failed.clone());
        device.set_faults(Box::new(move |operation: &Operation| {
            let mut count = count.lock();
            *count += 1;
            let mut failed = failed.lock();
            match *failed {
                None if *count == number + 1 => {
                    *failed = Some(operation.kind);
                    failure.fault
                }
                Some(kind) if failure.for_ever && kind == operation.kind => failure.fault,
                _ => Fault::None,
            }
        }));
    }
    life.live(&world);
    assert!(failed.lock().is_some(), "the operation was not reached");
    check(life, &mut world);
    world.end();
}

#[test]
fn every_operation_is_failed_with_every_error() {
    let mut reached: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let (mut lives, mut all) = (0u64, 0u64);
    for life in script::lives(1) {
        let operations = operations(&life);
        lives += 1;
        for (number, (operation, place)) in operations.iter().enumerate() {
            let durable = if operation.mode == WriteMode::Durable { ", durable" } else { "" };
            *reached.entry((format!("{:?}{durable}", operation.kind), place)).or_default() += 1;
            for failure in failures(operation.kind) {
                let replay = format!("{life:?}, operation {number} ({operation:?}), {failure:?}");
                let _told = Told(&replay);
                fail(&life, number, failure);
                all += 1;
            }
        }
    }
    println!("{all} failures in {lives} lives, by operation and place: {reached:#?}");
    let kinds: std::collections::BTreeSet<&str> =
        reached.keys().map(|(kind, _)| kind.split(',').next().unwrap_or_default()).collect();
    assert_eq!(Vec::from_iter(kinds), KINDS, "every kind of operation was failed");
    assert!(all >= 2000, "only {all} failures");
}

/// Prints the case if it panics.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}
