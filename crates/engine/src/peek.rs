//! Looking at a value that is in memory, where it lies.
//!
//! A look-up that needs no device can be answered without a future and without a copy of the value: whoever asks sees the
//! bytes in the segment's memory. Whatever is not that simple is left to [`Store::get_entry`].

use esker_log::{Kind, RecordView};

use crate::engine::Engine;
use crate::error::Result;
use crate::latency::Timed;
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
    /// See [`Entry::version`](crate::Entry::version).
    pub version: u64,
    /// See [`Entry::expires_at_ms`](crate::Entry::expires_at_ms).
    pub expires_at_ms: Option<u64>,
}

impl Store {
    /// Shows the value of a key to `see` if it is in memory, without a copy and without waiting.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    pub fn peek<T>(&self, key: impl AsRef<[u8]>, see: impl FnOnce(View<'_>) -> T) -> Result<Peek<T>> {
        self.engine.check_open()?;
        let began = self.engine.runtime.now();
        let peek = self.engine.peek(key.as_ref(), see);
        // What takes more than this is counted by the call that follows.
        if !matches!(peek, Peek::Unknown) {
            self.engine.took(Timed::Get, began);
        }
        Ok(peek)
    }
}

impl Engine {
    fn peek<T>(&self, key: &[u8], see: impl FnOnce(View<'_>) -> T) -> Peek<T> {
        if key.is_empty() {
            return Peek::Absent;
        }
        let hash = self.hash(key);
        let Some(pointer) = self.between_batches(|| self.index.get(&hash)) else { return Peek::Absent };
        let location = self.packing.unpack(pointer.get());
        let segment = self.slot(location).segment();
        // Must come after the number was read; see `fetch`.
        if !self.index.is_current(&hash, pointer) {
            return Peek::Unknown;
        }
        let expired = |at: Option<u64>| at.is_some_and(|at| self.runtime.wall_clock_ms() >= at);
        if let Some(resident) = self.residents.find(location.tier, location.slot, segment) {
            let identity = self.secret.identity(segment, location.offset);
            let record = RecordView::parse(resident.record(location.offset), &identity).ok();
            let whole = record
                .filter(|r| r.kind == Kind::Put && r.key == key && r.verify_value(&self.secret).is_ok());
            let Some(record) = whole else { return Peek::Unknown };
            self.counters.memory_hit();
            let RecordView { value, sequence: version, expires_at_ms, .. } = record;
            return if expired(expires_at_ms) {
                Peek::Absent
            } else {
                Peek::Seen(see(View { value, version, expires_at_ms }))
            };
        }
        match self.cache.get(segment, location.offset) {
            Some(cached) if cached.key == key => {
                self.counters.cache_hit();
                if expired(cached.expires_at_ms) {
                    return Peek::Absent;
                }
                let (version, expires_at_ms) = (cached.sequence, cached.expires_at_ms);
                Peek::Seen(see(View { value: &cached.value, version, expires_at_ms }))
            }
            _ => Peek::Unknown,
        }
    }
}
