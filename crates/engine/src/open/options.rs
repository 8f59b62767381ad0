//! Options of a store: location, limits, durability.

use std::fmt;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Backend, Device, Runtime};

use crate::base::compression::Compression;
use crate::base::durability::Durability;
use crate::base::max_garbage::MaxGarbage;
use crate::base::on_device_loss::OnDeviceLoss;
use crate::base::when_full::WhenFull;
use crate::open::progress::Progress;

/// Location of a tier.
#[derive(Clone)]
pub(crate) enum Target {
    Path(PathBuf),
    Device(Arc<dyn Device>),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => path.fmt(f),
            Target::Device(device) => write!(f, "device {}", device.path()),
        }
    }
}

impl Target {
    /// Returns true if nothing exists at its path.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Target::Path(path) if std::fs::metadata(path).is_err())
    }

    /// Returns its length in bytes; `None` if nothing can be opened at its path.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Target::Path(path) => {
                std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()
            }
            Target::Device(device) => Some(device.geometry().bytes),
        }
    }
}

/// Name of the data file of a store in a directory.
pub(crate) const DATA_FILE: &str = "data.esker";

/// The tiers of a store: one of three configurations.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// One tier of files in a directory.
    Directory(PathBuf),
    FastOnly(Target),
    CapacityOnly(Target),
    FastAndCapacity(Target, Target),
}

/// Options of [`Store::open`](crate::Store::open).
#[derive(Clone)]
pub struct Options {
    pub(crate) layout: Layout,
    pub(crate) more_fast: Vec<Target>,
    pub(crate) more_capacity: Vec<Target>,
    pub(crate) on_device_loss: OnDeviceLoss,
    pub(crate) drain: Vec<PathBuf>,
    pub(crate) memory_bytes: u64,
    pub(crate) fast_limit_bytes: Option<u64>,
    pub(crate) capacity_limit_bytes: Option<u64>,
    pub(crate) indirection_unit_bytes: Option<u64>,
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) reclaim_unit_bytes: Option<u64>,
    pub(crate) shaping_threshold_bytes: Option<u64>,
    pub(crate) reserve_percent: u8,
    pub(crate) max_garbage: MaxGarbage,
    pub(crate) durability: Durability,
    pub(crate) coalesce_for: Duration,
    pub(crate) compression: Compression,
    pub(crate) when_full: WhenFull,
    pub(crate) backend: Backend,
    pub(crate) direct: bool,
    pub(crate) force_format: bool,
    pub(crate) create: bool,
    pub(crate) discard: bool,
    pub(crate) discard_after: Duration,
    pub(crate) accept_loss: bool,
    pub(crate) staging: Option<PathBuf>,
    pub(crate) boot: Option<u64>,
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
    pub(crate) progress: Progress,
    pub(crate) background_bytes_per_s: Option<u64>,
    pub(crate) scrub_bytes_per_s: Option<u64>,
    pub(crate) index_hash_bits: Option<u32>,
    pub(crate) group_log_segments: Option<u32>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Destructured, so that the compiler rejects a field that is missing here.
        let Options {
            layout,
            more_fast,
            more_capacity,
            on_device_loss,
            drain,
            memory_bytes,
            fast_limit_bytes,
            capacity_limit_bytes,
            indirection_unit_bytes,
            segment_bytes,
            reclaim_unit_bytes,
            shaping_threshold_bytes,
            reserve_percent,
            max_garbage,
            durability,
            coalesce_for,
            compression,
            when_full,
            backend,
            direct,
            force_format,
            create,
            discard,
            discard_after,
            accept_loss,
            staging,
            boot,
            runtime,
            progress: _,
            background_bytes_per_s,
            scrub_bytes_per_s,
            index_hash_bits,
            group_log_segments,
        } = self;
        f.debug_struct("Options")
            .field("layout", layout)
            .field("more_fast", more_fast)
            .field("more_capacity", more_capacity)
            .field("on_device_loss", on_device_loss)
            .field("drain", drain)
            .field("memory_bytes", memory_bytes)
            .field("fast_limit_bytes", fast_limit_bytes)
            .field("capacity_limit_bytes", capacity_limit_bytes)
            .field("indirection_unit_bytes", indirection_unit_bytes)
            .field("segment_bytes", segment_bytes)
            .field("reclaim_unit_bytes", reclaim_unit_bytes)
            .field("shaping_threshold_bytes", shaping_threshold_bytes)
            .field("reserve_percent", reserve_percent)
            .field("max_garbage", max_garbage)
            .field("durability", durability)
            .field("coalesce_for", coalesce_for)
            .field("compression", compression)
            .field("when_full", when_full)
            .field("backend", backend)
            .field("direct", direct)
            .field("force_format", force_format)
            .field("create", create)
            .field("discard", discard)
            .field("discard_after", discard_after)
            .field("accept_loss", accept_loss)
            .field("staging", staging)
            .field("boot", boot)
            .field("runtime", &runtime.as_ref().map(|_| "the caller's"))
            .field("background_bytes_per_s", background_bytes_per_s)
            .field("scrub_bytes_per_s", scrub_bytes_per_s)
            .field("index_hash_bits", index_hash_bits)
            .field("group_log_segments", group_log_segments)
            .finish_non_exhaustive()
    }
}

impl Options {
    fn with(layout: Layout) -> Options {
        Options {
            layout,
            more_fast: Vec::new(),
            more_capacity: Vec::new(),
            on_device_loss: OnDeviceLoss::Stop,
            drain: Vec::new(),
            memory_bytes: 512 << 20,
            fast_limit_bytes: None,
            capacity_limit_bytes: None,
            indirection_unit_bytes: None,
            segment_bytes: None,
            reclaim_unit_bytes: None,
            shaping_threshold_bytes: None,
            reserve_percent: 20,
            max_garbage: MaxGarbage::Auto,
            durability: Durability::Sync,
            coalesce_for: Duration::ZERO,
            compression: Compression::default(),
            when_full: WhenFull::Refuse,
            backend: Backend::Auto,
            direct: true,
            force_format: false,
            create: true,
            discard: true,
            discard_after: Duration::from_secs(2),
            accept_loss: false,
            staging: None,
            boot: None,
            runtime: None,
            progress: Progress::default(),
            background_bytes_per_s: None,
            scrub_bytes_per_s: None,
            index_hash_bits: None,
            group_log_segments: None,
        }
    }

    /// One tier, in files in a directory: the embedded default. The directory is created if it does not exist; its
    /// parent must exist. Files start small and grow to [`capacity_limit_bytes`](Self::capacity_limit_bytes).
    pub fn directory(path: impl AsRef<Path>) -> Options {
        Options::with(Layout::Directory(path.as_ref().to_owned()))
    }

    /// A fast tier in front of a capacity tier. Each is a block device or a regular file.
    pub fn fast_and_capacity(fast: impl AsRef<Path>, capacity: impl AsRef<Path>) -> Options {
        let place = |p: &Path| Target::Path(p.to_owned());
        Options::with(Layout::FastAndCapacity(place(fast.as_ref()), place(capacity.as_ref())))
    }

    /// A capacity tier alone: every frame is a whole number of indirection units.
    pub fn capacity_only(path: impl AsRef<Path>) -> Options {
        Options::with(Layout::CapacityOnly(Target::Path(path.as_ref().to_owned())))
    }

    /// A fast tier alone.
    pub fn fast_only(path: impl AsRef<Path>) -> Options {
        Options::with(Layout::FastOnly(Target::Path(path.as_ref().to_owned())))
    }

    /// The same three configurations on devices that the caller opened; for tests and simulation.
    ///
    /// At least one of the two must be given.
    pub fn devices(fast: Option<Arc<dyn Device>>, capacity: Option<Arc<dyn Device>>) -> Options {
        Options::with(match (fast, capacity) {
            (Some(fast), Some(capacity)) => {
                Layout::FastAndCapacity(Target::Device(fast), Target::Device(capacity))
            }
            (Some(fast), None) => Layout::FastOnly(Target::Device(fast)),
            (None, Some(capacity)) => Layout::CapacityOnly(Target::Device(capacity)),
            (None, None) => panic!("Options::devices needs at least one device"),
        })
    }

    /// Adds a device to the fast tier: a block device, or a file that gets its full length at once. A device without a store is
    /// added to the tier; later openings need all of them, in any order. See `docs/operations.md`.
    pub fn add_fast(mut self, path: impl AsRef<Path>) -> Options {
        self.more_fast.push(Target::Path(path.as_ref().to_owned()));
        self
    }

    /// Adds a device to the capacity tier; see [`add_fast`](Self::add_fast).
    pub fn add_capacity(mut self, path: impl AsRef<Path>) -> Options {
        self.more_capacity.push(Target::Path(path.as_ref().to_owned()));
        self
    }

    /// As [`add_fast`](Self::add_fast), with a device that the caller opened.
    pub fn add_fast_device(mut self, device: Arc<dyn Device>) -> Options {
        self.more_fast.push(Target::Device(device));
        self
    }

    /// As [`add_capacity`](Self::add_capacity), with a device that the caller opened.
    pub fn add_capacity_device(mut self, device: Arc<dyn Device>) -> Options {
        self.more_capacity.push(Target::Device(device));
        self
    }

    /// Sets the policy for the failure of one of several devices of a tier. Default [`OnDeviceLoss::Stop`].
    pub fn on_device_loss(mut self, policy: OnDeviceLoss) -> Options {
        self.on_device_loss = policy;
        self
    }

    /// Drains a device of a tier of several devices, as [`Store::drain_device`](crate::Store::drain_device) does.
    pub fn drain(mut self, path: impl AsRef<Path>) -> Options {
        self.drain.push(path.as_ref().to_owned());
        self
    }

    /// Memory budget for index, write buffers, read cache, input and output together. Default 512 MiB.
    pub fn memory_bytes(mut self, bytes: u64) -> Options {
        self.memory_bytes = bytes;
        self
    }

    /// Maximum size of the fast tier. Default: the device's size; for a file 1 GiB, or its file system's size if that
    /// is smaller.
    pub fn fast_limit_bytes(mut self, bytes: u64) -> Options {
        self.fast_limit_bytes = Some(bytes);
        self
    }

    /// Maximum size of the capacity tier (or the directory). Default: the device's size; for a file 256 GiB, or its
    /// file system's size if that is smaller. Only space that the file system actually has counts: see
    /// [`Stats::user_limit_bytes`](crate::Stats::user_limit_bytes).
    ///
    /// It can be raised at a later opening, up to a bound that is fixed when the store is created: for limits of up to
    /// 2 TiB in all, the smallest power of two of at least twice the limits (256 GiB or more); above, the next power of
    /// two.
    pub fn capacity_limit_bytes(mut self, bytes: u64) -> Options {
        self.capacity_limit_bytes = Some(bytes);
        self
    }

    /// Indirection unit of the capacity tier, a power of two from 4 KiB to 4 MiB; fixed when the store is formatted.
    ///
    /// Default: the unit that the kernel reports for the device if it is above 4 KiB, else 64 KiB; for a directory 4
    /// KiB. Most drives report 4 KiB regardless of their mapping unit: `esker device` queries the drive itself.
    pub fn indirection_unit_bytes(mut self, bytes: u64) -> Options {
        self.indirection_unit_bytes = Some(bytes);
        self
    }

    /// Size of a segment, a power of two from 64 KiB to 512 MiB; fixed when the store is formatted. It bounds the
    /// length of values. Default: 16 MiB; in a store of less than 1 GiB, small enough for 64 segments (16 for a fast
    /// tier in front of another tier); with write units above 1 MiB, 16 units; in a store of more than 5 TB, long enough
    /// for about 300,000 segments, as far as the memory allows: four segments of one tier, or six of two, take at most an
    /// eighth of it.
    ///
    /// It should be at least sixteen write units: segments of a few units fill badly, and a store of tiny records is
    /// then full before its user limit.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Bytes that the drive of the capacity tier (or of the only tier) erases together: its superblock, or reclaim
    /// unit. The segments in one reclaim unit are collected one after the other, so that the drive has nothing left to
    /// copy. Default: the size that the device reports; if it reports none, each segment is collected on its own. No
    /// effect on a drive without placement handles.
    pub fn reclaim_unit_bytes(mut self, bytes: u64) -> Options {
        self.reclaim_unit_bytes = Some(bytes);
        self
    }

    /// Values of at least `bytes` bytes go straight to the capacity tier if there are two tiers. Default: one
    /// indirection unit.
    pub fn shaping_threshold_bytes(mut self, bytes: u64) -> Options {
        self.shaping_threshold_bytes = Some(bytes);
        self
    }

    /// Share of the capacity that users cannot fill, 5 to 50 percent. Default 20. A store with few segments keeps more
    /// free as working space: see [`Stats::user_limit_bytes`](crate::Stats::user_limit_bytes).
    pub fn reserve_percent(mut self, percent: u8) -> Options {
        self.reserve_percent = percent;
        self
    }

    /// Bound of garbage in the tier where records stay. Default [`MaxGarbage::Auto`]: none for a device and for a file
    /// with a limit, where garbage stays until free segments run low. A bound means more bytes written, less space in
    /// use, shorter openings and smaller backups. It may differ from one opening to the next.
    pub fn max_garbage(mut self, bound: MaxGarbage) -> Options {
        self.max_garbage = bound;
        self
    }

    /// Default durability of writes. Default [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// How long puts below [`Durability::Sync`] may wait in memory to be overwritten; overwritten puts are never
    /// written to the device. Default 0: puts do not wait, and are written within a second. Coalescing takes a quarter
    /// of the memory, and applies only to a store of one tier: with two tiers, the fast tier has the same effect.
    /// `docs/durability.md` describes the loss on a power failure.
    pub fn coalesce_for(mut self, wait: Duration) -> Options {
        self.coalesce_for = wait;
        self
    }

    /// Compression of values in new puts. Default [`Compression::Lz4`]. It may differ from one opening to the next.
    pub fn compression(mut self, compression: Compression) -> Options {
        self.compression = compression;
        self
    }

    /// Policy for puts when the store is full. Default [`WhenFull::Refuse`]. A store that evicts is a cache:
    /// `docs/durability.md` lists the keys that it may drop.
    pub fn when_full(mut self, when_full: WhenFull) -> Options {
        self.when_full = when_full;
        self
    }

    /// I/O backend. Default: io_uring if the kernel allows it, else a thread pool.
    pub fn backend(mut self, backend: Backend) -> Options {
        self.backend = backend;
        self
    }

    /// Uses O_DIRECT if the file system allows it. Default true.
    pub fn direct(mut self, direct: bool) -> Options {
        self.direct = direct;
        self
    }

    /// Formats a device even though it holds other data. All of that data is lost. A tier of a store that was opened is
    /// never formatted: if one of two tiers was exchanged, opening returns an error that names both.
    pub fn force_format(mut self, force: bool) -> Options {
        self.force_format = force;
        self
    }

    /// Creates a store if none exists. Default true.
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Gives back space that the store no longer needs: blocks of a file to the file system, ranges of a device to the
    /// drive (TRIM). Default true.
    pub fn discard(mut self, discard: bool) -> Options {
        self.discard = discard;
        self
    }

    /// How long freed space stays reserved for new segments before it is discarded. Default 2 s.
    pub fn discard_after(mut self, rest: Duration) -> Options {
        self.discard_after = rest;
        self
    }

    /// Opens a store even if damage makes it unknown which keys were lost. Default false: such a store is refused,
    /// because older versions of those keys could reappear.
    pub fn accept_loss(mut self, accept: bool) -> Options {
        self.accept_loss = accept;
        self
    }

    /// File that backs the write buffer for [`Durability::Process`]. Default: in the store's directory, or under
    /// `/dev/shm` for raw devices. It is locked against other stores, and must be neither a symbolic link nor another
    /// user's file. If the process was killed since the machine was started, and the file is missing, opening needs
    /// [`accept_loss`](Self::accept_loss). Its file system needs room for two segments.
    pub fn staging(mut self, path: impl AsRef<Path>) -> Options {
        self.staging = Some(path.as_ref().to_owned());
        self
    }

    /// Boot number of the machine, in place of the kernel's. For tests that simulate power failures.
    #[doc(hidden)]
    pub fn boot_number(mut self, number: u64) -> Options {
        self.boot = Some(number);
        self
    }

    /// The runtime for background work. Default: a few threads of the store's own.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Options {
        self.runtime = Some(runtime);
        self
    }

    /// Receives the progress of the opening. Default: not reported.
    pub fn progress(mut self, progress: Progress) -> Options {
        self.progress = progress;
        self
    }

    /// Limits reads and writes of destage and collect together, in bytes per second. If the limit is too low to make
    /// room for new puts, puts are slowed down accordingly. Default: no limit; the rate follows the state of the tiers.
    pub fn background_bytes_per_s(mut self, bytes: u64) -> Options {
        self.background_bytes_per_s = Some(bytes);
        self
    }

    /// Bytes per second that the scrub reads to find rot in current records; 0 turns it off. Each finding is logged as
    /// an error and counted in [`Activity::scrub_damages`](crate::Activity::scrub_damages). Default: the rate at which
    /// a pass takes a week.
    pub fn scrub_bytes_per_s(mut self, bytes: u64) -> Options {
        self.scrub_bytes_per_s = Some(bytes);
        self
    }

    /// Maximum number of segments for the log of replicated groups, at least 4, which makes the store a member of a cluster.
    /// Default: none, and then the log takes no space and no memory. The segments are set aside on the tier that is written to
    /// first, which needs at least 16: the log takes a quarter of them if the number is larger, and 4 GiB or 16
    /// segments at most. Three segment buffers of memory are used in addition to
    /// [`memory_bytes`](Self::memory_bytes). It may be raised from one opening to the next.
    ///
    /// A store that has such a log cannot be opened without this option.
    pub fn group_log_segments(mut self, segments: u32) -> Options {
        self.group_log_segments = Some(segments);
        self
    }

    /// Number of hash bits that the index keeps, for tests of exactness.
    pub fn index_hash_bits(mut self, bits: u32) -> Options {
        self.index_hash_bits = Some(bits);
        self
    }
}
