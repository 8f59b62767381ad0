//! The slot table of a tier, in chunks that are allocated when the first slot of the chunk is taken. Free slots of a large
//! drive cost a pointer per chunk.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_log::STRIPES_MAX;

use crate::segments::contents::{Contents, Expiry, NEVER_MS};
use crate::segments::groups::Group;
use crate::segments::slot::Slot;

/// Slots per chunk.
const CHUNK_SLOTS: usize = 256;

/// A value that few slots have, for all slots of a chunk; allocated when the first of them gets one.
struct Side<T>(OnceLock<Box<[T]>>);

impl<T: Default> Side<T> {
    fn empty() -> Side<T> {
        Side(OnceLock::new())
    }

    fn get(&self, at: usize) -> Option<&T> {
        self.0.get().map(|all| &all[at])
    }

    /// Counts the memory in `bytes` if it is allocated now.
    fn get_or_make(&self, at: usize, bytes: &AtomicU64) -> &T {
        let make = || {
            bytes.fetch_add((CHUNK_SLOTS * size_of::<T>()) as u64, Ordering::Relaxed);
            (0..CHUNK_SLOTS).map(|_| T::default()).collect()
        };
        &self.0.get_or_init(make)[at]
    }
}

/// Expiry times in milliseconds since the Unix epoch, by [`Expiry`].
struct ExpiresMs([AtomicU64; 2]);

impl Default for ExpiresMs {
    fn default() -> ExpiresMs {
        ExpiresMs([const { AtomicU64::new(NEVER_MS) }; 2])
    }
}

/// Tombstones of a segment.
struct Tombstones {
    /// Bytes of them that are included in the live bytes.
    bytes: AtomicI64,
    /// Upper bound of their sequence numbers.
    through: AtomicU64,
}

impl Default for Tombstones {
    fn default() -> Tombstones {
        Tombstones { bytes: AtomicI64::new(0), through: AtomicU64::new(u64::MAX) }
    }
}

/// The last pass of the CLOCK hand, in a store that evicts.
#[derive(Default)]
struct Passed {
    /// Number of the newest segment at that time.
    at: AtomicU64,
    /// Time of the pass, or of taking the slot, in milliseconds by the runtime's clock.
    ms: AtomicU64,
}

struct Chunk {
    slots: [Slot; CHUNK_SLOTS],
    expires: Side<ExpiresMs>,
    tombstones: Side<Tombstones>,
    passed: Side<Passed>,
    groups: Side<AtomicU64>,
}

/// Memory of a slot in use, in bytes, with its entries in the sets of every store.
pub(crate) const SLOT_BYTES: u64 = (size_of::<Slot>() as u64) + 2 * SET_ENTRY_BYTES;
/// Approximate memory of one entry of an ordered set in bytes, with the free space of its tree nodes.
pub(super) const SET_ENTRY_BYTES: u64 = 26;

/// Returns the memory of the table of `slots` slots, of which the first `used` hold segments, and of its sets, in bytes.
pub fn slots_memory_bytes(slots: u32, used: u32) -> u64 {
    let chunks = |slots: u32| u64::from(slots).div_ceil(CHUNK_SLOTS as u64);
    chunks(slots) * size_of::<OnceLock<Box<Chunk>>>() as u64
        + chunks(used) * size_of::<Chunk>() as u64
        + u64::from(used) * 2 * SET_ENTRY_BYTES
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            slots: std::array::from_fn(|_| Slot::default()),
            expires: Side::empty(),
            tombstones: Side::empty(),
            passed: Side::empty(),
            groups: Side::empty(),
        })
    }
}

type Chunks = Box<[OnceLock<Box<Chunk>>]>;

fn no_chunks(count: usize) -> Chunks {
    (0..count).map(|_| OnceLock::new()).collect()
}

/// Chunks of slots that were added to an open tier.
struct Added {
    /// Number of the first chunk.
    first: usize,
    chunks: Chunks,
}

/// Number of times that an open tier can be extended: the number of stripes that a superblock has room for.
const EXTENSIONS_MAX: usize = STRIPES_MAX;

/// The slots of a tier, by number.
pub(super) struct Table {
    chunks: Chunks,
    /// The chunks behind those, in ascending order.
    added: Box<[OnceLock<Added>]>,
    count: AtomicU32,
    /// Memory of the table.
    bytes: AtomicU64,
}

impl Table {
    pub(super) fn new(count: u32) -> Table {
        let chunks = no_chunks((count as usize).div_ceil(CHUNK_SLOTS));
        let added = (0..EXTENSIONS_MAX).map(|_| OnceLock::new()).collect();
        Table { bytes: AtomicU64::new(size_of_val(&*chunks) as u64), chunks, added, count: count.into() }
    }

    /// Adds slots, so that there are `count`. Called by one task at a time.
    ///
    /// # Panics
    /// If it is called more than `EXTENSIONS_MAX` times.
    pub(super) fn extend(&self, count: u32) {
        let first = self.all_chunks().map(|(first, chunks)| first + chunks.len()).max().unwrap_or(0);
        let chunks = no_chunks((count as usize).div_ceil(CHUNK_SLOTS).saturating_sub(first));
        if !chunks.is_empty() {
            self.bytes.fetch_add(size_of_val(&*chunks) as u64, Ordering::Relaxed);
            let added =
                self.added.iter().find(|added| added.get().is_none()).expect("there are few extensions");
            added.get_or_init(|| Added { first, chunks });
        }
        self.count.fetch_max(count, Ordering::Release);
    }

    /// Iterates over the arrays of chunks, each with the number of its first chunk.
    fn all_chunks(&self) -> impl Iterator<Item = (usize, &Chunks)> {
        let added = self.added.iter().map_while(OnceLock::get);
        std::iter::once((0, &self.chunks)).chain(added.map(|added| (added.first, &added.chunks)))
    }

    fn chunk(&self, chunk: usize) -> Option<&OnceLock<Box<Chunk>>> {
        self.chunks.get(chunk).or_else(|| self.added_chunk(chunk))
    }

    #[cold]
    fn added_chunk(&self, chunk: usize) -> Option<&OnceLock<Box<Chunk>>> {
        self.all_chunks().find_map(|(first, chunks)| chunks.get(chunk.checked_sub(first)?))
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns a slot. Allocates its chunk.
    ///
    /// # Panics
    /// If the tier has no such slot.
    #[inline]
    pub(super) fn slot(&self, slot: u32) -> SlotRef<'_> {
        let (chunk, at) = (slot as usize / CHUNK_SLOTS, slot as usize % CHUNK_SLOTS);
        let count = self.count.load(Ordering::Relaxed);
        let chunk =
            self.chunk(chunk).filter(|_| slot < count).unwrap_or_else(|| panic!("slot {slot} of {count}"));
        let make = || {
            self.bytes.fetch_add(size_of::<Chunk>() as u64, Ordering::Relaxed);
            Chunk::new()
        };
        SlotRef { chunk: chunk.get_or_init(make), at, bytes: &self.bytes }
    }

    /// Returns a slot; `None` if no slot of its chunk was ever taken.
    pub(super) fn peek(&self, slot: u32) -> Option<SlotRef<'_>> {
        let (chunk, at) = (slot as usize / CHUNK_SLOTS, slot as usize % CHUNK_SLOTS);
        self.chunk(chunk)?.get().map(|chunk| SlotRef { chunk, at, bytes: &self.bytes })
    }

    /// Iterates over the slots that hold a segment.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u32, SlotRef<'_>)> {
        let chunks = self.all_chunks().flat_map(|(first, chunks)| (first..).zip(chunks));
        let first_slot = |chunk: usize| (chunk * CHUNK_SLOTS) as u32;
        let chunks = chunks.filter_map(move |(number, chunk)| Some((first_slot(number), &**chunk.get()?)));
        chunks.flat_map(move |(first, chunk)| {
            let slot = move |at| (first + at as u32, SlotRef { chunk, at, bytes: &self.bytes });
            let slots = (0..CHUNK_SLOTS).map(slot);
            slots.filter(|(_, slot)| slot.segment() != 0)
        })
    }

    /// Returns the memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A slot, with its side values.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef<'a> {
    chunk: &'a Chunk,
    at: usize,
    bytes: &'a AtomicU64,
}

impl Deref for SlotRef<'_> {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        &self.chunk.slots[self.at]
    }
}

impl SlotRef<'_> {
    /// Drops the side values of the last segment. `taken_at`: the time, in a store that evicts.
    pub(super) fn forget_sides(&self, taken_at: Option<Duration>) {
        if let Some(ExpiresMs(all)) = self.chunk.expires.get(self.at) {
            all.iter().for_each(|at| at.store(NEVER_MS, Ordering::Relaxed));
        }
        if let Some(tombstones) = self.chunk.tombstones.get(self.at) {
            tombstones.through.store(u64::MAX, Ordering::Relaxed);
        }
        if taken_at.is_some() || self.chunk.passed.get(self.at).is_some() {
            self.pass(0, taken_at.unwrap_or_default());
        }
    }

    pub(crate) fn expires_ms(&self, expiry: Expiry) -> Option<u64> {
        let ExpiresMs(all) = self.chunk.expires.get(self.at)?;
        Some(all[expiry as usize].load(Ordering::Acquire)).filter(|&at| at != NEVER_MS)
    }

    pub(super) fn set_expires(&self, contents: &Contents) {
        if self.chunk.expires.get(self.at).is_none() && contents.expires_ms == [NEVER_MS; 2] {
            return;
        }
        let ExpiresMs(all) = self.chunk.expires.get_or_make(self.at, self.bytes);
        for (at, at_ms) in all.iter().zip(contents.expires_ms) {
            at.store(at_ms, Ordering::Release);
        }
    }

    /// Returns the tombstone bytes included in the live bytes.
    pub(crate) fn tombstone_bytes(&self) -> i64 {
        self.chunk.tombstones.get(self.at).map_or(0, |it| it.bytes.load(Ordering::Relaxed))
    }

    /// Adds tombstone bytes. Returns those before.
    pub(super) fn add_tombstones(&self, bytes: i64) -> i64 {
        match bytes {
            0 => self.tombstone_bytes(),
            _ => self
                .chunk
                .tombstones
                .get_or_make(self.at, self.bytes)
                .bytes
                .fetch_add(bytes, Ordering::Relaxed),
        }
    }

    /// Sets its tombstone bytes to zero. Returns the previous value.
    pub(super) fn forget_tombstones(&self) -> i64 {
        self.chunk.tombstones.get(self.at).map_or(0, |it| it.bytes.swap(0, Ordering::Relaxed))
    }

    /// Returns an upper bound of the sequence numbers of its tombstones.
    pub(crate) fn tombstones_through(&self) -> u64 {
        self.chunk.tombstones.get(self.at).map_or(u64::MAX, |it| it.through.load(Ordering::Relaxed))
    }

    pub(super) fn set_tombstones_through(&self, sequence: u64) {
        // The default of a segment without tombstones needs no array.
        if self.chunk.tombstones.get(self.at).is_some() || !matches!(sequence, 0 | u64::MAX) {
            self.chunk.tombstones.get_or_make(self.at, self.bytes).through.store(sequence, Ordering::Relaxed);
        }
    }

    /// Notes that the CLOCK hand passed and kept the segment; `newest` is the number of the newest segment.
    pub(super) fn pass(&self, newest: u64, now: Duration) {
        let passed = self.chunk.passed.get_or_make(self.at, self.bytes);
        passed.at.store(newest, Ordering::Relaxed);
        passed.ms.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the time of that pass, or of taking the slot, by the runtime's clock. Zero if the store did not evict then.
    pub(crate) fn passed_time(&self) -> Duration {
        let passed = self.chunk.passed.get(self.at);
        Duration::from_millis(passed.map_or(0, |passed| passed.ms.load(Ordering::Relaxed)))
    }

    /// Returns the number of the newest segment when this one was sealed or last kept.
    pub(crate) fn kept_at(&self) -> u64 {
        let passed = self.chunk.passed.get(self.at).map_or(0, |passed| passed.at.load(Ordering::Relaxed));
        passed.max(self.sealed_at())
    }

    /// Returns its reclaim group.
    pub(crate) fn group(&self) -> Group {
        Group(self.chunk.groups.get(self.at).map_or(0, |group| group.load(Ordering::Relaxed)))
    }

    pub(super) fn set_group(&self, group: Group) {
        self.chunk.groups.get_or_make(self.at, self.bytes).store(group.0, Ordering::Relaxed);
    }

    /// Returns the bytes that freeing the segment gives back, of `segment_bytes`: its used bytes, since records that leave much
    /// padding here do so anywhere. A segment that a kill or a close cut short before half of it was used gives back its slot:
    /// any two such fit into one.
    pub(super) fn gives_back_bytes(&self, segment_bytes: u32) -> u64 {
        let used = self.used_bytes();
        u64::from(if used <= segment_bytes / 2 { segment_bytes } else { used })
    }
}
