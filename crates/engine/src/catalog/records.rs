//! Reads and verifies records: from the segment's memory, the read cache, or the device.

use bytes::Bytes;
use esker_log::{Claim, Codec, Compressed, Damage, Kind, Location, RecordView, class_bytes};

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::catalog::cache::Cached;
use crate::catalog::expansions::can_be;
use crate::catalog::place::Place;

impl Catalog {
    /// Reads and verifies the record at a place: from memory, else with one device read.
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
            // Drops the bytes that were read behind the record.
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

    /// Returns key and decompressed value of a record in a new allocation.
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

    /// Checks that the stated length of a value is possible for its compression and stored length. Must be called
    /// before memory is allocated for the value.
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

/// A record that failed verification, or whose value this build cannot decompress.
pub(crate) struct Damaged {
    pub(crate) damage: Damage,
    /// The key, if the header is intact.
    pub(crate) key: Option<Vec<u8>>,
    /// The key that a damaged header claims.
    pub(crate) claimed_key: Option<Vec<u8>>,
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

impl Damaged {
    /// Returns the error for the caller; `key` is the requested key.
    pub(crate) fn into_error(self, key: Option<&[u8]>) -> Error {
        self.error(key)
    }

    /// As [`into_error`](Self::into_error).
    pub(crate) fn error(&self, key: Option<&[u8]>) -> Error {
        let key = key.map(<[u8]>::to_vec).or_else(|| self.key.clone());
        match &self.damage {
            Damage::MissingCodec(codec) => missing_codec(*codec, &key.unwrap_or_default()),
            damage => Error::Corrupt {
                key,
                segment: self.segment,
                offset: u64::from(self.offset),
                what: damage.to_string(),
            },
        }
    }
}

/// Returns the error for a key whose intact value this build cannot decompress.
fn missing_codec(codec: Codec, key: &[u8]) -> Error {
    let feature = codec.name();
    Error::MissingFeature {
        feature,
        what: format!("the value of key \"{}\" is compressed with {feature}", key.escape_ascii()),
    }
}

/// Size from which read buffers are handed out instead of copied from, in bytes.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// Source of a record's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Source<'a> {
    /// The memory of its segment. The header checksum shows whether there is a record; a long value in memory is not
    /// verified again, as in the cache.
    Memory,
    Device,
    /// The device, in memory that can be handed out: an allocation of the record's own, or a buffer of the device, if
    /// it has enough spare ones.
    Owned(&'a Bytes),
}

/// Returns key and value of a record: a slice of the owner if that can be handed out, else a copy, which pins no other
/// memory.
fn key_and_value(record: &RecordView<'_>, source: Source<'_>) -> Bytes {
    match source {
        Source::Owned(owner) => owner.slice_ref(record.key_and_value),
        Source::Memory | Source::Device => Bytes::copy_from_slice(record.key_and_value),
    }
}
