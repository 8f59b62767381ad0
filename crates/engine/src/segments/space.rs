//! The space of a store: its tiers, their segments, and the free room.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_device::{DeviceError, OperationKind, Runtime};
use esker_log::{
    Entry, EntryList, FOOTER_BYTES, Footer, Keyspace, Location, SEGMENT_STEP, SEQUENCE_EPOCH_SHIFT, Secret,
    Superblock, Tier as TierName, scan_segment_up_to,
};
use esker_seeded_bugs::{Bug, planted};
use tokio::sync::Notify;

use crate::base::completion::Announcement;
use crate::base::counters::Counters;
use crate::base::damage_watch::DamageWatch;
use crate::base::error::{Error, Result};
use crate::base::health::{Follower, Health};
use crate::base::latency::{Recorder, Timed};
use crate::base::option_name::OptionName;
use crate::segments::buffers::BufferedSegments;
use crate::segments::damaged::DamagedSegments;
use crate::segments::kept_segments::KeptSegments;
use crate::segments::superblocks::Superblocks;
use crate::segments::table::SlotRef;
use crate::segments::tier::Tier;
use crate::segments::unidentified::{Extent, Unidentified};

/// Free slots that lanes leave to others: one that may be lent to deletes, two for outputs of relocation (the second is for the
/// time after a crash that interrupted the use of the first), and one for records that an opening finds staged.
pub(crate) const KEEP_FOR_RELOCATION: u32 = 4;

/// Number of remaining sequence numbers of an epoch at which the next epoch is reserved: half of them. Checked for each new
/// segment of a lane, and a segment has fewer than 2^23 records.
const NUMBERS_AHEAD: u64 = 1 << (SEQUENCE_EPOCH_SHIFT - 1);

/// Progress of the current scrub pass, in segments.
#[derive(Default)]
pub(crate) struct ScrubProgress {
    done: AtomicU64,
    of: AtomicU64,
}

impl ScrubProgress {
    /// Begins a pass over `segments` segments.
    pub(crate) fn begin(&self, segments: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.of.store(segments, Ordering::Relaxed);
    }

    /// Counts one segment as done.
    pub(crate) fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the progress in thousandths.
    pub(crate) fn permille(&self) -> u64 {
        (self.done.load(Ordering::Relaxed) * 1000).checked_div(self.of.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// Input of [`Space::new`], decided or found by an opening.
pub(crate) struct SpaceParts {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) health: Arc<Health>,
    pub(crate) secret: Secret,
    /// Number of this opening.
    pub(crate) epoch: u64,
    pub(crate) tiers: Vec<Arc<Tier>>,
    pub(crate) superblocks: Vec<Superblock>,
    /// Share of the capacity that users cannot fill.
    pub(crate) reserve_share: f64,
    /// Share of live data beyond which garbage is collected even if slots are free; `None`: no bound.
    pub(crate) max_garbage_share: Option<f64>,
    /// Maximum number of slots of memtables, including the one that their remaining records are copied to.
    pub(crate) coalescing_slots: u32,
    /// Slots of the first tier that are set aside for the log of replicated groups, and the number that it uses already.
    pub(crate) log_slots: (u32, u32),
    /// True if the segment memory of the first tier outlives the process.
    pub(crate) outlives_process: bool,
    /// Highest sequence number found.
    pub(crate) max_sequence: u64,
    /// Highest segment number found.
    pub(crate) max_segment: u64,
}

/// The tiers of a store with all their content.
pub(crate) struct Space {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) health: Arc<Health>,
    pub(crate) secret: Secret,
    pub(crate) epoch: u64,
    /// Existing tiers, in the order in which records pass them.
    tiers: Vec<Arc<Tier>>,
    /// The same tiers by name, because every put and get looks one up.
    fast: Option<Arc<Tier>>,
    capacity: Option<Arc<Tier>>,
    pub(crate) superblocks: Superblocks,
    /// Held by the task that adds, drains or removes a device, or makes the store go on without one that failed.
    pub(crate) changing_devices: tokio::sync::Mutex<()>,
    pub(crate) reserve_share: f64,
    pub(crate) max_garbage_share: Option<f64>,
    pub(crate) coalescing_slots: u32,
    /// Free slots that memtables may still take, and additional slots to keep free for emptied segments that wait for
    /// memtables.
    pub(super) coalescing_reserve: AtomicU32,
    pub(super) waiting_slots: AtomicU32,
    /// Slots of the first tier that are set aside for the log of replicated groups, and those of them that it does not use.
    pub(super) log_slots: u32,
    pub(crate) log_reserve: AtomicU32,
    /// Distance of the low-water mark from the number of free slots at which writers are paced.
    pub(super) lead_slots: AtomicU32,
    pub(crate) outlives_process: bool,
    /// Last sequence number that was assigned.
    pub(crate) sequence: AtomicU64,
    /// Epoch in the superblocks: a later opening assigns only numbers of higher epochs.
    reserved_epoch: AtomicU64,
    segments: AtomicU64,
    pub(crate) buffered: BufferedSegments,
    pub(crate) counters: Counters,
    /// User limit in bytes, as far as the file system has space for it.
    pub(super) user_limit: AtomicU64,
    /// Bytes of records that ceased to be current.
    pub(crate) dead_bytes: AtomicU64,
    /// True if no room can be made: puts are refused until a segment is freed.
    pub(crate) full: AtomicBool,
    /// True if moreover no slot can be lent to deletes besides those kept for relocation, and nothing can be relocated before
    /// keys are deleted.
    pub(crate) stuck: AtomicBool,
    /// Segments that a checkpoint has still to read.
    pub(crate) kept: KeptSegments,
    /// Segments that are kept because some of their content is damaged.
    pub(crate) damaged: DamagedSegments,
    /// Wakes the reclaimer.
    pub(crate) reclaim: Notify,
    /// Wakes the scrub after its rate was changed.
    pub(crate) scrub: Notify,
    /// Wakes the task that writes watermarks after they were raised.
    pub(crate) watermarks: Notify,
    /// Wakes the task that writes tombstones for expired records without one.
    pub(crate) reported: Notify,
    /// Wakes the task that proposes to delete expired keys of a replicated store.
    pub(crate) expiries: Notify,
    pub(crate) scrubbed: ScrubProgress,
    /// Segments with damage of unknown keys.
    pub(super) unidentified: Unidentified,
    /// Receiver of damaged records, if there is one.
    pub(crate) damage_watch: OnceLock<Arc<dyn DamageWatch>>,
    /// Announced when a slot was freed, or when no more will be.
    pub(crate) slot_freed: Announcement,
}

impl Space {
    /// Reports a damaged record of a keyspace, in a slot, to the receiver, if there is one.
    pub(crate) fn report_damage(&self, keyspace: Keyspace, key: Option<&[u8]>, at: (TierName, u32)) {
        if key.is_none() {
            let segment = self.tier(at.0).slot(at.1).segment();
            self.note_unidentified(at, segment, Extent::Records);
        }
        if let Some(watch) = self.damage_watch.get() {
            watch.found(keyspace.number(), key);
        }
    }

    pub(crate) fn new(parts: SpaceParts) -> Arc<Space> {
        let SpaceParts { epoch, max_sequence, max_segment, .. } = parts;
        let find = |name: TierName| parts.tiers.iter().find(|tier| tier.name() == name).cloned();
        let (fast, capacity) = (find(TierName::Fast), find(TierName::Capacity));
        let space = Arc::new(Space {
            fast,
            capacity,
            runtime: parts.runtime,
            health: parts.health,
            secret: parts.secret,
            epoch,
            tiers: parts.tiers,
            superblocks: Superblocks::new(parts.superblocks),
            changing_devices: tokio::sync::Mutex::default(),
            reserve_share: parts.reserve_share,
            max_garbage_share: parts.max_garbage_share,
            coalescing_slots: parts.coalescing_slots,
            coalescing_reserve: AtomicU32::new(parts.coalescing_slots),
            waiting_slots: AtomicU32::new(0),
            log_slots: parts.log_slots.0,
            log_reserve: AtomicU32::new(parts.log_slots.0.saturating_sub(parts.log_slots.1)),
            lead_slots: AtomicU32::new(0),
            outlives_process: parts.outlives_process,
            // Sequence numbers assigned by an earlier process are not reused, even if no record with them remains.
            sequence: AtomicU64::new(match planted(Bug::NumbersGivenOutAgain) {
                false => max_sequence.max(epoch << SEQUENCE_EPOCH_SHIFT),
                true => max_sequence,
            }),
            reserved_epoch: AtomicU64::new(epoch),
            segments: AtomicU64::new(max_segment / SEGMENT_STEP * SEGMENT_STEP + epoch % SEGMENT_STEP),
            buffered: BufferedSegments::default(),
            counters: Counters::default(),
            user_limit: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            kept: KeptSegments::default(),
            damaged: DamagedSegments::default(),
            reclaim: Notify::new(),
            scrub: Notify::new(),
            watermarks: Notify::new(),
            reported: Notify::new(),
            expiries: Notify::new(),
            scrubbed: ScrubProgress::default(),
            unidentified: Unidentified::default(),
            damage_watch: OnceLock::new(),
            slot_freed: Announcement::new(),
        });
        space.note_limit();
        let follower: Arc<dyn Follower> = space.clone();
        space.health.follow(Arc::downgrade(&follower));
        space
    }

    #[inline]
    pub(crate) fn tier(&self, name: TierName) -> &Tier {
        let tier = match name {
            TierName::Fast => &self.fast,
            TierName::Capacity => &self.capacity,
        };
        tier.as_ref().expect("locations name tiers that the store has")
    }

    pub(crate) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.iter().map(Arc::as_ref)
    }

    /// Returns the tier that is written to first.
    pub(crate) fn first_tier(&self) -> &Tier {
        self.tiers.first().expect("a store has a tier")
    }

    /// Returns the output tier, where records stay.
    pub(crate) fn output_tier(&self) -> &Tier {
        self.tiers.last().expect("a store has a tier")
    }

    /// Returns the fast tier and the capacity tier, if both exist.
    pub(crate) fn both_tiers(&self) -> Option<(&Tier, &Tier)> {
        (self.tiers.len() > 1).then(|| (self.first_tier(), self.output_tier()))
    }

    #[inline]
    pub(crate) fn slot(&self, location: Location) -> SlotRef<'_> {
        self.tier(location.tier).slot(location.slot)
    }

    pub(crate) fn location(&self, tier: TierName, slot: u32, entry: &Entry) -> Location {
        Location { tier, slot, offset: entry.offset, class: entry.class() }
    }

    /// Changes the superblocks of all tiers, durably.
    pub(crate) async fn update_superblocks(&self, change: impl FnMut(&Tier, &mut Superblock)) -> Result<()> {
        self.superblocks.update(&self.tiers, change).await
    }

    /// Assigns `count` consecutive sequence numbers, and returns the first. Called under the lane's lock; numbers are assigned
    /// earlier only under a reservation.
    pub(crate) fn next_sequences(&self, count: usize) -> u64 {
        self.sequence.fetch_add(count as u64, Ordering::Relaxed) + 1
    }

    /// Returns the next epoch to reserve, if the numbers of the epoch in the superblocks will soon be used up.
    pub(crate) fn epoch_to_reserve(&self) -> Option<u64> {
        let epoch = (self.sequence.load(Ordering::Relaxed) + NUMBERS_AHEAD) >> SEQUENCE_EPOCH_SHIFT;
        (epoch > self.reserved_epoch.load(Ordering::Acquire)).then_some(epoch)
    }

    /// Raises the epoch in the superblocks, durably, before numbers of the next epoch are assigned, because otherwise the next
    /// opening would assign them again. Does nothing while that is far ahead.
    pub(crate) async fn reserve_numbers(&self) -> Result<()> {
        let Some(epoch) = self.epoch_to_reserve().filter(|_| !planted(Bug::NumbersNotReserved)) else {
            return Ok(());
        };
        self.update_superblocks(|_, superblock| superblock.epoch = superblock.epoch.max(epoch)).await?;
        self.reserved_epoch.fetch_max(epoch, Ordering::AcqRel);
        Ok(())
    }

    /// Assigns the next segment number: higher than all numbers found, and unique to this opening.
    pub(crate) fn next_segment(&self) -> u64 {
        self.segments.fetch_add(SEGMENT_STEP, Ordering::Relaxed) + SEGMENT_STEP
    }

    /// Returns the last segment number that was assigned.
    pub(crate) fn newest_segment(&self) -> u64 {
        self.segments.load(Ordering::Acquire)
    }

    /// Returns the number of records written since the one with this number; `None` if it is of an earlier opening.
    pub(crate) fn age(&self, sequence: u64) -> Option<u64> {
        let newest = self.sequence.load(Ordering::Relaxed);
        let of_this_opening = sequence >> SEQUENCE_EPOCH_SHIFT == newest >> SEQUENCE_EPOCH_SHIFT;
        of_this_opening.then(|| newest.saturating_sub(sequence))
    }

    /// Returns the estimated bytes of current records.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.tiers().map(Tier::live_bytes).sum()
    }

    /// Returns the tombstone bytes included in the live bytes.
    pub(crate) fn tombstone_bytes(&self) -> u64 {
        self.tiers().map(Tier::tombstone_bytes).sum()
    }

    /// Adds bytes of records that became current, or subtracts (if negative) bytes that ceased to be.
    #[inline]
    pub(crate) fn add_live(&self, location: Location, bytes: i64) {
        let tier = self.tier(location.tier);
        tier.add_live(location.slot, bytes);
        if bytes < 0 {
            self.note_dead(tier, bytes.unsigned_abs());
        }
    }

    /// Counts bytes of a tier that ceased to be current. Wakes the reclaimer whenever another segment's worth of garbage has
    /// accumulated.
    #[inline]
    pub(crate) fn note_dead(&self, tier: &Tier, bytes: u64) {
        let before = self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        if before / segment_bytes != (before + bytes) / segment_bytes {
            self.reclaim.notify_one();
        }
    }

    /// Returns the error of a write without room for it. `used_bytes` is compared with the limit.
    pub(crate) fn full_error(&self, used_bytes: u64) -> Error {
        let (live_bytes, limit_bytes) = (used_bytes, self.user_limit_bytes());
        // A nearly full file system lowers the limit before it is full; raising the configured limit would not help.
        let output = self.output_tier();
        let is_limited = |tier: &&Tier| {
            tier.is_short()
                || tier.grows() && tier.name() == output.name() && tier.slots_in_reach() < tier.slots_usable()
        };
        match self.tiers().find(is_limited) {
            Some(tier) => {
                let path = tier.device_name().to_owned();
                Error::FileSystemFull { path, live_bytes, limit_bytes }
            }
            None => {
                let option = match self.output_tier().name() {
                    TierName::Fast => OptionName::FastLimit,
                    TierName::Capacity => OptionName::CapacityLimit,
                };
                Error::Full { live_bytes, limit_bytes, option }
            }
        }
    }

    /// Clears the flags `full` and `stuck`, because there is room again.
    pub(crate) fn is_no_longer_full(&self) {
        self.full.store(false, Ordering::Release);
        self.stuck.store(false, Ordering::Release);
    }

    /// Wakes writers that wait for room, because a slot was freed.
    pub(crate) fn announce_free_slot(&self) {
        self.slot_freed.announce();
    }

    /// Wakes every task that waits for work here, so that it sees that the store ends.
    pub(crate) fn wake_tasks(&self) {
        self.reclaim.notify_one();
        self.scrub.notify_one();
        self.watermarks.notify_one();
        self.reported.notify_one();
        self.expiries.notify_one();
        self.superblocks.clear_ahead.notify_one();
        self.tiers().for_each(Tier::wake_tasks);
        self.announce_free_slot();
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        self.output_tier().recorder()
    }

    /// Records the duration of an operation that began at `began` and succeeded.
    pub(crate) fn took(&self, what: Timed, began: Duration) {
        self.recorder().record(what, self.runtime.now().saturating_sub(began));
    }

    /// Reads the entries in the summary of a sealed segment.
    pub(crate) async fn read_entries(&self, tier: &Tier, slot: u32) -> Result<Option<EntryList>> {
        let segment_bytes = tier.shape().segment_bytes;
        let at = segment_bytes - FOOTER_BYTES as u32;
        let (buffer, from) = tier.read_background(slot, at, FOOTER_BYTES as u64).await?;
        let segment = tier.slot(slot).segment();
        let footer = Footer::parse(&buffer[from..], &self.secret, segment_bytes);
        let Some(footer) = footer.filter(|f| f.segment == segment) else { return Ok(None) };
        let (buffer, from) = tier.read_background(slot, footer.start, u64::from(footer.entry_bytes)).await?;
        Ok(footer.entries(&buffer[from..], &self.secret))
    }

    /// Returns the entries of a sealed segment from its summary or, if that is damaged, from its frames. Returns `None` if some
    /// of its records cannot be identified. The scan takes memory for all frames of the segment.
    ///
    /// # Errors
    /// `Io` if the device cannot read them.
    pub(crate) async fn read_entries_or_scan(&self, tier: &Tier, slot: u32) -> Result<Option<EntryList>> {
        let read = self.read_entries(tier, slot).await?;
        let (segment, tail) = (tier.slot(slot).segment(), tier.slot(slot).used_bytes());
        if read.is_some() || tail == 0 {
            return Ok(read);
        }
        let (buffer, from) = tier.read_background(slot, 0, tail.into()).await?;
        let frames = &buffer[from..from + tail as usize];
        let scan = scan_segment_up_to(frames, &self.secret, tier.shape(), segment, true, Some(tail));
        let is_whole = scan.lost.is_empty() && !scan.torn && scan.tail == tail;
        Ok(is_whole.then(|| scan.entries.into_iter().collect()))
    }

    /// Returns the slot that an error is about, if it is a read error of one.
    pub(crate) fn place_of(&self, error: &Error) -> Option<(TierName, u32)> {
        self.tiers().find_map(|tier| {
            let slot = match error {
                Error::Corrupt { segment, .. } => {
                    tier.slots().in_use().find(|(_, slot)| slot.segment() == *segment).map(|(at, _)| at)
                }
                Error::Io(DeviceError::Io { op: OperationKind::Read, offset, path, .. }) => {
                    match tier.members() {
                        Some(members) => members.slot_on(path, *offset),
                        None => (**path == *tier.device_name()).then(|| tier.slot_at(*offset)).flatten(),
                    }
                }
                _ => None,
            };
            Some((tier.name(), slot?))
        })
    }
}

impl Follower for Space {
    fn failed(&self, _: &Error) {
        self.wake_tasks();
    }
}
