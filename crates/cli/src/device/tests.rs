//! Devices in imitations of sysfs in temporary directories.

use std::os::unix::fs::symlink;
use std::path::Path;

use std::time::Duration;

use esker_nvme::Namespace;
use esker_ssd_model::{Drive, Handle, Shape};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::advice::{self, Advice, Level};
use super::block::{Block, Partition};
use super::measure::{Scratch, measure};
use super::unit::{Source, Unit};
use crate::terminal::Failure;

/// A directory like `/sys` with one disk, 259:0, and its first partition, 259:1.
struct Sys(tempfile::TempDir);

impl Sys {
    fn with(disk: &str, queue: &[(&str, &str)]) -> Sys {
        let sys = Sys(tempfile::tempdir().expect("a directory"));
        let device = format!("devices/pci/block/{disk}");
        sys.write(&format!("{device}/size"), "7501476528");
        sys.write(&format!("{device}/{disk}p1/start"), "63");
        sys.write(&format!("{device}/{disk}p1/size"), "7501476465");
        sys.write(&format!("{device}/{disk}p1/partition"), "1");
        sys.write(&format!("{device}/{disk}p1/dev"), "259:1");
        queue.iter().for_each(|(name, value)| sys.write(&format!("{device}/queue/{name}"), value));
        std::fs::create_dir_all(sys.0.path().join("dev/block")).expect("a directory");
        let link =
            |from: &str, to: &str| symlink(format!("../../{to}"), sys.0.path().join("dev/block").join(from));
        link("259:0", &device).expect("a link");
        link("259:1", &format!("{device}/{disk}p1")).expect("a link");
        sys
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, format!("{text}\n")).expect("it is written");
    }

    fn disk(&self) -> Block {
        Block::read(self.0.path(), MOUNTS, (259, 0)).expect("it is there")
    }

    fn partition(&self) -> Block {
        Block::read(self.0.path(), MOUNTS, (259, 1)).expect("it is there")
    }
}

/// A mount table without the disk.
const MOUNTS: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n";

/// Returns the advice for a device whose partitions are ignored.
fn advise(device: &Block, unit_bytes: u64) -> Vec<Advice> {
    let device = Block { partitions: Vec::new(), ..device.clone() };
    advice::advise(&device, unit_bytes, true)
}

fn settings(device: &Block) -> Vec<String> {
    advice::settings(device, &Unit::of(device, None, None))
}

/// A QLC drive that reports its unit of 16 KiB.
const QLC: &[(&str, &str)] = &[
    ("logical_block_size", "4096"),
    ("physical_block_size", "16384"),
    ("minimum_io_size", "16384"),
    ("optimal_io_size", "0"),
    ("max_segments", "127"),
    ("max_sectors_kb", "512"),
    ("max_hw_sectors_kb", "1024"),
    ("write_cache", "write through"),
    ("fua", "0"),
    ("discard_granularity", "4096"),
    ("discard_max_bytes", "2199023255040"),
    ("scheduler", "[none] mq-deadline kyber"),
    ("rotational", "0"),
    ("max_write_streams", "7"),
];

fn wrong(advice: &[Advice]) -> Vec<&Advice> {
    advice.iter().filter(|advice| advice.level == Level::Wrong).collect()
}

#[test]
fn a_drive_that_tells_is_read_whole() {
    let sys = Sys::with("nvme0n1", QLC);
    sys.write("devices/pci/block/nvme0n1/device/model", "QLC 30T");
    let Block { name, disk, model, bytes, partition, queue, .. } = sys.disk();
    assert_eq!((name.as_str(), disk.as_str(), model.as_deref()), ("nvme0n1", "nvme0n1", Some("QLC 30T")));
    assert_eq!((bytes, partition), (7_501_476_528 * 512, None));
    assert_eq!((queue.logical_block_bytes, queue.reported_unit_bytes), (Some(4096), Some(16 << 10)));
    assert_eq!((queue.optimal_io_bytes, queue.command_bytes_max), (None, Some(1 << 20)));
    assert_eq!((queue.write_cache, queue.fua, queue.rotational), (Some(false), Some(false), Some(false)));
    assert_eq!((queue.scheduler.as_deref(), queue.write_streams), (Some("none"), Some(7)));
    assert_eq!(wrong(&advise(&sys.disk(), 16 << 10)), Vec::<&Advice>::new());
    assert_eq!(settings(&sys.disk()), ["capacity = \"/dev/nvme0n1\""]);
}

#[test]
fn a_partition_within_a_unit_is_to_be_made_anew() {
    let sys = Sys::with("nvme0n1", QLC);
    let partition = sys.partition();
    assert_eq!(partition.partition, Some(Partition { number: 1, start_bytes: 63 * 512 }));
    assert_eq!((partition.disk.as_str(), partition.queue.reported_unit_bytes), ("nvme0n1", Some(16 << 10)));
    let advice = advise(&partition, 16 << 10);
    let [advice] = wrong(&advice)[..] else { panic!("{advice:?}") };
    assert!(advice.what.contains("sector 63"), "{advice:?}");
    let parted = "parted --script --align none /dev/nvme0n1 rm 1 mkpart esker 32768B 3840755982335B";
    assert_eq!(advice.remedy, [parted]);
    sys.write("devices/pci/block/nvme0n1/nvme0n1p1/start", "2048");
    assert_eq!(wrong(&advise(&sys.partition(), 64 << 10)), Vec::<&Advice>::new());
}

#[test]
fn commands_that_cut_a_unit_are_told() {
    let sys = Sys::with("sda", QLC);
    sys.write("devices/pci/block/sda/queue/max_sectors_kb", "32");
    let advice = advise(&sys.disk(), 64 << 10);
    let [advice] = wrong(&advice)[..] else { panic!("{advice:?}") };
    assert!(advice.what.contains("reaches the drive as 2"), "{advice:?}");
    assert_eq!(advice.remedy, ["echo 1024 > /sys/block/sda/queue/max_sectors_kb"]);
    // The setting cannot exceed the device's limit.
    sys.write("devices/pci/block/sda/queue/max_segments", "8");
    let advice = advise(&sys.disk(), 64 << 10);
    assert!(wrong(&advice).is_empty() && advice[0].what.ends_with("no longer commands"), "{advice:?}");
}

#[test]
fn a_device_in_use_is_told() {
    let sys = Sys::with("sda", QLC);
    sys.write("devices/pci/block/sda/holders/dm-3/name", "x");
    sys.write("devices/pci/block/sda/holders/md0/name", "x");
    let advice = advise(&sys.disk(), 16 << 10);
    assert!(wrong(&advice)[0].what.starts_with("it is in use by dm-3, md0:"), "{advice:?}");
    let mounts = "40 22 259:1 / /srv/my\\040data rw - xfs /dev/sda1 rw\n";
    let device = Block::read(sys.0.path(), mounts, (259, 0)).expect("it is there");
    assert_eq!(device.mounted_at, ["/srv/my data"]);
    let told = advice::advise(&device, 16 << 10, true);
    let all = "it is mounted at /srv/my data; in use by dm-3, md0; parted into sdap1:";
    assert!(wrong(&told)[0].what.starts_with(all), "{told:?}");
    // For files on a mounted device, the mount is no problem.
    assert_eq!(wrong(&advice::advise(&device, 16 << 10, false)), Vec::<&Advice>::new());
}

#[test]
fn what_the_kernel_does_not_tell_is_not_made_up() {
    let sys = Sys::with("loop0", &[("scheduler", "none [mq-deadline]"), ("discard_max_bytes", "0")]);
    sys.write("devices/pci/block/loop0/loop/backing_file", "/data/image");
    let block = sys.disk();
    assert_eq!(block.backing_file.as_deref(), Some("/data/image"));
    assert_eq!((block.queue.reported_unit_bytes, block.queue.fua), (None, None));
    let advice = advise(&block, 64 << 10);
    assert!(wrong(&advice).is_empty(), "{advice:?}");
    let said = |words: &str| advice.iter().any(|advice| advice.what.contains(words));
    assert!(said("mq-deadline") && said("no discards"), "{advice:?}");
    assert!(settings(&block)[1].starts_with("iu = "));
    assert_eq!(Block::read(sys.0.path(), MOUNTS, (7, 7)), None);
    assert_eq!(Block::read(Path::new("/nowhere"), MOUNTS, (259, 0)), None);
}

#[test]
fn a_volume_names_the_disks_below_it() {
    let sys = Sys::with("dm-0", QLC);
    sys.write("devices/pci/block/dm-0/slaves/nvme1n1/name", "x");
    let advice = advise(&sys.disk(), 16 << 10);
    let below = advice.iter().find(|advice| advice.what.starts_with("it lies on other devices"));
    assert_eq!(below.expect("it is told").remedy, ["esker device /dev/nvme1n1"]);
}

#[test]
fn what_the_drive_says_counts_where_the_kernel_says_less() {
    let sys = Sys::with("nvme0n1", QLC);
    let told = |bytes: u64| Namespace {
        blocks: 1000,
        block_bytes: 4096,
        write_granularity_bytes: Some(bytes),
        write_alignment_bytes: None,
        deallocate_granularity_bytes: None,
        optimal_write_bytes: None,
    };
    let unit = |bytes| Unit::of(&sys.disk(), Some(&told(bytes)), None);
    assert_eq!(unit(64 << 10), Unit { bytes: 64 << 10, source: Source::Drive });
    assert_eq!(advice::settings(&sys.disk(), &unit(64 << 10))[1], "iu = \"64k\"");
    assert_eq!(unit(16 << 10), Unit { bytes: 16 << 10, source: Source::Kernel });
    // Not a power of two, or too large: not a unit.
    assert_eq!(unit(96 << 10).source, Source::Kernel);
    assert_eq!(unit(4 << 20).source, Source::Kernel);
    sys.write("devices/pci/block/nvme0n1/queue/physical_block_size", "4096");
    sys.write("devices/pci/block/nvme0n1/queue/minimum_io_size", "4096");
    assert_eq!(unit(4 << 10).source, Source::Default);
    assert_eq!(unit(16 << 10), Unit { bytes: 16 << 10, source: Source::Drive });
}

/// A modelled drive. A write takes the time of the drive's programs and reads for it, and each command
/// has an overhead.
struct Model {
    drive: Drive,
    bytes: u64,
    random: SmallRng,
}

impl Model {
    fn with_unit(bytes: u64) -> Model {
        let namespace_bytes = 256 << 20;
        let shape = Shape::over_provisioned(bytes as u32, namespace_bytes, 0.15);
        let drive = Drive::new(&shape).expect("it is a drive");
        Model { drive, bytes: namespace_bytes, random: SmallRng::seed_from_u64(bytes) }
    }

    /// Returns the nanoseconds of work so far: 1 GB/s of programs, 5 GB/s of reads, 2 us per command.
    fn spent(&self) -> f64 {
        let counters = self.drive.counters();
        let read = counters.modify_reads * u64::from(counters.iu_bytes);
        counters.nand_bytes() as f64 + read as f64 / 5.0 + counters.host_writes as f64 * 2_000.0
    }
}

impl Scratch for Model {
    fn fill(&mut self) -> Result<(), Failure> {
        self.drive.fill(1.0).map_err(|error| Failure::Failed(error.to_string()))
    }

    fn write(&mut self, bytes: u64, shift: u64, _: Duration) -> Result<f64, Failure> {
        const WRITES: u64 = 4_000;
        let before = self.spent();
        for _ in 0..WRITES {
            let place = self.random.random_range(0..(self.bytes - shift) / bytes);
            let written = self.drive.write(place * bytes + shift, bytes, Handle(0));
            written.map_err(|error| Failure::Failed(error.to_string()))?;
        }
        self.drive.flush();
        Ok(WRITES as f64 * 1e9 / (self.spent() - before))
    }
}

#[test]
fn the_unit_of_a_drive_is_found_by_timing_writes() {
    let found = |unit| measure(&mut Model::with_unit(unit), Duration::ZERO, &()).expect("it is measured");
    for unit in [8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let measured = found(unit);
        assert_eq!(measured.unit_bytes, Some(unit), "{measured:?}");
    }
    let measured = found(4 << 10);
    assert_eq!(measured.unit_bytes, None, "{measured:?}");
}

/// Returns an array of md on five drives, described as the kernel does; `files` are added or replaced.
fn array(files: &[(&str, &str)]) -> (Sys, Block) {
    let queue = [("minimum_io_size", "65536"), ("optimal_io_size", "262144"), ("max_sectors_kb", "128")];
    let sys = Sys::with("md127", &queue);
    let md = [("level", "raid5"), ("raid_disks", "5"), ("chunk_size", "65536"), ("degraded", "0")];
    let more = [("sync_action", "idle"), ("consistency_policy", "bitmap")];
    for (name, value) in md.into_iter().chain(more).chain(files.iter().copied()) {
        sys.write(&format!("devices/pci/block/md127/md/{name}"), value);
    }
    for drive in 2..7 {
        let queue = format!("devices/pci/block/md127/slaves/nvme{drive}n1/queue");
        sys.write(&format!("{queue}/physical_block_size"), "16384");
    }
    let block = sys.disk();
    (sys, block)
}

#[test]
fn a_full_stripe_is_the_unit_of_an_array_with_parity() {
    let (_sys, block) = array(&[]);
    let unit = Unit::of(&block, None, None);
    assert_eq!(unit, Unit { bytes: 256 << 10, source: Source::Stripe });
    let reason = unit.reason(block.array.as_ref());
    assert!(reason.contains("full stripe of RAID 5, 4 data drives x 64.0 KiB = 256 KiB"), "{reason}");
    assert_eq!(advice::settings(&block, &unit), ["capacity = \"/dev/md127\"", "iu = \"256k\""]);
    let advice = advise(&block, unit.bytes);
    assert_eq!(wrong(&advice), Vec::<&Advice>::new());
    let shown = super::array::shown(block.array.as_ref().expect("an array"));
    assert!(
        shown.contains("RAID 5 of md, 5 drives") && shown.contains("parity after a crash: bitmap"),
        "{shown}"
    );
    let json = serde_json::to_value(&block).expect("it is serialized");
    assert_eq!(
        (&json["array"]["stripe_bytes"], &json["array"]["level"]),
        (&(256 << 10).into(), &"RAID 5".into())
    );
}

#[test]
fn mirrors_are_written_in_units_of_their_drives() {
    let (_sys, block) = array(&[("level", "raid1"), ("raid_disks", "2"), ("chunk_size", "0")]);
    let unit = Unit::of(&block, None, None);
    assert_eq!(unit, Unit { bytes: 16 << 10, source: Source::Members });
    assert!(unit.reason(block.array.as_ref()).contains("RAID 1 has no parity"));
}

#[test]
fn arrays_that_cannot_be_written_in_stripes_are_wrong() {
    let said = |files: &[(&str, &str)], words: &[&str]| {
        let (_sys, block) = array(files);
        let advice = advise(&block, 64 << 10);
        let [only] = wrong(&advice)[..] else { panic!("{advice:?}") };
        assert!(words.iter().all(|word| only.what.contains(word)), "{only:?}");
        only.remedy.clone()
    };
    said(
        &[("raid_disks", "4")],
        &["3 data drives x 64.0 KiB = 192 KiB", "3 or 5 drives (2 or 4 of them for data)"],
    );
    let long = [("raid_disks", "9"), ("chunk_size", "1048576")];
    said(&long, &["= 8.00 MiB", "chunks of at most 512 KiB"]);
    said(&[("chunk_size", "4096")], &["chunks of 4.00 KiB", "16.0 KiB"]);
    let remedy = said(&[("degraded", "1")], &["1 of 5 drives of md127 are missing"]);
    assert_eq!(remedy, ["mdadm --detail /dev/md127"]);
    let (sys, _) = array(&[("sync_action", "recover")]);
    sys.write("devices/pci/block/md127/alignment_offset", "4096");
    let advice = advise(&sys.disk(), 256 << 10);
    assert!(wrong(&advice)[0].what.contains("shifted by 4096 bytes"), "{advice:?}");
    assert!(advice.iter().any(|advice| advice.what.contains("md127 runs recover")), "{advice:?}");
}

#[test]
fn the_stripe_of_a_controller_is_a_note() {
    let sys = Sys::with("sda", &[("minimum_io_size", "65536"), ("optimal_io_size", "262144")]);
    let advice = advise(&sys.disk(), 64 << 10);
    assert!(wrong(&advice).is_empty(), "{advice:?}");
    let note = advice.iter().find(|advice| advice.what.contains("of a controller")).expect("it is told");
    assert_eq!(note.remedy, ["esker serve --capacity /dev/sda --iu 256k"]);
    let sys = Sys::with("nvme0n1", &[("minimum_io_size", "4096"), ("optimal_io_size", "131072")]);
    assert!(!advise(&sys.disk(), 64 << 10).iter().any(|advice| advice.what.contains("controller")));
}
