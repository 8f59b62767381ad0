use super::*;
use crate::{Fault, MemoryDevice, MemoryOptions};

const HEAD: u64 = 4096;
const SLOT: u64 = 65_536;

/// Returns three devices with 2, 3 and 1 slots, and all of them as one.
fn three() -> (Vec<MemoryDevice>, Striped) {
    let device = |number: u64| {
        let path = format!("device {number}");
        MemoryDevice::with(MemoryOptions { path, ..MemoryOptions::new(HEAD + 8 * SLOT) })
    };
    let devices: Vec<MemoryDevice> = (0..3).map(device).collect();
    let mut map = StripeMap::new(HEAD, SLOT);
    stripes_for(&[2, 3, 1], 100).into_iter().for_each(|(rows, members)| map.add(rows, members));
    let members = devices.iter().map(|device| (Some(Arc::new(device.clone()) as Arc<dyn Device>), 8));
    let striped = Striped::new(members.collect(), map);
    (devices, striped)
}

fn at(slot: u64) -> u64 {
    HEAD + slot * SLOT
}

fn filled(byte: u8) -> Source {
    let mut buffer = Buffer::zeroed(4096);
    buffer.fill(byte);
    buffer.into()
}

#[test]
fn slots_lie_on_their_devices_and_are_read_across() {
    let (devices, striped) = three();
    for slot in 0..6 {
        striped.write(at(slot), filled(slot as u8 + 1), WriteMode::Plain).wait().expect("it is written");
    }
    let on = |device: usize, local: u64| devices[device].snapshot()[(HEAD + local * SLOT) as usize];
    assert_eq!([on(0, 0), on(1, 0), on(2, 0), on(0, 1), on(1, 1), on(1, 2)], [1, 2, 3, 4, 5, 6]);
    let (bytes, read) = striped.read(at(2) - 512, Buffer::zeroed(1024)).wait();
    read.expect("it is read");
    assert_eq!((bytes[511], bytes[512], bytes[1023]), (0, 3, 3));
    assert!(striped.write(at(1) - 2048, filled(9), WriteMode::Plain).wait().is_err(), "of two devices");
    assert!(striped.write(0, filled(9), WriteMode::Plain).wait().is_err(), "in front of the slots");
}

#[test]
fn uncovered_slots_and_those_without_a_device_read_as_zeros() {
    let (devices, _) = three();
    devices
        .iter()
        .for_each(|device| device.write(HEAD, filled(7), WriteMode::Plain).wait().expect("it is written"));
    let mut map = StripeMap::new(HEAD, SLOT);
    map.add(1, 0b111);
    let of = |device: usize| Some(Arc::new(devices[device].clone()) as Arc<dyn Device>);
    let striped = Striped::new(vec![(of(0), 1), (of(1), 0), (None, 1)], map);
    let first = |slot| striped.read(at(slot), Buffer::zeroed(512)).wait().0[0];
    assert_eq!([first(0), first(1), first(2)], [7, 0, 0]);
    striped.cover(1, 1);
    assert_eq!([first(0), first(1), first(2)], [7, 7, 0]);
}

#[test]
fn failed_device_fails_flushes_until_it_is_left_out() {
    let (devices, striped) = three();
    for slot in 0..3 {
        striped.write(at(slot), filled(1), WriteMode::Plain).wait().expect("it is written");
    }
    devices[1].set_faults(Box::new(|operation| match operation.kind {
        crate::OperationKind::Flush => Fault::Error(libc::EIO),
        _ => Fault::None,
    }));
    for _ in 0..2 {
        let error = striped.flush().wait().expect_err("a device failed");
        assert!(error.to_string().contains("device 1"), "{error}");
    }
    assert!(striped.failure(1).is_some() && striped.failure(0).is_none());
    assert!(striped.write(at(1), filled(1), WriteMode::Plain).wait().is_err());
    striped.leave_out(1);
    striped.flush().wait().expect("the others are flushed");
    assert!(striped.read(at(1), Buffer::zeroed(512)).wait().1.is_ok(), "reads are still tried");
}
