//! What all parts of an open store share, and the act of publishing.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use esker_device::{Device, Runtime, Task};
use esker_gc::Placement;
use esker_index::{Index, KeyHash, Occupant, Pointer};
use esker_log::{Kind, Location, Packing, RecordView, Secret, Superblock, Tier as TierName, class_bytes};
use tokio::sync::Notify;

use crate::admission::Admission;
use crate::append::{Appended, Group};
use crate::batch_ticks::BatchTicks;
use crate::cache::ReadCache;
use crate::clock::Clock;
use crate::compact::Requests;
use crate::error::{Error, Result};
use crate::gate::Announcement;
use crate::lane::Lane;
use crate::memory::{Residents, pointer};
use crate::options::Durability;
use crate::relief::Relief;
use crate::slot::Slot;
use crate::stats::Counters;
use crate::tier::Tier;

/// What segment numbers differ by. Below it they say in which opening they were given out: one that was cut off may have
/// left parts of segments whose numbers nobody can find any more, and they must not be taken for parts of another's.
pub(crate) const SEGMENT_STEP: u64 = 1 << 16;

/// Each opening has so many bits of sequence numbers to itself: a trillion writes.
pub(crate) const SEQUENCE_EPOCH_SHIFT: u32 = 40;

/// What an open store is made of: found or decided when it was opened.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) secret: Secret,
    pub(crate) packing: Packing,
    pub(crate) index: Arc<Index>,
    pub(crate) fast: Option<Arc<Tier>>,
    pub(crate) capacity: Option<Arc<Tier>>,
    pub(crate) lane: Arc<Lane>,
    /// For large values, where there are two tiers.
    pub(crate) large: Option<Arc<Lane>>,
    pub(crate) shaping_threshold_bytes: u64,
    pub(crate) durability: Durability,
    /// Whether the lane's memory outlives the process.
    pub(crate) outlives_process: bool,
    /// Share of the capacity that users cannot fill.
    pub(crate) reserve_share: f64,
    /// Memory for index and read cache together.
    pub(crate) memory_bytes: u64,
    /// Records up to this sequence number were cleared.
    pub(crate) cleared_through: AtomicU64,
    pub(crate) cache: ReadCache,
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    /// Limit of what relocation reads and writes; 0: none.
    pub(crate) background_bytes_per_s: u64,
    pub(crate) epoch: u64,
    pub(crate) superblocks: tokio::sync::Mutex<Vec<Superblock>>,
    pub(crate) sequence: AtomicU64,
    pub(crate) segments: AtomicU64,
}

/// Everything about an open store: its parts, whose fields are reached as if they were its own, and what begins the same
/// in every store.
pub(crate) struct Engine {
    parts: Parts,
    /// The index alone takes more memory than there is for it: puts are refused.
    pub(crate) out_of_memory: AtomicBool,
    /// No room can be made: puts are refused until a segment is freed.
    pub(crate) full: AtomicBool,
    /// Nor is there a slot that could be lent to deletes beside those that relocation is to have, and nothing to relocate before
    /// something is deleted.
    pub(crate) stuck: AtomicBool,
    pub(crate) residents: Residents,
    pub(crate) counters: Counters,
    pub(crate) admission: Admission,
    pub(crate) compaction: Requests,
    pub(crate) relief: Relief,
    /// What users may fill, as far as the file system has room for it.
    pub(crate) user_limit: AtomicU64,
    /// Bytes of records that ceased to be current.
    pub(crate) dead_bytes: AtomicU64,
    batches: BatchTicks,
    /// Wakes the reclaimer.
    pub(crate) reclaim: Notify,
    /// A slot was freed, or none will be.
    pub(crate) slot_freed: Announcement,
    latched: OnceLock<Error>,
    pub(crate) closed: AtomicBool,
    tasks: AtomicUsize,
    tasks_done: Notify,
}

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Arc<Engine> {
        let engine = Engine {
            parts,
            out_of_memory: AtomicBool::new(false),
            full: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            residents: Residents::default(),
            counters: Counters::default(),
            admission: Admission::default(),
            compaction: Requests::default(),
            relief: Relief::default(),
            user_limit: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
            batches: BatchTicks::default(),
            reclaim: Notify::new(),
            slot_freed: Announcement::new(),
            latched: OnceLock::new(),
            closed: AtomicBool::new(false),
            tasks: AtomicUsize::new(0),
            tasks_done: Notify::new(),
        };
        engine.note_limit();
        Arc::new(engine)
    }

    pub(crate) fn tier(&self, name: TierName) -> &Tier {
        let tier = match name {
            TierName::Fast => self.fast.as_ref(),
            TierName::Capacity => self.capacity.as_ref(),
        };
        tier.expect("locations name tiers that the store has")
    }

    pub(crate) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.fast.iter().chain(&self.capacity).map(Arc::as_ref)
    }

    pub(crate) fn slot(&self, location: Location) -> &Slot {
        self.tier(location.tier).slot(location.slot)
    }

    /// The next sequence number. Called under the lane's lock; numbers are drawn earlier under a reservation only, by
    /// [`Reservation::draw`](crate::reserve::Reservation::draw).
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The next segment number: higher than all of which anything was found, and of this opening alone.
    pub(crate) fn next_segment(&self) -> u64 {
        self.segments.fetch_add(SEGMENT_STEP, Ordering::Relaxed) + SEGMENT_STEP
    }

    /// How many records were written since the one with this number; `None`: it is of an earlier opening.
    pub(crate) fn age(&self, sequence: u64) -> Option<u64> {
        let newest = self.sequence.load(Ordering::Relaxed);
        let of_this_opening = sequence >> SEQUENCE_EPOCH_SHIFT == newest >> SEQUENCE_EPOCH_SHIFT;
        of_this_opening.then(|| newest.saturating_sub(sequence))
    }

    /// Whether a put is expected to live briefly, as far as the life of what it displaces tells. Costs a look-up, and is
    /// asked for only where placement wants to know.
    pub(crate) fn expects_brief(&self, hash: &KeyHash, sequence: u64) -> bool {
        let samples = self.placement.samples(sequence);
        if !samples && !self.placement.parts() {
            return false;
        }
        let lived = self.index.get(hash).and_then(|old| {
            let slot = self.slot(self.packing.unpack(old.get()));
            slot.lived(sequence).filter(|_| slot.stream().is_fresh())
        });
        let brief = self.placement.is_brief(lived);
        if samples {
            self.placement.note_put(brief);
        }
        brief
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let digest = self.secret.digest(key);
        KeyHash { slot: digest.slot, check: digest.check }
    }

    /// Bytes of current records, as far as known.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.tiers().map(Tier::live_bytes).sum()
    }

    /// Records at a place became current, or (negative) ceased to be.
    pub(crate) fn add_live(&self, location: Location, bytes: i64) {
        let tier = self.tier(location.tier);
        tier.add_live(location.slot, bytes);
        if bytes < 0 {
            self.note_dead(tier, bytes.unsigned_abs());
        }
    }

    /// So many bytes ceased to be current. Now and then that is enough garbage for a look at what could be collected.
    pub(crate) fn note_dead(&self, tier: &Tier, bytes: u64) {
        let before = self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        if before / segment_bytes != (before + bytes) / segment_bytes {
            self.reclaim.notify_one();
        }
    }

    /// What a writer is told when there is no room.
    pub(crate) fn full_error(&self) -> Error {
        let (live_bytes, limit_bytes) = (self.live_bytes(), self.user_limit_bytes());
        match self.tiers().find(|tier| tier.is_short()) {
            Some(tier) => {
                let path = tier.device_name().to_owned();
                Error::FileSystemFull { path, live_bytes, limit_bytes }
            }
            None => Error::Full { live_bytes, limit_bytes },
        }
    }

    /// The first failure, after which nothing is acknowledged any more.
    pub(crate) fn check_latch(&self) -> Result<()> {
        match self.latched.get() {
            Some(error) => Err(Error::Closed { reason: format!("stopped after a failed write: {error}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { reason: "it was closed".into() });
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_latch()
    }

    /// Stops all writing after a failure that leaves the medium in doubt.
    pub(crate) fn latch(&self, error: &Error) {
        if self.latched.set(error.clone()).is_ok() {
            tracing::error!(%error, "a write failed; the store takes no more writes");
        }
        for lane in self.lanes() {
            lane.fail(error);
            lane.work.notify_one();
            lane.spare_taken.notify_one();
        }
        // The reclaimer may be what has failed.
        self.compaction.fail(error);
        self.relief.requests.fail(error);
        self.reclaim.notify_one();
        self.tiers().for_each(Tier::wake_tasks);
        self.announce_free_slot();
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        std::iter::once(&self.lane).chain(&self.large)
    }

    /// Runs background work that the closing of the store waits for.
    pub(crate) fn spawn(
        self: &Arc<Engine>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.accompany(name, task);
        self.runtime.spawn(name, task);
    }

    /// The same, for work that mostly waits for a device and is brief between: next to that device, if there is such a
    /// place.
    pub(crate) fn spawn_at(
        self: &Arc<Engine>,
        device: &dyn Device,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        if let Some(task) = device.attend(name, self.accompany(name, task)) {
            self.runtime.spawn(name, task);
        }
    }

    /// Counts a task until it has ended.
    fn accompany(
        self: &Arc<Engine>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        let running = Running { engine: self.clone(), name, finished: false };
        Box::pin(async move {
            task.await;
            running.finish();
        })
    }

    /// Waits until no background work is left.
    pub(crate) async fn tasks_ended(&self) {
        loop {
            let done = self.tasks_done.notified();
            if self.tasks.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }

    /// Makes the records of a group visible, at one instant.
    ///
    /// Called in the order of the lane only: by whoever has its lock while nothing waits for the committer, else by the
    /// committer.
    pub(crate) fn publish(&self, group: Group) {
        let Group { records, reservation } = group;
        let ticks = (records.len() > 1).then(|| self.batches.begin());
        // The keys of a batch differ, so its deletes may go first; and they must, or else a put of another key with the same
        // hash could displace what a delete looked up, and be deleted in its place.
        records.iter().filter(|r| r.kind == Kind::Tombstone).for_each(|r| self.publish_tombstone(r));
        records.iter().filter(|r| r.kind == Kind::Put).for_each(|r| self.publish_put(r, &r.key));
        drop(ticks);
        drop(reservation);
    }

    /// Makes one record visible. Called as [`publish`](Self::publish) is.
    pub(crate) fn publish_put(&self, record: &Appended, key: &Bytes) {
        self.add_live(record.location, i64::from(record.padded_bytes));
        let mut known_bytes = None;
        let published = self.index.publish(record.hash, record.pointer, |old| {
            if let Some(replaced) = record.replaces
                && replaced.pointer == old
            {
                known_bytes = Some(i64::from(replaced.padded_bytes));
                return Occupant::SameKey;
            }
            let (occupant, bytes) = self.compare_in_memory(key, old);
            known_bytes = bytes;
            occupant
        });
        if let Some(old) = published.displaced {
            let bytes = known_bytes.filter(|_| !published.claimed).unwrap_or_else(|| self.estimate(old));
            self.add_live(self.packing.unpack(old.get()), -bytes);
        }
    }

    fn publish_tombstone(&self, record: &Appended) {
        let tier = self.tier(record.location.tier);
        tier.add_tombstones(record.location.slot, i64::from(record.padded_bytes));
        let Some(replaced) = record.replaces else { return };
        if self.full.load(Ordering::Acquire) {
            // There may be something to collect now.
            self.reclaim.notify_one();
        }
        let mut current = replaced.pointer;
        // The key is reserved, so only relocation can have moved it, and nothing removed it. If the side table has it, the
        // slot is another key's.
        while !self.index.remove(&record.hash, current) {
            let now = self.index.get_exact(&record.hash).or_else(|| self.index.get(&record.hash));
            match now {
                Some(moved) if moved != current => current = moved,
                _ => return,
            }
        }
        self.add_live(self.packing.unpack(current.get()), -i64::from(replaced.padded_bytes));
    }

    /// Compares a key with that of a record if its bytes are in memory.
    fn compare_in_memory(&self, key: &Bytes, pointer: Pointer) -> (Occupant, Option<i64>) {
        let location = self.packing.unpack(pointer.get());
        let segment = self.slot(location).segment();
        let verdict = |same| if same { Occupant::SameKey } else { Occupant::OtherKey };
        if let Some(resident) = self.residents.hold().find(location.tier, location.slot, segment) {
            let identity = self.secret.identity(segment, location.offset);
            if let Ok(record) = RecordView::in_memory(resident.record(location.offset), &identity) {
                let shape = self.tier(location.tier).shape();
                return (verdict(record.key == key), Some(shape.padded(record.bytes()) as i64));
            }
        }
        if let Some(cached) = self.cache.get(segment, location.offset) {
            return (verdict(cached.key() == key), Some(i64::from(cached.padded_bytes)));
        }
        (Occupant::Unknown, None)
    }

    /// What a record is taken to be long until its claim is verified: as long as those of its segment are in the mean, within
    /// what its class allows.
    pub(crate) fn estimate(&self, pointer: Pointer) -> i64 {
        let location = self.packing.unpack(pointer.get());
        let most = class_bytes(location.class);
        let least = location.class.checked_sub(1).map_or(0, class_bytes);
        let bytes = match self.slot(location).record_bytes() {
            0 => most,
            mean => u64::from(mean).clamp(least, most),
        };
        bytes.min(u64::from(self.tier(location.tier).shape().segment_bytes)) as i64
    }

    /// The index pointer of a location.
    pub(crate) fn pointer(&self, location: Location) -> Pointer {
        pointer(&self.packing, location)
    }

    /// Runs a look-up so that it sees every batch wholly or not at all.
    pub(crate) fn between_batches<T>(&self, look_up: impl Fn() -> T) -> T {
        self.batches.between(look_up)
    }

    /// Divides the memory that is left between the index, which grows with the keys, and the read cache. Called now and
    /// then as the store is written to.
    pub(crate) fn balance_memory(&self) {
        let index_bytes = self.index.memory_bytes();
        self.cache.set_capacity(self.memory_bytes.saturating_sub(index_bytes));
        self.out_of_memory.store(index_bytes > self.memory_bytes, Ordering::Release);
    }

    /// There is room again.
    pub(crate) fn is_no_longer_full(&self) {
        self.full.store(false, Ordering::Release);
        self.stuck.store(false, Ordering::Release);
    }

    /// A slot was freed: whoever waits for room tries again.
    pub(crate) fn announce_free_slot(&self) {
        self.slot_freed.announce();
    }
}

/// Background work that is under way. If it panics, the store stops: nobody would do that work any more.
struct Running {
    engine: Arc<Engine>,
    name: &'static str,
    finished: bool,
}

impl Running {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            self.engine.latch(&Error::Closed { reason: format!("its {} task ended early", self.name) });
        }
        if self.engine.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.engine.tasks_done.notify_waiters();
        }
    }
}
