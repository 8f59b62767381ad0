//! Looking a key up: index, then memory or one device read, then key and checksum.
//!
//! Nothing is pinned. A reader takes the pointer, then the number of the segment in that slot, then asks the index whether
//! the pointer still stands. If a segment is freed and its slot used again in the meantime, the record does not verify
//! under that number, and the look-up starts again.

use bytes::Bytes;
use esker_index::{KeyHash, Pointer};
use esker_log::{Damage, Kind, Location, RecordView, class_bytes};

use crate::base::error::{Error, Result};
use crate::catalog::appended::Replaced;
use crate::catalog::cache::Cached;
use crate::catalog::{Catalog, hash_of};

/// The current record of a key, and what led to it.
pub(crate) struct Found {
    pub(crate) record: Cached,
    pub(crate) pointer: Pointer,
}

impl Found {
    /// What a write of the key, which is reserved, replaces.
    pub(crate) fn replaced(&self) -> Replaced {
        Replaced { pointer: self.pointer, padded_bytes: self.record.padded_bytes }
    }
}

/// What a pointer led to.
pub(crate) enum Fetched {
    Record(Cached),
    /// The pointer is no longer current: look again.
    Moved,
}

impl Catalog {
    /// The current record of a key, expired or not.
    pub(crate) async fn look_up(&self, key: &[u8], hash: &KeyHash) -> Result<Option<Found>> {
        loop {
            let Some(pointer) = self.between_batches(|| self.index.get(hash)) else { return Ok(None) };
            match self.fetch(hash, pointer, Some(key)).await {
                Ok(Fetched::Moved) => continue,
                Ok(Fetched::Record(record)) if record.key() == key => {
                    return Ok(Some(Found { record, pointer }));
                }
                Ok(Fetched::Record(_)) => {}
                Err(error) if error.is_of_reading() && self.is_anothers(hash, pointer).await => {}
                Err(error) => return Err(error),
            }
            // Another key has the slot. All that is known of this hash, at one instant:
            let suspects = self.index.suspects(hash);
            if let Some(&(_, exact)) = suspects.exact.iter().find(|(other, _)| other == hash) {
                match self.fetch(hash, exact, Some(key)).await? {
                    Fetched::Moved => continue,
                    Fetched::Record(record) if record.key() == key => {
                        return Ok(Some(Found { record, pointer: exact }));
                    }
                    Fetched::Record(_) => return Ok(None),
                }
            }
            if !suspects.claims.is_empty() {
                self.settle(hash).await?;
                continue;
            }
            if suspects.occupant == Some(pointer) {
                return Ok(None);
            }
        }
    }

    /// Whether a record that cannot be read is another key's, as the summary of its segment says.
    async fn is_anothers(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let location = self.packing.unpack(pointer.get());
        let entry = self.entry_at(location, self.space.slot(location).segment()).await;
        entry.is_some_and(|entry| hash_of(&entry) != *hash)
    }

    /// The record that a pointer leads to. `key` is for the message if it is damaged.
    pub(crate) async fn fetch(
        &self,
        hash: &KeyHash,
        pointer: Pointer,
        key: Option<&[u8]>,
    ) -> Result<Fetched> {
        let location = self.packing.unpack(pointer.get());
        let slot = self.space.slot(location);
        let segment = slot.segment();
        // Must come after the number was read, or else the number could be that of a later segment in the same slot.
        if !self.index.is_current(hash, pointer) {
            return Ok(Fetched::Moved);
        }
        match self.read_record(location, segment).await? {
            Ok(record) => Ok(Fetched::Record(record)),
            Err(_) if slot.segment() != segment || !self.index.is_current(hash, pointer) => {
                Ok(Fetched::Moved)
            }
            Err(damaged) => Err(damaged.into_error(key)),
        }
    }

    /// Reads and verifies the record at a place of a segment: from memory, else with one device read.
    pub(crate) async fn read_record(
        &self,
        location: Location,
        segment: u64,
    ) -> Result<std::result::Result<Cached, Damaged>> {
        let tier = self.space.tier(location.tier);
        let identity = self.space.secret.identity(segment, location.offset);
        let verify = |bytes: &[u8], source: Source<'_>| {
            let record = RecordView::parse(bytes, &identity).map_err(|damage| (damage, None))?;
            let named = |damage| (damage, Some(record.key.to_vec()));
            if source != Source::Memory {
                record.verify_value(&self.space.secret).map_err(named)?;
            }
            if record.kind != Kind::Put {
                return Err(named(Damage::Header));
            }
            Ok(to_cached(&record, tier.shape().padded(record.bytes()) as u32, source))
        };
        let whole = |bytes: &[u8], source: Source<'_>| {
            let offset = location.offset;
            verify(bytes, source).map_err(|(damage, key)| Damaged { damage, key, segment, offset })
        };
        if let Some(resident) = self.space.residents.find(location.tier, location.slot, segment) {
            self.space.counters.memory_hit();
            return Ok(whole(resident.record(location.offset), Source::Memory));
        }
        if let Some(cached) = self.cache.get(segment, location.offset) {
            self.space.counters.cache_hit();
            return Ok(Ok(cached));
        }
        let (mut buffer, at) = tier.read(location.slot, location.offset, class_bytes(location.class)).await?;
        self.space.counters.device_read();
        let record = if buffer.is_own() && buffer.len() >= LARGE_BYTES {
            // Handed out as it is, without what was read behind it. Memory of the device's is wanted back.
            let end = esker_log::claimed_bytes(&buffer[at..])
                .map_or(buffer.len(), |bytes| at.saturating_add(bytes));
            buffer.shrink(end);
            let buffer = buffer.into_bytes(..);
            whole(&buffer[at..], Source::Owned(&buffer))
        } else {
            whole(&buffer[at..], Source::Device)
        };
        if let Ok(record) = &record {
            self.cache.offer(segment, location.offset, record);
        }
        Ok(record)
    }
}

/// A record that does not verify.
pub(crate) struct Damaged {
    pub(crate) damage: Damage,
    /// The key, where the header still tells.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

impl Damaged {
    /// The error for the caller; `key` is the one that was asked for.
    pub(crate) fn into_error(self, key: Option<&[u8]>) -> Error {
        Error::Corrupt {
            key: key.map(<[u8]>::to_vec).or(self.key),
            segment: self.segment,
            offset: u64::from(self.offset),
            what: self.damage.to_string(),
        }
    }
}

/// Buffers from this length on are handed out rather than copied from.
const LARGE_BYTES: usize = 256 << 10;

/// Where the bytes of a record come from.
#[derive(Clone, Copy, PartialEq)]
enum Source<'a> {
    /// The memory that its segment was built in. The header's checksum tells whether there is a record; that its value is
    /// what was put needs no proof, as with the cache.
    Memory,
    Device,
    /// The device, in memory that may be handed out.
    Owned(&'a Bytes),
}

/// The record with its key and value: as a part of the memory that they lie in, if it may be handed out, else in an
/// allocation of their own, so that they pin nothing else.
fn to_cached(record: &RecordView<'_>, padded_bytes: u32, source: Source<'_>) -> Cached {
    let key_and_value = match source {
        Source::Owned(owner) => owner.slice_ref(record.key_and_value),
        Source::Memory | Source::Device => Bytes::copy_from_slice(record.key_and_value),
    };
    Cached::new(record, key_and_value, padded_bytes)
}
