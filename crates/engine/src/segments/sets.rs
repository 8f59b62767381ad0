//! Ordered sets of a tier's slots, so that no decision visits all slots of a large drive.
//!
//! A slot is in the sets that follow from its state. Every change of a value that a set is ordered by removes the slot
//! first and files it again afterwards, with the sets locked. Live bytes change with every overwrite, so they only select
//! one of 65 buckets, and a slot is moved when they cross a boundary.

use std::collections::{BTreeMap, BTreeSet};

use esker_log::SegmentClass;
use esker_seeded_bugs::{Bug, planted};

use crate::segments::contents::Expiry;
use crate::segments::slot::SlotState;
use crate::segments::table::{SET_ENTRY_BYTES, SlotRef};

/// Share of a segment below which collecting it does not pay.
pub(crate) const LEAST_YIELD: f64 = 0.05;
/// Buckets of live bytes: one for segments without any, and one per 64th of a segment.
const PARTS: u32 = 64;
const BUCKETS: usize = PARTS as usize + 1;

/// Slots in the order of a number.
type Order = BTreeSet<(u64, u32)>;

/// Bucket boundaries of live bytes.
#[derive(Clone, Copy)]
pub(super) struct Buckets {
    /// log2 of the bytes of one bucket.
    shift: u32,
}

impl Buckets {
    pub(super) fn new(segment_bytes: u32) -> Buckets {
        Buckets { shift: (segment_bytes / PARTS).max(1).ilog2() }
    }

    #[inline]
    pub(super) fn of(self, live_bytes: i64) -> usize {
        match u64::try_from(live_bytes) {
            Err(_) | Ok(0) => 0,
            Ok(live) => (live >> self.shift).min(u64::from(PARTS) - 1) as usize + 1,
        }
    }

    /// Returns the least live bytes of a bucket.
    fn least(self, bucket: usize) -> u64 {
        match bucket {
            0 => 0,
            _ => ((bucket as u64 - 1) << self.shift).max(1),
        }
    }
}

/// The sets of one tier.
pub(super) struct Sets {
    buckets: Buckets,
    /// Slots that hold a segment, by [`opened_at`](crate::segments::slot::Slot::opened_at).
    pub(super) opened: Order,
    /// Slots that hold a segment that is not sealed.
    pub(super) unsealed: BTreeSet<u32>,
    /// Sealed segments by live bytes, each bucket in the order of sealing.
    by_live: [Order; BUCKETS],
    /// Segments excluded from collection, with their live bytes at that time.
    parked: BTreeMap<u32, i64>,
    /// Sealed segments by expiry, per [`Expiry`].
    pub(super) expiring: [Order; 2],
    /// Sealed segments with tombstones, by the upper bound of their sequence numbers.
    pub(super) tombstones: Order,
    /// Sum, modulo 2^64, of the numbers of the sealed segments. It changes whenever one of them does.
    pub(super) sealed_sum: u64,
    /// Orders that only eviction needs; built at the first use.
    pub(super) eviction: Option<EvictionOrders>,
}

/// Orders of sealed segments in a store that evicts.
#[derive(Default)]
pub(super) struct EvictionOrders {
    /// By the position of the CLOCK hand: number of the newest segment when kept, number, slot.
    pub(super) clock: BTreeSet<(u64, u64, u32)>,
    /// By number, per class.
    pub(super) classes: [Order; SegmentClass::ALL.len()],
}

impl EvictionOrders {
    pub(super) fn add(&mut self, slot: u32, at: SlotRef<'_>) {
        self.clock.insert((at.kept_at(), at.segment(), slot));
        self.classes[SegmentClass::of(at.stream()) as usize].insert((at.segment(), slot));
    }

    fn remove(&mut self, slot: u32, at: SlotRef<'_>) {
        self.clock.remove(&(at.kept_at(), at.segment(), slot));
        self.classes[SegmentClass::of(at.stream()) as usize].remove(&(at.segment(), slot));
    }
}

impl Sets {
    pub(super) fn new(buckets: Buckets) -> Sets {
        Sets {
            buckets,
            opened: Order::new(),
            unsealed: BTreeSet::new(),
            by_live: std::array::from_fn(|_| Order::new()),
            parked: BTreeMap::new(),
            expiring: Default::default(),
            tombstones: Order::new(),
            sealed_sum: 0,
            eviction: None,
        }
    }

    /// Removes a slot from all sets, before a value that orders them changes.
    pub(super) fn remove(&mut self, slot: u32, at: SlotRef<'_>) {
        if at.segment() != 0 {
            self.opened.remove(&(at.opened_at(), slot));
        }
        match at.state() {
            SlotState::Free => {}
            SlotState::Open | SlotState::Victim | SlotState::Damaged => {
                self.unsealed.remove(&slot);
            }
            SlotState::Sealed => {
                self.take_from_bucket(slot, at);
                self.sealed_sum = self.sealed_sum.wrapping_sub(at.segment());
                for expiry in Expiry::ALL {
                    if let Some(at_ms) = at.expires_ms(expiry) {
                        self.expiring[expiry as usize].remove(&(at_ms, slot));
                    }
                }
                self.tombstones.remove(&(at.tombstones_through(), slot));
                self.eviction.iter_mut().for_each(|orders| orders.remove(slot, at));
            }
        }
    }

    /// Files a slot after a change.
    pub(super) fn add(&mut self, slot: u32, at: SlotRef<'_>) {
        if at.segment() != 0 && !planted(Bug::SlotNotFiled) {
            self.opened.insert((at.opened_at(), slot));
        }
        match at.state() {
            SlotState::Free => {
                self.parked.remove(&slot);
            }
            SlotState::Open | SlotState::Victim | SlotState::Damaged => {
                self.unsealed.insert(slot);
            }
            SlotState::Sealed => {
                self.put_into_bucket(slot, at);
                self.sealed_sum = self.sealed_sum.wrapping_add(at.segment());
                for expiry in Expiry::ALL {
                    if let Some(at_ms) = at.expires_ms(expiry) {
                        self.expiring[expiry as usize].insert((at_ms, slot));
                    }
                }
                if at.tombstone_bytes() > 0 {
                    self.tombstones.insert((at.tombstones_through(), slot));
                }
                self.eviction.iter_mut().for_each(|orders| orders.add(slot, at));
            }
        }
    }

    fn take_from_bucket(&mut self, slot: u32, at: SlotRef<'_>) {
        if let Some(bucket) = at.label().bucket() {
            self.by_live[bucket].remove(&(at.sealed_at(), slot));
            at.relabel(|label| label.with_bucket(None));
        }
    }

    fn put_into_bucket(&mut self, slot: u32, at: SlotRef<'_>) {
        let live_bytes = at.live_bytes();
        if let Some(&parked_bytes) = self.parked.get(&slot) {
            let noticeable = (f64::from(at.used_bytes()) * LEAST_YIELD) as i64;
            if live_bytes.max(0) + noticeable.max(1) > parked_bytes {
                return;
            }
            self.parked.remove(&slot);
        }
        let bucket = self.buckets.of(live_bytes);
        self.by_live[bucket].insert((at.sealed_at(), slot));
        at.relabel(|label| label.with_bucket(Some(bucket)));
    }

    /// Moves a sealed slot to the bucket of its live bytes.
    pub(super) fn move_to_bucket(&mut self, slot: u32, at: SlotRef<'_>) {
        if at.state() == SlotState::Sealed && !planted(Bug::LiveBucketNotMoved) {
            self.take_from_bucket(slot, at);
            self.put_into_bucket(slot, at);
        }
    }

    /// Excludes a segment from collection until noticeably more of it is dead.
    pub(super) fn park(&mut self, slot: u32, at: SlotRef<'_>) {
        self.take_from_bucket(slot, at);
        self.parked.insert(slot, at.live_bytes().max(0));
    }

    /// Forgets that a slot's last segment was excluded from collection.
    pub(super) fn unpark(&mut self, slot: u32) {
        self.parked.remove(&slot);
    }

    /// Iterates over sealed segments of at most about `most_bytes` live bytes, except those excluded from collection: one
    /// list per bucket, in the order of sealing.
    pub(super) fn by_live(&self, most_bytes: u64) -> impl Iterator<Item = &Order> {
        let buckets = self.by_live.iter().enumerate();
        buckets
            .take_while(move |(bucket, _)| self.buckets.least(*bucket) <= most_bytes)
            .map(|(_, order)| order)
    }

    /// Returns the segments that are excluded from collection.
    pub(super) fn parked(&self) -> impl Iterator<Item = u32> {
        self.parked.keys().copied()
    }

    /// Returns the approximate memory that they take, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let expiring: usize = self.expiring.iter().map(Order::len).sum();
        let by_live: usize = self.by_live.iter().map(Order::len).sum();
        let eviction = self.eviction.as_ref().map_or(0, |orders| 2 * orders.clock.len());
        (self.opened.len() + self.unsealed.len() + by_live + expiring + self.tombstones.len() + eviction)
            as u64
            * SET_ENTRY_BYTES
    }
}
