//! Reading and verifying records: from the segment's memory, the read cache, or the device.

use bytes::Bytes;
use esker_log::{Claim, Compressed, Damage, Kind, Location, RecordView, class_bytes};

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::catalog::cache::Cached;
use crate::catalog::expansions::can_be;
use crate::catalog::place::Place;

impl Catalog {
    /// Reads and verifies the record at a place of a segment: from memory, else with one device read.
    pub(crate) async fn read_record(&self, place: &Place) -> Result<std::result::Result<Cached, Damaged>> {
        let Place { location, segment, .. } = *place;
        let tier = self.space.tier(location.tier);
        let identity = self.space.secret.identity(segment, location.offset);
        let verify = |bytes: &[u8], source: Source<'_>| {
            let claimed = |damage| (damage, None, Claim::key(bytes).map(<[u8]>::to_vec));
            let record = RecordView::parse(bytes, &identity).map_err(claimed)?;
            let named = |damage| (damage, Some(record.key.to_vec()), None);
            if source != Source::Memory {
                record.verify_value(&self.space.secret).map_err(named)?;
            }
            if record.kind != Kind::Put {
                return Err(named(Damage::Header));
            }
            let padded_bytes = tier.shape().padded(record.bytes()) as u32;
            let key_and_value = match record.compressed {
                Some(_) => self.decompressed(&record, location).map_err(named)?,
                None => key_and_value(&record, source),
            };
            Ok(Cached::new(&record, key_and_value, padded_bytes))
        };
        let whole = |bytes: &[u8], source: Source<'_>| {
            let offset = location.offset;
            verify(bytes, source).map_err(|(damage, key, claimed_key)| Damaged {
                damage,
                key,
                claimed_key,
                segment,
                offset,
            })
        };
        if let Some(buffered_segment) = self.space.buffered.find(location.tier, location.slot, segment) {
            self.space.counters.memory_hit();
            return Ok(whole(buffered_segment.record(location.offset), Source::Memory));
        }
        if let Some(cached) = self.cache.get(segment, location.offset) {
            self.space.counters.cache_hit();
            return Ok(Ok(cached));
        }
        let most = class_bytes(location.class, location.offset);
        let (mut buffer, at) = tier.read(location.slot, location.offset, most).await?;
        self.space.counters.device_read();
        let is_lent = !buffer.is_own() && 2 * most >= buffer.capacity() as u64 && buffer.is_spare();
        let is_large = buffer.is_own() && buffer.len() >= LARGE_BYTES;
        if is_large {
            // Without what was read behind it.
            let end = Claim::of(&buffer[at..]).map_or(buffer.len(), |claim| at.saturating_add(claim.bytes));
            buffer.shrink(end);
        }
        let mut record = if is_lent || is_large {
            let buffer = buffer.into_bytes(..);
            whole(&buffer[at..], Source::Owned(&buffer))
        } else {
            whole(&buffer[at..], Source::Device)
        };
        if let Ok(record) = &mut record {
            self.cache.offer(segment, location.offset, record, is_lent);
        }
        Ok(record)
    }

    /// Key and value of a record at a place whose value is compressed, in an allocation of their own.
    pub(crate) fn decompressed(
        &self,
        record: &RecordView<'_>,
        location: Location,
    ) -> std::result::Result<Bytes, Damage> {
        let raw_bytes = record.raw_bytes() as usize;
        let stated = record.compressed.map(|how| (how, record.value.len()));
        self.check_stated(stated, record.bytes(), location)?;
        let mut key_and_value = Vec::with_capacity(record.key.len() + raw_bytes);
        key_and_value.extend_from_slice(record.key);
        record.raw_part(0..raw_bytes, key_and_value).map(Bytes::from)
    }

    /// Whether a value can be as long as its record states, how it is compressed and stored. To be asked before there is memory
    /// for it.
    pub(crate) fn check_stated(
        &self,
        stated: Option<(Compressed, usize)>,
        record_bytes: usize,
        location: Location,
    ) -> std::result::Result<(), Damage> {
        let most = u64::from(self.space.tier(location.tier).shape().segment_bytes);
        let fits = stated
            .is_none_or(|(how, value_bytes)| can_be(how, value_bytes, record_bytes, location.class, most));
        if fits { Ok(()) } else { Err(Damage::Compression) }
    }
}

/// A record that does not verify.
pub(crate) struct Damaged {
    pub(crate) damage: Damage,
    /// The key, where the header still tells.
    pub(crate) key: Option<Vec<u8>>,
    /// What the header claims is the key, where that is not certain.
    pub(crate) claimed_key: Option<Vec<u8>>,
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
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// Where the bytes of a record come from.
#[derive(Clone, Copy, PartialEq)]
enum Source<'a> {
    /// The memory that its segment was built in. The header's checksum tells whether there is a record; that a long value is
    /// what was put needs no proof, as with the cache.
    Memory,
    Device,
    /// The device, in memory that may be handed out: the record's own, or some of the device's of which it has enough.
    Owned(&'a Bytes),
}

/// Key and value of a record: as a part of the memory that they lie in, if it may be handed out, else in an allocation of their
/// own, so that they pin nothing else.
fn key_and_value(record: &RecordView<'_>, source: Source<'_>) -> Bytes {
    match source {
        Source::Owned(owner) => owner.slice_ref(record.key_and_value),
        Source::Memory | Source::Device => Bytes::copy_from_slice(record.key_and_value),
    }
}
