//! Reads of values in memory, in place.
//!
//! A lookup that needs no device is answered without a future and without a copy of the value: the caller sees the
//! bytes in the segment's memory. A short compressed value is decompressed for it. All other cases are left to
//! [`Store::get_entry`].

use std::ops::Range;

use std::time::Duration;

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{BLOCK_BYTES, Kind, Location, RecordView};
use smallvec::SmallVec;

use crate::base::error::Result;
use crate::base::latency::Timed;
use crate::catalog::cache::Cached;
use crate::catalog::clock::Life;
use crate::catalog::place::Place;
use crate::catalog::verify::ROW;
use crate::read::Reader;
use crate::read::probe::Probe;
use crate::segments::buffers::HeldBuffered;

/// Result of a read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek<T> {
    /// The key exists; this is the result of `see`.
    Seen(T),
    /// The key does not exist.
    Absent,
    /// Memory alone cannot tell: use [`Store::get_entry`](crate::Store::get_entry).
    Unknown,
}

/// A key's value in place, with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The allocation that contains the value, if it can be kept: that of the read cache.
    owner: Option<&'a Bytes>,
    /// See [`Entry::version`](crate::Entry::version).
    pub version: u64,
    /// See [`Entry::expires_at_ms`](crate::Entry::expires_at_ms).
    pub expires_at_ms: Option<u64>,
}

impl View<'_> {
    /// Returns the value for keeping, without a copy; `None` if its memory cannot be kept.
    pub fn shared(&self) -> Option<Bytes> {
        self.owner.map(|owner| owner.slice_ref(self.value))
    }
}

/// A value, by the kind of memory that it is in.
enum Shown<'a> {
    InMemory(View<'a>),
    /// Compressed, in a segment's memory.
    Compressed(RecordView<'a>, Location),
    Cached(Cached),
}

/// Maximum decompressed length for a read from memory, in bytes: a peek does not wait for more memory.
const DECOMPRESSED_BYTES: usize = BLOCK_BYTES;

/// Recent use of a key, in a store that evicts. Eviction decides by the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// True if the key was read since it was put, or since the CLOCK hand last passed it. May be true because of
    /// another key.
    pub was_asked: bool,
    /// Lower bound of the time since the last use.
    pub idle: Duration,
}

impl Cached {
    fn view(&self) -> View<'_> {
        let owner = Some(&self.key_and_value);
        View { value: self.value(), owner, version: self.sequence, expires_at_ms: self.expires_at_ms }
    }
}

impl Reader {
    /// See [`Store::peek`](crate::Store::peek).
    pub(crate) fn peek<T>(
        &self,
        database: u8,
        key: &[u8],
        see: impl FnOnce(View<'_>) -> T,
    ) -> Result<Peek<T>> {
        self.space.health.check_open()?;
        let began = self.space.runtime.now();
        let probe = self.probe(database, key);
        let peek = match self.look(&probe, &self.space.buffered.hold()) {
            Peek::Seen(shown) => self.show(&probe.hash, shown, see),
            Peek::Absent => Peek::Absent,
            Peek::Unknown => Peek::Unknown,
        };
        // An unknown result is counted by the call that follows.
        if !matches!(peek, Peek::Unknown) {
            self.space.took(Timed::Get, began);
        }
        Ok(peek)
    }

    fn show<T>(&self, hash: &KeyHash, shown: Shown<'_>, see: impl FnOnce(View<'_>) -> T) -> Peek<T> {
        let peek = match shown {
            Shown::InMemory(view) => {
                self.space.counters.memory_hit();
                Peek::Seen(see(view))
            }
            Shown::Cached(cached) => {
                self.space.counters.cache_hit();
                Peek::Seen(see(cached.view()))
            }
            Shown::Compressed(record, location) if record.raw_bytes() <= DECOMPRESSED_BYTES as u64 => {
                // A complete read of the record will report the damage.
                let Ok(key_and_value) = self.catalog.decompressed(&record, location) else {
                    return Peek::Unknown;
                };
                self.space.counters.memory_hit();
                Peek::Seen(see(Cached::new(&record, key_and_value, 0).view()))
            }
            Shown::Compressed(..) => Peek::Unknown,
        };
        if !matches!(peek, Peek::Unknown) {
            self.catalog.recency.note_asked(hash);
        }
        peek
    }

    /// Copies a part of a value in memory. Of a compressed value, only the blocks of that part are decompressed.
    pub(super) fn peek_range(
        &self,
        probe: &Probe<'_>,
        cut: impl Fn(usize) -> Range<usize>,
    ) -> Result<Peek<Bytes>> {
        self.space.health.check_open()?;
        let began = self.space.runtime.now();
        let peek = match self.look(probe, &self.space.buffered.hold()) {
            Peek::Seen(Shown::Compressed(record, location)) => {
                let wanted = cut(record.raw_bytes() as usize);
                let stated = record.compressed.map(|how| (how, record.value.len()));
                let part = self
                    .catalog
                    .check_stated(stated, record.bytes(), location)
                    .and_then(|()| record.raw_part(wanted.clone(), Vec::with_capacity(wanted.len())));
                self.space.counters.memory_hit();
                self.catalog.recency.note_asked(&probe.hash);
                part.map_or(Peek::Unknown, |part| Peek::Seen(part.into()))
            }
            Peek::Seen(shown) => self
                .show(&probe.hash, shown, |seen| Bytes::copy_from_slice(&seen.value[cut(seen.value.len())])),
            Peek::Absent => Peek::Absent,
            Peek::Unknown => Peek::Unknown,
        };
        if !matches!(peek, Peek::Unknown) {
            self.space.took(Timed::Get, began);
        }
        Ok(peek)
    }

    /// See [`Store::peek_many`](crate::Store::peek_many). Passes the probes of the keys that were probed but not accepted
    /// to `left`, in order.
    pub(crate) fn peek_many<'k>(
        &self,
        database: u8,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut see: impl FnMut(Option<View<'_>>) -> bool,
        left: impl FnMut(Probe<'k>),
    ) -> Result<usize> {
        self.space.health.check_open()?;
        let mut keys = keys.into_iter();
        let (mut row, mut shown) = (SmallVec::<[_; ROW]>::new(), 0);
        let mut began = self.space.runtime.now();
        loop {
            // Index slots and records are mostly not in the processor's cache. A row of keys overlaps their cache
            // misses, instead of waiting for each key's misses in turn.
            row.clear();
            row.extend(keys.by_ref().take(ROW).map(|key| self.hashed(database, key)));
            if row.len() > 1 {
                row.iter().for_each(|probe| self.catalog.index.prefetch(&probe.hash));
            }
            row.iter_mut().for_each(|probe| *probe = self.searched(*probe));
            let more = self.peek_row(&row, &mut see);
            // The keys of a row were read together, so each took the time of the row.
            let now = self.space.runtime.now();
            self.space.recorder().record_each(Timed::Get, now.saturating_sub(began), more);
            began = now;
            shown += more;
            if more < ROW {
                row[more..].iter().copied().for_each(left);
                return Ok(shown);
            }
        }
    }

    /// Shows a row of keys to `see`. Returns the number of keys accepted.
    fn peek_row(&self, row: &[Probe<'_>], see: &mut impl FnMut(Option<View<'_>>) -> bool) -> usize {
        let buffered = self.space.buffered.hold();
        if row.len() > 1 {
            row.iter().filter_map(|probe| probe.pointer).for_each(|at| self.catalog.touch(at, &buffered));
        }
        let mut take = |probe: &Probe<'_>| match self.look(probe, &buffered) {
            Peek::Seen(shown) => {
                matches!(self.show(&probe.hash, shown, |view| see(Some(view))), Peek::Seen(true))
            }
            Peek::Absent => see(None),
            Peek::Unknown => false,
        };
        row.iter().position(|probe| !take(probe)).unwrap_or(row.len())
    }

    /// See [`Store::usage`](crate::Store::usage).
    pub(crate) fn usage(&self, database: u8, key: &[u8]) -> Option<Usage> {
        let probe = loop {
            let probe = self.probe(database, key);
            if self.is_in_its_database(&probe) {
                break probe;
            }
        };
        let Some(pointer) = probe.pointer else {
            // The key may be hidden: only a read can tell, and it may fail.
            let unknown = Usage { was_asked: false, idle: Duration::ZERO };
            return self.catalog.index.may_be_hidden(&probe.hash).then_some(unknown);
        };
        if let Peek::Absent = self.look(&probe, &self.space.buffered.hold()) {
            return None;
        }
        let recency = &self.catalog.recency;
        if !recency.when_full().evicts() || recency.was_asked(&probe.hash) {
            return Some(Usage { was_asked: recency.when_full().evicts(), idle: Duration::ZERO });
        }
        let slot = self.space.slot(self.catalog.packing.unpack(pointer.get()));
        let idle = self.space.runtime.now().saturating_sub(slot.passed_time());
        Some(Usage { was_asked: false, idle })
    }

    /// Looks for a key that was probed just now in memory.
    fn look<'a>(&self, probe: &Probe<'_>, buffered: &'a HeldBuffered) -> Peek<Shown<'a>> {
        let peek = self.look_in(probe, buffered);
        if self.is_in_its_database(probe) { peek } else { Peek::Unknown }
    }

    fn look_in<'a>(&self, probe: &Probe<'_>, buffered: &'a HeldBuffered) -> Peek<Shown<'a>> {
        let Some(pointer) = probe.pointer else {
            let may_be_hidden = !probe.key.is_empty() && self.catalog.index.may_be_hidden(&probe.hash);
            return if may_be_hidden { Peek::Unknown } else { Peek::Absent };
        };
        let Some(Place { location, segment, .. }) = self.catalog.place(&probe.hash, pointer) else {
            return Peek::Unknown;
        };
        let show = |shown: Shown<'a>, life| match life {
            Life::Alive => Peek::Seen(shown),
            Life::Expired => Peek::Absent,
            // It must be deleted before it is reported as absent.
            Life::Unconfirmed => Peek::Unknown,
        };
        if let Some(buffered_segment) = buffered.find(location.tier, location.slot, segment) {
            let identity = self.space.secret.identity(segment, location.offset);
            let record = RecordView::in_memory(buffered_segment.record(location.offset), &identity).ok();
            let keyspace = probe.hash.keyspace();
            let is_it = |record: &RecordView<'_>| {
                record.kind == Kind::Put && record.key == probe.key && record.keyspace == keyspace
            };
            let Some(record) = record.filter(is_it) else { return Peek::Unknown };
            let RecordView { value, sequence: version, expires_at_ms, .. } = record;
            let shown = match record.compressed {
                Some(_) => Shown::Compressed(record, location),
                None => Shown::InMemory(View { value, owner: None, version, expires_at_ms }),
            };
            return show(shown, self.catalog.life(version, expires_at_ms));
        }
        match self.catalog.cache.get(segment, location.offset) {
            Some(cached) if cached.is_of(&probe.hash, probe.key) => {
                let life = self.catalog.life(cached.sequence, cached.expires_at_ms);
                show(Shown::Cached(cached), life)
            }
            _ => Peek::Unknown,
        }
    }
}
