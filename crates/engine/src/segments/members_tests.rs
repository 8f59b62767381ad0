use std::time::Duration;

use esker_device::{Fault, MemoryDevice, OperationKind, Runtime, StripeMap};
use esker_log::{DeviceMember, SUPERBLOCK_COPIES, Stripe, Tier as TierName};

use super::*;

use crate::testing::{DATA_OFFSET, Plan, SEGMENT_BYTES};

/// Joins devices as an opening does.
fn joined(devices: &[MemoryDevice]) -> Striped {
    let mut map = StripeMap::new(DATA_OFFSET, SEGMENT_BYTES.into());
    map.add(16, 0b11);
    let member = |device: &MemoryDevice| (Some(Arc::new(device.clone()) as Arc<dyn Device>), 0);
    Striped::new(devices.iter().map(member).collect(), map)
}

/// The first opening fails at one device while its writes to the other are slow; the second one writes another superblock.
#[test]
fn failed_update_of_one_device_leaves_no_write_on_another() {
    for failing in [0, 1] {
        let plan = Plan { slow: true, ..Plan::new(failing as u64) };
        let devices = [plan.device(), plan.device()];
        let member = |device_id| DeviceMember { device_id, slots: 16, used_slots: 0, draining: false };
        let superblock = Superblock {
            devices: vec![member(1), member(2)],
            stripes: vec![Stripe { rows: 16, members: 0b11 }],
            used_slots: 0,
            ..plan.superblock(TierName::Capacity)
        };
        for (number, device) in devices.iter().enumerate() {
            device.set_faults(Box::new(move |operation| match operation.kind {
                OperationKind::Write if number == failing => Fault::Error(libc::ENOSPC),
                OperationKind::Write => Fault::Late(Duration::from_millis(5)),
                _ => Fault::None,
            }));
        }
        let (world, accounting) = (&plan.world, WriteAccounting::default());
        let write = |superblock: &Superblock| {
            world.run(write_to_members(&joined(&devices), |_| false, &accounting, superblock))
        };
        assert!(write(&Superblock { staging_bytes: 7, ..superblock.clone() }).is_err());
        devices.iter().for_each(MemoryDevice::clear_faults);
        write(&Superblock { staging_bytes: 9, ..superblock.clone() }).expect("there is room again");
        world.run(world.sleep(Duration::from_millis(10)));
        for device in &devices {
            let copies =
                superblock.copies(&device.snapshot()).map(|copy| copy.map(|copy| copy.staging_bytes));
            assert_eq!(copies, [const { Ok(9) }; SUPERBLOCK_COPIES], "a write came after the next update");
        }
    }
}
