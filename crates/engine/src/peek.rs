//! Looking at a value that is in memory, where it lies.
//!
//! A look-up that needs no device can be answered without a future and without a copy of the value: whoever asks sees the
//! bytes in the segment's memory. Whatever is not that simple is left to [`Store::get_entry`].

use bytes::Bytes;
use esker_index::{KeyHash, Pointer};
use esker_log::{Kind, RecordView};
use smallvec::SmallVec;

use crate::append::Prepared;
use crate::cache::Cached;
use crate::clock::Life;
use crate::engine::Engine;
use crate::error::Result;
use crate::latency::Timed;
use crate::memory::HeldResidents;
use crate::store::Store;

/// How a look at memory went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek<T> {
    /// The key is there, and this was made of it.
    Seen(T),
    /// The key is not there.
    Absent,
    /// It takes more than a look at memory to tell: [`Store::get_entry`] does.
    Unknown,
}

/// A key's value as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The value.
    pub value: &'a [u8],
    /// What it is a part of, where that can be kept: in the cache.
    owner: Option<&'a Bytes>,
    /// See [`Entry::version`](crate::Entry::version).
    pub version: u64,
    /// See [`Entry::expires_at_ms`](crate::Entry::expires_at_ms).
    pub expires_at_ms: Option<u64>,
}

impl View<'_> {
    /// The value, to be kept without a copy of it, if that is possible where it lies.
    pub fn shared(&self) -> Option<Bytes> {
        self.owner.map(|owner| owner.slice_ref(self.value))
    }
}

impl Store {
    /// Shows the value of a key to `see` if it is in memory, without a copy and without waiting. Memory is not used again
    /// while `see` looks at it, so it should be quick, and must not call the store.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek<T>(&self, key: impl AsRef<[u8]>, see: impl FnOnce(View<'_>) -> T) -> Result<Peek<T>> {
        self.engine.check_open()?;
        let engine = &self.engine;
        let began = engine.runtime.now();
        let peek = match engine.peek(&engine.seek(key.as_ref()), &engine.residents.hold()) {
            Peek::Seen(Shown::InMemory(view)) => Peek::Seen(see(view)),
            Peek::Seen(Shown::Cached(cached)) => Peek::Seen(see(cached.view())),
            Peek::Absent => Peek::Absent,
            // Counted by the call that follows.
            Peek::Unknown => return Ok(Peek::Unknown),
        };
        engine.took(Timed::Get, began);
        Ok(peek)
    }

    /// Shows the values of several keys to `see`, one after the other, `None` for a key that is not there, until it takes
    /// more than a look at memory or `see` does not want one and says `false`. Returns how many it took. What holds for
    /// the `see` of [`peek`](Self::peek) holds here.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek_each<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut see: impl FnMut(Option<View<'_>>) -> bool,
    ) -> Result<usize> {
        self.engine.check_open()?;
        let mut keys = keys.into_iter();
        let mut shown = 0;
        let mut began = self.engine.runtime.now();
        loop {
            // Slots of the index and records are mostly not in the processor's cache. A row of keys waits for them
            // together, where one key after the other would wait for each.
            let row: SmallVec<[_; ROW]> = keys.by_ref().take(ROW).map(|key| self.engine.seek(key)).collect();
            let more = self.engine.peek_row(&row, &mut see);
            // They were made together, and took that long together.
            let now = self.engine.runtime.now();
            self.engine.recorder().record_each(Timed::Get, now.saturating_sub(began), more);
            began = now;
            shown += more;
            if more < ROW {
                return Ok(shown);
            }
        }
    }
}

/// Keys that are looked up together.
pub(crate) const ROW: usize = 16;

/// A key with what the index says of it.
struct Sought<'k> {
    key: &'k [u8],
    hash: KeyHash,
    pointer: Option<Pointer>,
}

/// A value, and who keeps it.
enum Shown<'a> {
    InMemory(View<'a>),
    Cached(Cached),
}

impl Cached {
    fn view(&self) -> View<'_> {
        let owner = Some(&self.key_and_value);
        View { value: self.value(), owner, version: self.sequence, expires_at_ms: self.expires_at_ms }
    }
}

impl Engine {
    /// Shows a row of keys; how many were taken.
    fn peek_row(&self, row: &[Sought<'_>], see: &mut impl FnMut(Option<View<'_>>) -> bool) -> usize {
        let residents = self.residents.hold();
        if row.len() > 1 {
            row.iter().filter_map(|sought| sought.pointer).for_each(|at| self.touch(at, &residents));
        }
        let mut take = |sought: &Sought<'_>| match self.peek(sought, &residents) {
            Peek::Seen(Shown::InMemory(view)) => see(Some(view)),
            Peek::Seen(Shown::Cached(cached)) => see(Some(cached.view())),
            Peek::Absent => see(None),
            Peek::Unknown => false,
        };
        row.iter().position(|sought| !take(sought)).unwrap_or(row.len())
    }

    fn seek<'k>(&self, key: &'k [u8]) -> Sought<'k> {
        let hash = self.hash(key);
        let pointer = self.between_batches(|| self.index.get(&hash)).filter(|_| !key.is_empty());
        Sought { key, hash, pointer }
    }

    /// Gets what puts will look at when they are published into the processor's cache: slots of the index, and the records
    /// that they may displace. Under the lane's lock each put would wait for its own.
    pub(crate) fn touch_displaced(&self, puts: &[Prepared]) {
        for row in puts.chunks(ROW) {
            let pointers: SmallVec<[_; ROW]> =
                row.iter().filter_map(|put| self.index.get(&put.hash)).collect();
            let residents = self.residents.hold();
            pointers.into_iter().for_each(|pointer| self.touch(pointer, &residents));
        }
    }

    /// Gets a record's first bytes on their way into the processor's cache.
    fn touch(&self, pointer: Pointer, residents: &HeldResidents<'_>) {
        let location = self.packing.unpack(pointer.get());
        let segment = self.slot(location).segment();
        if let Some(resident) = residents.find(location.tier, location.slot, segment) {
            let at = location.offset as usize;
            std::hint::black_box(resident.buffer.get(at..at + 1).map(|byte| byte[0]));
        }
    }

    fn peek<'a>(&self, sought: &Sought<'_>, residents: &'a HeldResidents<'_>) -> Peek<Shown<'a>> {
        let Some(pointer) = sought.pointer else { return Peek::Absent };
        let location = self.packing.unpack(pointer.get());
        let segment = self.slot(location).segment();
        // Must come after the number was read; see `fetch`.
        if !self.index.is_current(&sought.hash, pointer) {
            return Peek::Unknown;
        }
        let show = |shown: Shown<'a>, life| match life {
            Life::Alive => Peek::Seen(shown),
            Life::Expired => Peek::Absent,
            // It has to be deleted first.
            Life::Unconfirmed => Peek::Unknown,
        };
        if let Some(resident) = residents.find(location.tier, location.slot, segment) {
            let identity = self.secret.identity(segment, location.offset);
            let record = RecordView::in_memory(resident.record(location.offset), &identity).ok();
            let is_it = |record: &RecordView<'_>| record.kind == Kind::Put && record.key == sought.key;
            let Some(record) = record.filter(is_it) else { return Peek::Unknown };
            self.counters.memory_hit();
            let RecordView { value, sequence: version, expires_at_ms, .. } = record;
            let view = View { value, owner: None, version, expires_at_ms };
            return show(Shown::InMemory(view), self.life(version, expires_at_ms));
        }
        match self.cache.get(segment, location.offset) {
            Some(cached) if cached.key() == sought.key => {
                self.counters.cache_hit();
                let life = self.life(cached.sequence, cached.expires_at_ms);
                show(Shown::Cached(cached), life)
            }
            _ => Peek::Unknown,
        }
    }
}
