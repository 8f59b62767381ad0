//! Restores onto a real block device. Needs root, to create a loop device.
#![allow(clippy::disallowed_methods, reason = "a test runs programs")]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use esker_backup::{Target, backup, restore};
use esker_engine::{Blocking, Durability, Options};
use esker_log::Superblock;

const DEVICE_BYTES: u64 = 96 << 20;

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path) -> Result<Loop, String> {
        let backing = File::create(file).and_then(|backing| backing.set_len(DEVICE_BYTES));
        backing.map_err(|error| error.to_string())?;
        match Command::new("losetup").args(["--find", "--show", "-b", "4096"]).arg(file).output() {
            Ok(output) if output.status.success() => {
                Ok(Loop(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
            }
            Ok(output) => Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("losetup: {error}")),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").arg("--detach").arg(&self.0).status().ok();
    }
}

#[test]
fn a_device_that_was_full_has_the_backup_and_zeros() {
    let dir = tempfile::tempdir().expect("a directory");
    let device = match Loop::attach(&dir.path().join("backing")) {
        Ok(device) => device,
        Err(why) => {
            // Bypasses the test harness, which captures the output of passing tests.
            writeln!(std::io::stderr(), "SKIPPED: {why}").ok();
            return;
        }
    };
    let open = || {
        let options = Options::capacity_only(&device.0).segment_bytes(256 << 10).indirection_unit_bytes(4096);
        Blocking::open(options.durability(Durability::None)).expect("it opens")
    };
    let noise: Vec<u8> = (0..1u32 << 20).map(|at| (at % 251) as u8 + 1).collect();
    let file = File::options().write(true).open(&device.0).expect("it opens");
    for at in (0..DEVICE_BYTES).step_by(noise.len()) {
        file.write_all_at(&noise, at).expect("it can be written");
    }
    // The target of a restore must be empty.
    file.write_all_at(&vec![0; 4 << 20], 0).expect("it can be written");
    file.sync_all().expect("it can be written");
    drop(file);

    let store = open();
    for number in 0..1000u64 {
        store.put(number.to_le_bytes().as_slice(), vec![1; 1500]).expect("there is room");
    }
    let copies = dir.path().join("copies");
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    for number in 500..3000u64 {
        store.put(number.to_le_bytes().as_slice(), vec![2; 1500]).expect("there is room");
    }
    store.close().expect("it closes");
    let target = Target { capacity: Some(device.0.clone()), overwrite: true, ..Target::default() };
    restore(&copies, None, &target, |_, _| {}).expect("it is restored");

    let fresh = dir.path().join("fresh");
    restore(&copies, None, &Target::directory(&fresh), |_, _| {}).expect("it is restored");
    let mut expected = std::fs::read(fresh.join("data.esker")).expect("it can be read");
    expected.resize(DEVICE_BYTES as usize, 0);
    let mut found = std::fs::read(&device.0).expect("it can be read");
    // A device also has copies of its superblock away from the segments.
    let superblock = Superblock::find(&found).expect("it has one");
    assert!(!superblock.far_copies.is_empty(), "{superblock:?}");
    for at in superblock.far_copies.clone() {
        let copy = &mut found[at as usize..][..superblock.unit_bytes as usize];
        assert_eq!(Superblock::decode_far(copy, at).as_ref(), Ok(&superblock));
        copy.fill(0);
    }
    // Each store's superblocks have their own identity.
    assert!(found.len() == expected.len() && found[1 << 20..] == expected[1 << 20..]);
    let restored = open();
    for number in 0..3000u64 {
        let found = restored.get(number.to_le_bytes().as_slice()).expect("it is read");
        assert_eq!(found.map(|value| value[0]), (number < 1000).then_some(1), "key {number}");
    }
    restored.close().expect("it closes");
}
