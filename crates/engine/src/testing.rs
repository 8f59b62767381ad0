//! A test bench: the parts of a store on in-memory devices and a virtual clock. Background tasks run only if the test
//! starts them, so that a test can do each step itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_device::{Device, DeviceKind, Latency, MemoryDevice, MemoryOptions, Runtime};
use esker_gc::Placement;
use esker_index::{IndexOptions, Indexes};
use esker_log::{
    Cleared, Databases, Entry, Packing, SegmentShape, Stream, Superblock, Tier as TierName, TierIdentity,
    Tiers, scan_segment,
};
use esker_simulated::SimRuntime;

use crate::base::compression::Compression;
use crate::base::durability::Durability;
use crate::base::health::Health;
use crate::base::latency::Recorder;
use crate::base::tasks::Tasks;
use crate::base::when_full::WhenFull;
use crate::catalog::clock::Clock;
use crate::catalog::recency::Recency;
use crate::catalog::{Catalog, CatalogParts};
use crate::segments::accounting::WriteAccounting;
use crate::segments::buffers::{Backing, MemoryPool};
use crate::segments::space::{Space, SpaceParts};
use crate::segments::tier::{Accounts, Tier};
use crate::write::coalescing::CoalescingPlan;
use crate::write::lane::Lane;
use crate::write::live_options::Changeable;
use crate::write::options::WriteOptions;
use crate::write::{Writer, WriterParts, committer, preallocate};

pub(crate) const SEGMENT_BYTES: u32 = 64 << 10;
pub(crate) const UNIT_BYTES: u32 = 512;
/// Device offset of slot 0.
pub(crate) const DATA_OFFSET: u64 = 64 << 10;
pub(crate) const EPOCH: u64 = 1;

/// Configuration of a test bench.
pub(crate) struct Plan {
    pub(crate) world: SimRuntime,
    pub(crate) tiers: Vec<TierName>,
    /// Slots per tier.
    pub(crate) slots: u32,
    /// True if the devices are files that grow.
    pub(crate) grows: bool,
    /// True if device operations take time, and so complete in any order.
    pub(crate) slow: bool,
    /// Duration of a flush of a slow device; `None` for that of a flash drive.
    pub(crate) flush_takes: Option<Duration>,
    /// Hash bits of the index; few bits make different keys share an index slot.
    pub(crate) hash_bits: Option<u32>,
    pub(crate) placement: Placement,
    pub(crate) may_separate: bool,
    pub(crate) when_full: WhenFull,
    pub(crate) coalescing: Option<CoalescingPlan>,
}

impl Plan {
    /// One tier of 16 slots, on a device that completes every operation at once.
    pub(crate) fn new(seed: u64) -> Plan {
        Plan {
            world: SimRuntime::new(seed),
            tiers: vec![TierName::Capacity],
            slots: 16,
            grows: false,
            slow: false,
            flush_takes: None,
            hash_bits: None,
            placement: Placement::new(1),
            may_separate: false,
            when_full: WhenFull::Refuse,
            coalescing: None,
        }
    }

    pub(crate) fn shape(&self, tier: TierName) -> SegmentShape {
        SegmentShape {
            tier,
            segment_bytes: SEGMENT_BYTES,
            unit_bytes: UNIT_BYTES,
            granule_bytes: 16,
            identity: TierIdentity::NONE,
        }
    }

    pub(crate) fn packing(&self) -> Packing {
        let tiers = if self.tiers.len() > 1 { Tiers::Both } else { Tiers::Only(self.tiers[0]) };
        Packing { granule_bytes: 16, segment_bytes: SEGMENT_BYTES.into(), tiers }
    }

    pub(crate) fn superblock(&self, tier: TierName) -> Superblock {
        let now_ms = self.world.wall_clock_ms();
        Superblock {
            generation: 1,
            store_id: 7,
            fast: tier == TierName::Fast,
            has_peer: self.tiers.len() > 1,
            epoch: EPOCH,
            staging_epoch: 0,
            digest_key: [1, 2],
            salt: 3,
            granule_bytes: 16,
            segment_bytes: SEGMENT_BYTES.into(),
            unit_bytes: UNIT_BYTES.into(),
            data_offset: DATA_OFFSET,
            used_slots: if self.grows { 0 } else { self.slots },
            cleared: Cleared::default(),
            databases: Databases::default(),
            created_at_ms: now_ms,
            clock_ms: now_ms,
            staging_boot: 0,
            staging_bytes: 0,
            census: None,
            expired: Vec::new(),
            device_id: 9,
            devices: Vec::new(),
            far_copies: Vec::new(),
            stripes: Vec::new(),
            moved: Vec::new(),
        }
    }

    /// Creates the device of a tier. A file that grows begins with the superblock area alone.
    pub(crate) fn device(&self) -> MemoryDevice {
        let data_bytes = u64::from(self.slots) * u64::from(SEGMENT_BYTES);
        let mut options = MemoryOptions::new(DATA_OFFSET + if self.grows { 0 } else { data_bytes });
        if self.grows {
            options.geometry.kind = DeviceKind::File;
        }
        options.latency = self.slow.then(|| {
            let flash = Latency::flash(Arc::new(self.world.clone()));
            let flush = self.flush_takes.map_or(flash.flush.clone(), |takes| takes..takes);
            Latency { flush, ..flash }
        });
        MemoryDevice::with(options)
    }

    pub(crate) fn tier(&self, name: TierName, device: &MemoryDevice) -> Arc<Tier> {
        let accounts = Accounts {
            accounting: Arc::new(WriteAccounting::default()),
            recorder: Arc::new(Recorder::new()),
            clock: Arc::new(self.world.clone()),
            reclaim_unit_bytes: None,
            evicts: false,
        };
        let device: Arc<dyn Device> = Arc::new(device.clone());
        Arc::new(Tier::new(device, self.shape(name), DATA_OFFSET, self.slots, self.grows, accounts))
    }

    /// Builds everything up to the writer. No task is running.
    pub(crate) fn build(self) -> Bench {
        let devices: Vec<MemoryDevice> = self.tiers.iter().map(|_| self.device()).collect();
        let tiers: Vec<_> = self.tiers.iter().zip(&devices).map(|(name, d)| self.tier(*name, d)).collect();
        let superblocks: Vec<_> = self.tiers.iter().map(|tier| self.superblock(*tier)).collect();
        let (shape, packing) = (self.shape(self.tiers[0]), self.packing());
        let Plan { world, hash_bits, placement, may_separate, when_full, coalescing, .. } = self;
        let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
        let health = Arc::new(Health::default());
        let tasks = Tasks::new(runtime.clone(), health.clone());
        let clock = Clock::new(&superblocks, runtime.wall_clock_ms(), runtime.now(), None);
        let space = Space::new(SpaceParts {
            runtime,
            health,
            secret: superblocks[0].secret(),
            epoch: EPOCH,
            tiers,
            superblocks,
            reserve_share: 0.1,
            max_garbage_share: None,
            coalescing_slots: 0,
            log_slots: (0, 0),
            outlives_process: false,
            max_sequence: 0,
            max_segment: 0,
        });
        let catalog = Catalog::new(CatalogParts {
            space: space.clone(),
            index: Arc::new(Indexes::new(IndexOptions { hash_bits, ..IndexOptions::default() })),
            packing,
            placement,
            clock,
            expansions: Arc::default(),
            recency: Recency::new(when_full, 16 << 20),
            memory_bytes: 32 << 20,
            cleared: Cleared::default(),
            databases: Databases::default(),
        });
        let pool = MemoryPool::new(Backing::Anonymous, SEGMENT_BYTES as usize, 4);
        let lane = Lane::new(catalog.clone(), Stream::LANE, shape, pool, may_separate, coalescing);
        let writer = Writer::new(WriterParts {
            catalog: catalog.clone(),
            tasks,
            lane,
            large: None,
            group_log: None,
            shaping_threshold_bytes: u64::MAX,
            changeable: Changeable::new(Durability::Sync, Compression::Off, None, Some(0)),
        });
        Bench { world, devices, space, catalog, writer }
    }
}

/// The parts of a store under test.
pub(crate) struct Bench {
    pub(crate) world: SimRuntime,
    /// The devices of the tiers.
    pub(crate) devices: Vec<MemoryDevice>,
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) writer: Arc<Writer>,
}

impl Bench {
    /// Starts the committer and the task that preallocates segments for its lane.
    pub(crate) fn start(&self) {
        let Writer { tasks, lane, .. } = &*self.writer;
        tasks.spawn("commit", committer::run(self.catalog.clone(), tasks.clone(), lane.clone()));
        tasks.spawn("preallocate", preallocate::run(self.catalog.clone(), lane.clone(), lane.clone()));
    }

    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.world.run(future)
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    pub(crate) async fn put(&self, key: &str, value: &[u8], durability: Durability) -> crate::Result<u64> {
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        self.writer
            .put(0, Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value), options)
            .await
    }

    pub(crate) async fn put_expiring(
        &self,
        key: &str,
        value: &[u8],
        expires_at_ms: u64,
    ) -> crate::Result<u64> {
        let options = WriteOptions { expires_at_ms: Some(expires_at_ms), ..WriteOptions::default() };
        self.writer
            .put(0, Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value), options)
            .await
    }

    /// Deletes a key; acknowledged from memory.
    pub(crate) async fn delete(&self, key: &str) -> crate::Result<bool> {
        let options = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
        self.writer.delete(0, Bytes::copy_from_slice(key.as_bytes()), options).await
    }

    /// Returns the current value of a key and its sequence number, expired or not.
    pub(crate) async fn get(&self, key: &str) -> crate::Result<Option<(Bytes, u64)>> {
        let found = self.catalog.look_up(key.as_bytes(), &self.catalog.hash_in(0, key.as_bytes())).await?;
        Ok(found.map(|found| (Bytes::copy_from_slice(found.record.value()), found.record.sequence)))
    }

    /// Returns the records of the first tier that are certain to survive a power failure now, in the order of their
    /// sequence numbers.
    pub(crate) fn durable(&self) -> Vec<Entry> {
        let tier = self.space.first_tier();
        let bytes = self.devices[0].durable_snapshot();
        let mut entries = Vec::new();
        for (at, slot) in tier.slots().in_use() {
            let start = tier.device_offset(at, 0) as usize;
            if let Some(bytes) = bytes.get(start..start + SEGMENT_BYTES as usize) {
                let scan = scan_segment(bytes, &self.space.secret, tier.shape(), slot.segment(), false);
                entries.extend(scan.entries);
            }
        }
        entries.sort_by_key(|entry| entry.sequence);
        entries
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.world.crash();
        }
    }
}
