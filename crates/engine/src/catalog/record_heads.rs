//! Reads and verifies record heads: header and key, and a small value, which shares one checksum with them. Of a record
//! that is not in memory, only the beginning is read.

use bytes::Bytes;
use esker_log::{Claim, Damage, Kind, RecordHead, class_bytes};

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::cache::Cached;
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;

/// Bytes of a record that are read first. Few heads are longer, including their keys and small values.
pub(crate) const HEAD_BYTES: u64 = 1024;

/// A key with its metadata, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Bytes,
    /// Length of the value in bytes, decompressed.
    pub value_bytes: u64,
    /// See [`Entry::version`](crate::Entry::version).
    pub version: u64,
    /// See [`Entry::expires_at_ms`](crate::Entry::expires_at_ms).
    pub expires_at_ms: Option<u64>,
}

/// The content of a record's head.
pub(crate) struct Beginning {
    pub(crate) entry: KeyEntry,
    /// Length of the whole record on the medium, in bytes, padding included.
    pub(crate) padded_bytes: u32,
}

/// A record head, as far as it was read.
pub(crate) enum Head {
    Read(std::result::Result<Beginning, Damaged>),
    /// This many bytes must be read to have the whole key.
    Longer(usize),
}

impl Catalog {
    /// Reads the complete head of the record at a place.
    pub(crate) async fn beginning(&self, place: &Place) -> Result<std::result::Result<Beginning, Damaged>> {
        let head = self.read_head(place, HEAD_BYTES, false).await?;
        self.whole_head(place, head, false).await
    }

    /// Completes the head of a record whose beginning was read.
    pub(crate) async fn whole_head(
        &self,
        place: &Place,
        head: Head,
        in_background: bool,
    ) -> Result<std::result::Result<Beginning, Damaged>> {
        let longer = match head {
            Head::Read(read) => return Ok(read),
            Head::Longer(bytes) => self.read_head(place, bytes as u64, in_background).await?,
        };
        Ok(match longer {
            Head::Read(read) => read,
            // The second read states a longer key than the first one did: damage.
            Head::Longer(_) => {
                let Place { location, segment, .. } = *place;
                let (damage, offset) = (Damage::Header, location.offset);
                Err(Damaged { damage, key: None, claimed_key: None, segment, offset })
            }
        })
    }

    /// Reads and verifies the head of the record at a place: from memory, else from the first `bytes` bytes on the
    /// device. `in_background`: the read has the priority of background reads.
    pub(crate) async fn read_head(&self, place: &Place, bytes: u64, in_background: bool) -> Result<Head> {
        let Place { location, segment, .. } = *place;
        let offset = location.offset;
        let parse = |bytes: &[u8]| {
            let damaged = |damage, key, claimed_key| Damaged { damage, key, claimed_key, segment, offset };
            let head = RecordHead::parse(bytes, &self.space.secret.identity(segment, offset));
            let claimed = || Claim::key(bytes).map(<[u8]>::to_vec);
            let head = head.map_err(|damage| damaged(damage, None, claimed()))?;
            if head.kind != Kind::Put {
                return Err(damaged(Damage::Header, Some(head.key.to_vec()), None));
            }
            let entry = KeyEntry {
                key: Bytes::copy_from_slice(head.key),
                value_bytes: head.raw_bytes(),
                version: head.sequence,
                expires_at_ms: head.expires_at_ms,
            };
            let bytes = head.value_offset + head.value_bytes;
            Ok(Beginning { entry, padded_bytes: self.space.tier(location.tier).shape().padded(bytes) as u32 })
        };
        // Background reads do not count as hits or device reads.
        let count = |count: &dyn Fn()| {
            if !in_background {
                count();
            }
        };
        if let Some(buffered_segment) = self.space.buffered.find(location.tier, location.slot, segment) {
            count(&|| self.space.counters.memory_hit());
            return Ok(Head::Read(parse(buffered_segment.record(offset))));
        }
        if let Some(cached) = self.cache.get(segment, offset) {
            count(&|| self.space.counters.cache_hit());
            let (entry, padded_bytes) = (KeyEntry::of(&cached), cached.padded_bytes);
            return Ok(Head::Read(Ok(Beginning { entry, padded_bytes })));
        }
        let most = class_bytes(location.class, offset);
        let (tier, bytes) = (self.space.tier(location.tier), bytes.min(most));
        let (buffer, at) = match in_background {
            false => tier.read(location.slot, offset, bytes).await?,
            true => tier.read_background(location.slot, offset, bytes).await?,
        };
        count(&|| self.space.counters.device_read());
        let read = &buffer[at..];
        Ok(match Claim::of(read).map(|claim| claim.key_known_bytes) {
            Some(claimed) if claimed > read.len() && claimed as u64 <= most => Head::Longer(claimed),
            _ => Head::Read(parse(read)),
        })
    }

    /// Reads the key of the record at a place, with the priority of background reads. Returns `None` if it cannot be
    /// read.
    pub(crate) async fn read_key(&self, place: &Place) -> Option<Bytes> {
        let head = self.read_head(place, HEAD_BYTES, true).await.ok()?;
        let beginning = self.whole_head(place, head, true).await.ok()?.ok()?;
        Some(beginning.entry.key)
    }
}

impl KeyEntry {
    /// Copies the key, so that it does not keep the value in memory.
    pub(crate) fn of(record: &Cached) -> KeyEntry {
        KeyEntry {
            key: Bytes::copy_from_slice(record.key()),
            value_bytes: record.value().len() as u64,
            version: record.sequence,
            expires_at_ms: record.expires_at_ms,
        }
    }
}
