//! The current record of each key: the index, live bytes, and unverified overwrites.
//!
//! `publish` makes a record current, `lookup` finds it. If a put displaced a record without comparing the keys,
//! `verify` compares them later.

pub(crate) mod appended;
mod batch_ticks;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod expansions;
mod expiry;
pub(crate) mod feed;
pub(crate) mod lookup;
pub(crate) mod place;
mod prefetch;
mod publish;
pub(crate) mod recency;
pub(crate) mod record_heads;
pub(crate) mod records;
pub(crate) mod routing;
pub(crate) mod scans;
pub(crate) mod unidentified;
pub(crate) mod unvisited;
pub(crate) mod verify;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_gc::Placement;
use esker_index::{Indexes, KeyHash, Keyspace, Pointer};
use esker_log::{Cleared, Databases, Entry, Kind, Location, Packing, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::base::replicated::Replicator;
use crate::catalog::batch_ticks::BatchTicks;
use crate::catalog::cache::ReadCache;
use crate::catalog::clock::Clock;
use crate::catalog::expansions::Expansions;
use crate::catalog::feed::Feed;
use crate::catalog::recency::Recency;
use crate::catalog::scans::{SCAN_READ_BYTES, Scans};
use crate::segments::space::Space;

/// Upper bound of the index memory per key, in bytes, when no table is growing.
pub(crate) const INDEX_BYTES_A_KEY: u64 = 10;
/// Index memory per unverified overwrite, in bytes.
const UNVERIFIED_OVERWRITE_BYTES: u64 = 21;
/// The index may exceed its memory by that memory divided by this, for gaps in tables that removed keys left.
const GAPS_DIVISOR: u64 = 8;

/// The memory for the keys of damaged segments is that of index and read cache, divided by this.
const DAMAGED_MEMORY_DIVISOR: u64 = 8;

/// The memory of one scan for places and keys is that of index and read cache, divided by this.
const SCAN_MEMORY_DIVISOR: u64 = 16;
const SCAN_MEMORY_MAX: u64 = 64 << 20;
/// All scans that are begun because they are expected to be fast share the same memory, divided by this.
const SCANS_MEMORY_DIVISOR: u64 = 4;

/// The parts of a catalog, as the opening made or found them.
pub(crate) struct CatalogParts {
    pub(crate) space: Arc<Space>,
    pub(crate) index: Arc<Indexes>,
    pub(crate) packing: Packing,
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) expansions: Arc<Expansions>,
    pub(crate) recency: Recency,
    /// Memory for index and read cache together, in bytes.
    pub(crate) memory_bytes: u64,
    /// Keyspaces that were cleared, each with the last sequence number that its clear covers.
    pub(crate) cleared: Cleared,
    pub(crate) databases: Databases,
}

/// The current records of all keys of a store.
pub(crate) struct Catalog {
    pub(crate) space: Arc<Space>,
    pub(crate) index: Arc<Indexes>,
    pub(crate) packing: Packing,
    pub(crate) cache: ReadCache,
    pub(crate) placement: Placement,
    pub(crate) clock: Clock,
    pub(crate) expansions: Arc<Expansions>,
    pub(crate) recency: Recency,
    pub(crate) feed: Arc<Feed>,
    pub(crate) scans: Scans,
    memory_bytes: u64,
    /// True if the index alone exceeds its memory: puts are refused.
    out_of_memory: AtomicBool,
    /// True once the log says that the system refused memory for the index.
    refusal_logged: AtomicBool,
    cleared: Mutex<Cleared>,
    /// The keyspace of each database: [`Databases::bits`].
    databases: AtomicU64,
    batches: BatchTicks,
    /// The cluster, if the store is replicated.
    replicator: OnceLock<Arc<dyn Replicator>>,
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
            feed: Arc::default(),
            scans: Scans::default(),
            memory_bytes: parts.memory_bytes,
            out_of_memory: AtomicBool::new(false),
            refusal_logged: AtomicBool::new(false),
            cleared: Mutex::new(parts.cleared),
            databases: AtomicU64::new(parts.databases.bits()),
            batches: BatchTicks::default(),
            replicator: OnceLock::new(),
        })
    }

    pub(crate) fn hash(&self, keyspace: Keyspace, key: &[u8]) -> KeyHash {
        self.space.secret.key_hash(keyspace, key)
    }

    /// Returns the current keyspace of a database.
    #[inline]
    pub(crate) fn keyspace(&self, database: u8) -> Keyspace {
        Databases::keyspace(self.databases.load(Ordering::Acquire), database)
    }

    /// Returns the database that currently has a keyspace.
    pub(crate) fn database(&self, keyspace: Keyspace) -> u8 {
        Databases::database_by(self.databases.load(Ordering::Acquire), keyspace)
    }

    /// Returns the digest of a key in the current keyspace of a database.
    pub(crate) fn hash_in(&self, database: u8, key: &[u8]) -> KeyHash {
        self.hash(self.keyspace(database), key)
    }

    /// Exchanges the keyspaces of two databases. No write may be in progress.
    pub(crate) fn swap_databases(&self, now: &Databases, first: Keyspace, second: Keyspace) {
        let swap = || self.databases.store(now.bits(), Ordering::Release);
        let exists = |hash: &KeyHash| self.index.get(hash).is_some() || self.index.may_be_hidden(hash);
        self.feed.swap([first, second], swap, exists);
    }

    /// Returns the index pointer of a location.
    pub(crate) fn pointer(&self, location: Location) -> Pointer {
        appended::pointer(&self.packing, location)
    }

    /// Returns true if the index leads to this record of a sealed segment.
    pub(crate) fn is_current(&self, tier: TierName, slot: u32, entry: &Entry) -> bool {
        let location = self.space.location(tier, slot, entry);
        entry.kind == Kind::Put && self.index.is_current(&entry.key_hash, self.pointer(location))
    }

    /// Returns true if the index leads to this record of a sealed segment, or an unverified overwrite refers to it. A
    /// record that is unknown stays unknown.
    pub(crate) fn is_known(&self, tier: TierName, slot: u32, entry: &Entry) -> bool {
        let location = self.space.location(tier, slot, entry);
        entry.kind == Kind::Put && self.index.is_known(&entry.key_hash, self.pointer(location))
    }

    /// Returns true if a clear deleted the record.
    pub(crate) fn is_cleared(&self, entry: &Entry) -> bool {
        self.cleared.lock().covers(&entry.key_hash, entry.sequence)
    }

    /// Removes all keys of some keyspaces. `through`: the last sequence number that the clear covers. No write may be
    /// in progress.
    pub(crate) fn clear(&self, keyspaces: &[Keyspace], through: u64) {
        let is_left = |keyspace: &Keyspace| !keyspaces.contains(keyspace) && self.index.len_of(*keyspace) > 0;
        let is_all = !Keyspace::all().any(|keyspace| is_left(&keyspace));
        self.clear_keyspaces(keyspaces, through, is_all);
    }

    /// As [`clear`](Self::clear), for one keyspace. No write to it may be in progress; others may be written.
    pub(crate) fn clear_one(&self, keyspace: Keyspace, through: u64) {
        self.clear_keyspaces(&[keyspace], through, false);
    }

    /// `is_all`: the other keyspaces have no keys.
    fn clear_keyspaces(&self, keyspaces: &[Keyspace], through: u64, is_all: bool) {
        let turn = self.feed.take_turn();
        {
            let mut cleared = self.cleared.lock();
            keyspaces.iter().for_each(|keyspace| cleared.clear(*keyspace, through));
        }
        if is_all {
            self.index.clear();
            self.space.tiers().for_each(|tier| tier.forget_live());
            self.space.forget_listed_tombstones();
        }
        for keyspace in keyspaces {
            // Subtracts the records of this keyspace. A wrong estimate stays with its segment until that is collected.
            self.index.clear_one(*keyspace, |pointer| {
                let bytes = self.length_in_memory(pointer).unwrap_or_else(|| self.estimate(pointer));
                self.space.add_live(self.packing.unpack(pointer.get()), -bytes);
            });
        }
        self.feed.notify(&turn, |observer| match keyspaces.len() {
            Keyspace::COUNT if planted(Bug::ClearNotReported) => {}
            Keyspace::COUNT => observer.cleared(None),
            _ => keyspaces.iter().for_each(|keyspace| observer.cleared(Some(keyspace.number()))),
        });
    }

    /// Returns true if a put is expected to be overwritten soon, judging by how long the record that it displaces
    /// lived. Costs an index lookup, so it is only made if placement uses the result.
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

    /// Divides memory between the index, which grows with the keys, and the read cache, which gets the rest. Called
    /// periodically by writers.
    pub(crate) fn balance_memory(&self) {
        let (index_bytes, memory_bytes) = (self.index.memory_bytes(), self.memory_for_index());
        // A scan is no reason to refuse puts, so it takes memory from the cache alone.
        let for_cache = memory_bytes.saturating_sub(index_bytes + self.scans.memory_bytes());
        self.cache.set_capacity(for_cache);
        // After removals, tables keep their size while they are half full. New keys fill the gaps and take no more
        // memory, so gaps are no reason to refuse puts.
        let keys_bytes = self.index.len() * INDEX_BYTES_A_KEY
            + self.index.unverified_len() as u64 * UNVERIFIED_OVERWRITE_BYTES;
        let has_gaps =
            keys_bytes <= memory_bytes && index_bytes <= memory_bytes + memory_bytes / GAPS_DIVISOR;
        self.out_of_memory.store(index_bytes > memory_bytes && !has_gaps, Ordering::Release);
        let refused = self.index.refused_slabs();
        if refused > 0 && !self.refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                refused,
                "the system refused memory for larger tables of the index, so new keys take 52 bytes of memory each; \
                 raise vm.overcommit_ratio or ulimit -v"
            );
        }
    }

    /// Returns the memory for index and read cache, in bytes.
    pub(crate) fn memory_for_index(&self) -> u64 {
        let slots: u64 = self.space.tiers().map(|tier| tier.slots().memory_bytes()).sum();
        self.memory_bytes.saturating_sub(self.recency.bytes() + self.space.damaged.memory_bytes() + slots)
    }

    /// Returns the memory limit of one scan for places and keys, in bytes.
    pub(crate) fn memory_for_scan(&self) -> u64 {
        (self.memory_bytes / SCAN_MEMORY_DIVISOR).min(SCAN_MEMORY_MAX)
    }

    /// Returns true if another scan in log order fits in the memory for scans: a quarter of that for index and cache.
    pub(crate) fn has_memory_for_scan(&self) -> bool {
        let scans = self.scans.count() as u64 + 1;
        scans * (self.memory_for_scan() + SCAN_READ_BYTES) <= self.memory_bytes / SCANS_MEMORY_DIVISOR
    }

    /// Returns the memory limit for the key lists of damaged segments, in bytes.
    pub(crate) fn memory_for_damaged(&self) -> u64 {
        self.memory_bytes / DAMAGED_MEMORY_DIVISOR
    }

    /// If the index exceeds its memory, returns its size and the limit, in bytes.
    pub(crate) fn lacks_memory(&self) -> Option<(u64, u64)> {
        if self.out_of_memory.load(Ordering::Acquire) {
            self.balance_memory();
        }
        let lacks = self.out_of_memory.load(Ordering::Acquire);
        lacks.then(|| (self.index.memory_bytes(), self.memory_for_index()))
    }
}
