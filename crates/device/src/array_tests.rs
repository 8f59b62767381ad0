//! Arrays in imitations of sysfs, with the files that the kernel's documentation of md (`admin-guide/md.rst`) and its
//! drivers of md and the device mapper name. The last test reads this machine's own sysfs.

use std::os::unix::fs::symlink;

use super::*;

struct Sys(tempfile::TempDir);

impl Sys {
    fn new() -> Sys {
        Sys(tempfile::tempdir().expect("a directory"))
    }

    /// Adds files below the directory of a device.
    fn device(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let directory = self.0.path().join("devices").join(name);
        for (path, text) in files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            fs::write(path, format!("{text}\n")).expect("it is written");
        }
        directory
    }

    /// Makes a device consist of others.
    fn compose(&self, name: &str, parts: &[&str]) {
        let slaves = self.0.path().join("devices").join(name).join("slaves");
        fs::create_dir_all(&slaves).expect("a directory");
        for part in parts {
            let target = self.0.path().join("devices").join(part);
            symlink(target, slaves.join(part.rsplit('/').next().expect("a name"))).expect("a link");
        }
    }

    /// Adds drives of 16 KiB units, each with a partition, and an array of the partitions.
    fn md(&self, level: &str, drives: u32, files: &[(&str, &str)]) -> PathBuf {
        let mut parts = Vec::new();
        for drive in 0..drives {
            let name = format!("nvme{drive}n1");
            let unit = [("queue/physical_block_size", "16384"), ("queue/minimum_io_size", "16384")];
            self.device(&name, &unit);
            self.device(&format!("{name}/{name}p1"), &[("partition", "1")]);
            parts.push(format!("{name}/{name}p1"));
        }
        let drives = drives.to_string();
        let array = self.device("md127", &[("md/level", level), ("md/raid_disks", &drives)]);
        self.device("md127", &[("md/degraded", "0"), ("md/sync_action", "idle"), ("md/layout", "2")]);
        // The chunk as the minimum size must not be taken for the unit of the drives.
        self.device("md127", &[("queue/minimum_io_size", "65536"), ("md/consistency_policy", "resync")]);
        self.device("md127", files);
        self.compose("md127", &parts.iter().map(String::as_str).collect::<Vec<_>>());
        array
    }
}

fn md(level: &str, drives: u32, files: &[(&str, &str)]) -> Array {
    Array::read(&Sys::new().md(level, drives, files)).expect("it is an array")
}

const CHUNK: (&str, &str) = ("md/chunk_size", "65536");

#[test]
fn arrays_with_parity_are_written_in_full_stripes() {
    let five = md("raid5", 5, &[CHUNK]);
    assert_eq!((five.level, five.drives, five.data_drives), (Level::Parity(5), 5, 4));
    assert_eq!((five.stripe_bytes(), five.unit()), (256 << 10, ArrayUnit::Stripe(256 << 10)));
    assert_eq!((five.device.as_str(), five.manager, five.failed), ("md127", "md", 0));
    assert_eq!((five.activity, five.consistency.as_deref()), (None, Some("resync")));
    assert_eq!(md("raid6", 6, &[CHUNK]).unit(), ArrayUnit::Stripe(256 << 10));
    assert_eq!(md("raid4", 3, &[CHUNK]).unit(), ArrayUnit::Stripe(128 << 10));
    // mdadm's default chunk.
    assert_eq!(md("raid5", 5, &[("md/chunk_size", "524288")]).unit(), ArrayUnit::Stripe(2 << 20));
    assert_eq!(md("raid6", 10, &[("md/chunk_size", "524288")]).unit(), ArrayUnit::Stripe(4 << 20));
}

#[test]
fn stripes_that_are_no_unit_are_told() {
    assert_eq!(md("raid5", 4, &[CHUNK]).unit(), ArrayUnit::Unsuitable, "three chunks of 64 KiB");
    assert_eq!(md("raid5", 17, &[("md/chunk_size", "524288")]).unit(), ArrayUnit::Unsuitable, "8 MiB");
}

#[test]
fn arrays_without_parity_are_written_in_units_of_their_drives() {
    for (level, drives, data_drives, stripe_bytes) in
        [("raid0", 4, 4, 256 << 10), ("raid1", 2, 1, 0), ("raid10", 4, 2, 128 << 10), ("linear", 2, 2, 0)]
    {
        let array = md(level, drives, &[CHUNK, ("md/layout", "258")]);
        assert_eq!(array.unit(), ArrayUnit::Drives(Some(16 << 10)), "{level}");
        assert_eq!((array.data_drives, array.stripe_bytes()), (data_drives, stripe_bytes), "{level}");
    }
    // Two far copies.
    assert_eq!(md("raid10", 6, &[CHUNK, ("md/layout", "513")]).data_drives, 3);
}

#[test]
fn failed_drives_and_rebuilds_are_told() {
    let array = md("raid5", 5, &[CHUNK, ("md/degraded", "1"), ("md/sync_action", "recover")]);
    assert_eq!((array.failed, array.activity.as_deref()), (1, Some("recover")));
    // While it is reshaped.
    let array = md("raid5", 5, &[("md/chunk_size", "131072 (65536)"), ("md/raid_disks", "5 (4)")]);
    assert_eq!((array.drives, array.chunk_bytes), (5, 128 << 10));
}

#[test]
fn volumes_on_one_array_are_looked_through() {
    let sys = Sys::new();
    sys.md("raid5", 5, &[CHUNK]);
    sys.device(
        "dm-0",
        &[("dm/uuid", "LVM-abc"), ("dm/name", "vg-data"), ("queue/optimal_io_size", "262144")],
    );
    sys.compose("dm-0", &["md127"]);
    let crypt = sys.device("dm-1", &[("dm/uuid", "CRYPT-LUKS2-abc")]);
    sys.compose("dm-1", &["dm-0"]);
    assert_eq!(
        Array::read(&crypt).map(|array| (array.device, array.level)),
        Some(("md127".to_owned(), Level::Parity(5)))
    );
}

#[test]
fn stripes_of_lvm_are_derived_from_the_sizes_of_their_io() {
    let lvm = |names: &[&str], least, best| {
        let sys = Sys::new();
        for name in names {
            sys.device(name, &[("dm/name", name), ("queue/physical_block_size", "16384")]);
        }
        let sizes = [("queue/minimum_io_size", least), ("queue/optimal_io_size", best)];
        let volume = sys.device("dm-9", &sizes);
        sys.device("dm-9", &[("dm/uuid", "LVM-abc"), ("dm/name", "vg-data")]);
        sys.compose("dm-9", names);
        Array::read(&volume)
    };
    let striped = lvm(&["sda", "sdb", "sdc"], "65536", "196608").expect("three stripes");
    assert_eq!((striped.level, striped.drives, striped.data_drives), (Level::Striped, 3, 3));
    assert_eq!(striped.unit(), ArrayUnit::Drives(Some(16 << 10)));
    let images = ["vg-data_rimage_0", "vg-data_rimage_1", "vg-data_rimage_2", "vg-data_rmeta_0"];
    let raid = lvm(&images, "65536", "131072").expect("a RAID of three");
    assert_eq!((raid.level, raid.drives, raid.data_drives), (Level::Unknown, 3, 2));
    assert_eq!(raid.unit(), ArrayUnit::Stripe(128 << 10));
    assert_eq!(lvm(&["sda", "sdb"], "4096", "0"), None, "one disk after the other");
}

#[test]
fn arrays_of_this_machine_are_read() {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    let arrays: Vec<PathBuf> = blocks.filter(|block| block.join("md/level").exists()).collect();
    if arrays.is_empty() {
        let mut err = std::io::stderr();
        std::io::Write::write_all(&mut err, b"SKIPPED: this machine has no array of md\n").ok();
    }
    for array in arrays {
        assert!(Array::read(&array).is_some_and(|found| found.drives > 0), "{}", array.display());
    }
}
