//! Which record of each key is current: the index, the bytes that count as live, and what is to be verified about them.
//!
//! A record becomes current in `publish`. It is found in `lookup`. Where a record was displaced without looking whose it
//! was, `verify` finds out.

pub(crate) mod appended;
mod batch_ticks;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod expansions;
mod expiry;
pub(crate) mod lookup;
pub(crate) mod observers;
pub(crate) mod place;
mod prefetch;
mod publish;
pub(crate) mod recency;
pub(crate) mod record_heads;
pub(crate) mod records;
pub(crate) mod verify;
pub(crate) mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_gc::Placement;
use esker_index::{Indexes, KeyHash, Keyspace, Pointer};
use esker_log::{Cleared, Databases, Entry, Kind, Location, Packing, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::catalog::batch_ticks::BatchTicks;
use crate::catalog::cache::ReadCache;
use crate::catalog::clock::Clock;
use crate::catalog::expansions::Expansions;
use crate::catalog::observers::Observers;
use crate::catalog::recency::Recency;
use crate::catalog::watches::Watches;
use crate::segments::space::Space;

/// What the index takes for a key at rest, at most.
pub(crate) const INDEX_BYTES_A_KEY: u64 = 10;
/// Bytes of the index for each unverified overwrite.
const UNVERIFIED_OVERWRITE_BYTES: u64 = 21;
/// The memory of the index divided by this is how far its tables may exceed it for gaps of keys that were removed.
const GAPS_DIVISOR: u64 = 8;

/// The memory of index and read cache, divided by this, bounds the memory for the keys of damaged segments.
const DAMAGED_MEMORY_DIVISOR: u64 = 8;

/// What an opening decided or found.
pub(crate) struct CatalogParts {
    pub(crate) space: Arc<Space>,
    pub(crate) index: Arc<Indexes>,
    pub(crate) packing: Packing,
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) expansions: Arc<Expansions>,
    pub(crate) recency: Recency,
    /// Memory for index and read cache together.
    pub(crate) memory_bytes: u64,
    /// Which records were cleared.
    pub(crate) cleared: Cleared,
    pub(crate) databases: Databases,
}

/// The keys of a store.
pub(crate) struct Catalog {
    pub(crate) space: Arc<Space>,
    pub(crate) index: Arc<Indexes>,
    pub(crate) packing: Packing,
    pub(crate) cache: ReadCache,
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) expansions: Arc<Expansions>,
    pub(crate) recency: Recency,
    pub(crate) watches: Arc<Watches>,
    pub(crate) observers: Arc<Observers>,
    memory_bytes: u64,
    /// The index alone takes more memory than there is for it: puts are refused.
    out_of_memory: AtomicBool,
    cleared: Mutex<Cleared>,
    /// Which keyspace each database has: [`Databases::bits`].
    databases: AtomicU64,
    batches: BatchTicks,
}

impl Catalog {
    pub(crate) fn new(parts: CatalogParts) -> Arc<Catalog> {
        Arc::new(Catalog {
            space: parts.space,
            index: parts.index,
            packing: parts.packing,
            cache: ReadCache::new(parts.memory_bytes),
            placement: parts.placement,
            clock: parts.clock,
            expansions: parts.expansions,
            recency: parts.recency,
            watches: Arc::default(),
            observers: Arc::default(),
            memory_bytes: parts.memory_bytes,
            out_of_memory: AtomicBool::new(false),
            cleared: Mutex::new(parts.cleared),
            databases: AtomicU64::new(parts.databases.bits()),
            batches: BatchTicks::default(),
        })
    }

    pub(crate) fn hash(&self, keyspace: Keyspace, key: &[u8]) -> KeyHash {
        self.space.secret.key_hash(keyspace, key)
    }

    /// The keyspace that a database has now.
    #[inline]
    pub(crate) fn keyspace(&self, database: u8) -> Keyspace {
        Databases::keyspace(self.databases.load(Ordering::Acquire), database)
    }

    /// The database that has a keyspace now.
    pub(crate) fn database(&self, keyspace: Keyspace) -> u8 {
        Databases::database_by(self.databases.load(Ordering::Acquire), keyspace)
    }

    /// The digest of a key of a database, as it is now.
    pub(crate) fn hash_in(&self, database: u8, key: &[u8]) -> KeyHash {
        self.hash(self.keyspace(database), key)
    }

    /// Two databases have changed their keyspaces. Nobody writes meanwhile.
    pub(crate) fn swap_databases(&self, now: &Databases, first: Keyspace, second: Keyspace) {
        let turn = self.observers.take_turn();
        let swap = || self.databases.store(now.bits(), Ordering::Release);
        self.watches.swapped([first, second], swap, |hash| {
            self.index.get(hash).is_some() || self.index.may_be_hidden(hash)
        });
        if !planted(Bug::SwapNotReported) {
            turn.tell_swapped([first.number(), second.number()]);
        }
    }

    /// The index pointer of a location.
    pub(crate) fn pointer(&self, location: Location) -> Pointer {
        appended::pointer(&self.packing, location)
    }

    /// Whether a record of a sealed segment is what the index leads to.
    pub(crate) fn is_current(&self, tier: TierName, slot: u32, entry: &Entry) -> bool {
        let location = self.space.location(tier, slot, entry);
        entry.kind == Kind::Put && self.index.is_current(&entry.key_hash, self.pointer(location))
    }

    /// Whether the index leads to a record of a sealed segment, or an unverified overwrite remembers it. It stays unknown once it is.
    pub(crate) fn is_known(&self, tier: TierName, slot: u32, entry: &Entry) -> bool {
        let location = self.space.location(tier, slot, entry);
        entry.kind == Kind::Put && self.index.is_known(&entry.key_hash, self.pointer(location))
    }

    /// Whether a record was deleted by a clear.
    pub(crate) fn is_cleared(&self, entry: &Entry) -> bool {
        self.cleared.lock().covers(&entry.key_hash, entry.sequence)
    }

    /// Forgets every key of some keyspaces: what was written to them up to a sequence number was cleared. Nobody writes
    /// meanwhile.
    pub(crate) fn clear(&self, keyspaces: &[Keyspace], through: u64) {
        let turn = self.observers.take_turn();
        {
            let mut cleared = self.cleared.lock();
            keyspaces.iter().for_each(|keyspace| cleared.clear(*keyspace, through));
        }
        let is_left = |keyspace: &Keyspace| !keyspaces.contains(keyspace) && self.index.len_of(*keyspace) > 0;
        if !Keyspace::all().any(|keyspace| is_left(&keyspace)) {
            self.index.clear();
            self.space.tiers().for_each(|tier| tier.forget_live());
            self.space.forget_listed_tombstones();
        }
        for keyspace in keyspaces {
            // Of what is left. What is estimated wrongly about a segment is so until it is collected.
            self.index.clear_one(*keyspace, |pointer| {
                let bytes = self.length_in_memory(pointer).unwrap_or_else(|| self.estimate(pointer));
                self.space.add_live(self.packing.unpack(pointer.get()), -bytes);
            });
        }
        match keyspaces.len() {
            Keyspace::COUNT if planted(Bug::ClearNotReported) => {}
            Keyspace::COUNT => turn.tell_cleared(None),
            _ => keyspaces.iter().for_each(|keyspace| turn.tell_cleared(Some(keyspace.number()))),
        }
    }

    /// Whether a put is expected to live briefly, as far as the life of what it displaces tells. Costs a look-up, and is
    /// asked for only where placement wants to know.
    pub(crate) fn expects_short_life(&self, hash: &KeyHash, sequence: u64) -> bool {
        let samples = self.placement.samples(sequence);
        if !samples && !self.placement.parts() {
            return false;
        }
        let lived = self.index.get(hash).and_then(|old| {
            let slot = self.space.slot(self.packing.unpack(old.get()));
            slot.lived(sequence).filter(|_| slot.stream().is_fresh())
        });
        let short_lived = self.placement.is_short_lived(lived);
        if samples {
            self.placement.note_put(short_lived);
        }
        short_lived
    }

    /// Divides the memory that is left between the index, which grows with the keys, and the read cache. Called now and
    /// then as the store is written to.
    pub(crate) fn balance_memory(&self) {
        let (index_bytes, memory_bytes) = (self.index.memory_bytes(), self.memory_for_index());
        self.cache.set_capacity(memory_bytes.saturating_sub(index_bytes));
        // Tables from which keys were removed keep their size as long as they are half full: keys that go where others were
        // take no memory.
        let keys_bytes = self.index.len() * INDEX_BYTES_A_KEY
            + self.index.unverified_len() as u64 * UNVERIFIED_OVERWRITE_BYTES;
        let has_gaps =
            keys_bytes <= memory_bytes && index_bytes <= memory_bytes + memory_bytes / GAPS_DIVISOR;
        self.out_of_memory.store(index_bytes > memory_bytes && !has_gaps, Ordering::Release);
    }

    /// Memory for the index and the read cache.
    pub(crate) fn memory_for_index(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.recency.bytes() + self.space.damaged.memory_bytes())
    }

    /// Memory that the lists of keys of damaged segments may take.
    pub(crate) fn memory_for_damaged(&self) -> u64 {
        self.memory_bytes / DAMAGED_MEMORY_DIVISOR
    }

    /// Whether the index takes more memory than there is for it; then, how much it takes, and of what.
    pub(crate) fn lacks_memory(&self) -> Option<(u64, u64)> {
        if self.out_of_memory.load(Ordering::Acquire) {
            self.balance_memory();
        }
        let lacks = self.out_of_memory.load(Ordering::Acquire);
        lacks.then(|| (self.index.memory_bytes(), self.memory_for_index()))
    }
}
