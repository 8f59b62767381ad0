//! Iterating over keys without their values.
//!
//! Of a record that is not in memory only the beginning is read: header, expiry and key. The header's checksum covers all of
//! them, so they are verified. The value is not looked at: damage in it is found by whoever reads it.

use bytes::Bytes;
use esker_index::{Cursor as IndexCursor, KeyHash, Pointer};
use esker_log::{Damage, Kind, RecordHead, claimed_head_bytes, class_bytes};
use futures_util::future::try_join_all;

use crate::base::error::Result;
use crate::catalog::cache::Cached;
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::read::Reader;
use crate::read::scan::Cursor;

/// What is read of a record at first. Few keys are longer, and a device reads whole blocks anyway.
const HEAD_BYTES: u64 = 256;

/// A key with what is known of it, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Bytes,
    /// Length of the value.
    pub value_bytes: u64,
    /// See [`Entry::version`](crate::Entry::version).
    pub version: u64,
    /// See [`Entry::expires_at_ms`](crate::Entry::expires_at_ms).
    pub expires_at_ms: Option<u64>,
}

/// A piece of an iteration over keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPage {
    /// Keys, in no order.
    pub keys: Vec<KeyEntry>,
    /// Where to go on, or `None` at the end.
    pub next: Option<Cursor>,
}

/// The beginning of a record.
enum Head {
    Read(std::result::Result<KeyEntry, Damaged>),
    /// So many bytes must be read to have the key.
    Longer(usize),
}

/// What was read at a pointer, and the segment in which it was looked for.
struct Started {
    place: Place,
    head: Head,
}

impl Started {
    /// Length of the key, if there is one.
    fn key_bytes(&self) -> usize {
        match &self.head {
            Head::Read(read) => read.as_ref().map_or(0, |entry| entry.key.len()),
            Head::Longer(bytes) => *bytes,
        }
    }
}

impl Reader {
    /// See [`Store::scan_keys`](crate::Store::scan_keys).
    pub(crate) async fn scan_keys(&self, cursor: Cursor, limit: usize, bytes: usize) -> Result<KeyPage> {
        self.space.health.check_open()?;
        let (mut limit, mut suspects) = (limit.max(1), Vec::new());
        loop {
            // Must be read before the pointers; see `scan`.
            let opened_through = self.space.newest_segment();
            let (pointers, next) = self.catalog.index.scan(IndexCursor::from_u64(cursor.to_u64()), limit);
            let started = try_join_all(pointers.into_iter().map(|pointer| self.start(pointer))).await?;
            let wanted: usize = started.iter().map(Started::key_bytes).sum();
            let count = limit.min(started.len());
            if wanted > bytes && limit > 1 {
                limit = (count.saturating_mul(bytes) / wanted).clamp(1, (count / 2).max(1));
                continue;
            }
            let (mut keys, mut failed) = (Vec::with_capacity(started.len()), Vec::new());
            for Started { place, head } in started {
                let entry = match self.finish(&place, head).await? {
                    Ok(entry) if place.segment <= opened_through => entry,
                    // As in `scan`: only what is met twice is damage.
                    Err(damaged) if suspects.contains(&place) => {
                        return Err(damaged.into_error(None));
                    }
                    Ok(_) | Err(_) => {
                        failed.push(place);
                        continue;
                    }
                };
                let hash = self.catalog.hash(&entry.key);
                let entry = match self.catalog.index.is_current(&hash, place.pointer) {
                    true => Some(entry),
                    false => self.look_up_key(&entry.key, &hash).await?,
                };
                let Some(entry) = entry else { continue };
                if self.writer.may_show(&entry.key, &hash, entry.version, entry.expires_at_ms).await {
                    keys.push(entry);
                }
            }
            if failed.is_empty() {
                // A key may have been met at its place and behind an unverified overwrite.
                keys.sort_unstable_by(|a, b| (&a.key, b.version).cmp(&(&b.key, a.version)));
                keys.dedup_by(|later, first| later.key == first.key);
                return Ok(KeyPage { keys, next: next.map(|next| Cursor::from_u64(next.to_u64())) });
            }
            suspects = failed;
        }
    }

    /// What is current of a key, where another record of it was met.
    async fn look_up_key(&self, key: &[u8], hash: &KeyHash) -> Result<Option<KeyEntry>> {
        if let Some(pointer) = self.catalog.between_batches(|| self.catalog.index.get(hash))
            && let Some(place) = self.catalog.place(hash, pointer)
        {
            let head = self.head(&place, HEAD_BYTES).await?;
            if let Ok(entry) = self.finish(&place, head).await?
                && entry.key == key
            {
                return Ok(Some(entry));
            }
        }
        // It moved, or another key has the slot.
        Ok(self.catalog.look_up(key, hash).await?.map(|found| KeyEntry::of(&found.record)))
    }

    async fn start(&self, pointer: Pointer) -> Result<Started> {
        let place = self.catalog.unchecked_place(pointer);
        let head = self.head(&place, HEAD_BYTES).await?;
        Ok(Started { place, head })
    }

    /// The whole head of a record whose beginning was read.
    async fn finish(&self, place: &Place, head: Head) -> Result<std::result::Result<KeyEntry, Damaged>> {
        let longer = match head {
            Head::Read(read) => return Ok(read),
            Head::Longer(bytes) => self.head(place, bytes as u64).await?,
        };
        Ok(match longer {
            Head::Read(read) => read,
            // What was read says now that the key is longer than what it said before.
            Head::Longer(_) => {
                let Place { location, segment, .. } = *place;
                Err(Damaged { damage: Damage::Header, key: None, segment, offset: location.offset })
            }
        })
    }

    /// Reads and verifies the head of the record at a place of a segment: from memory, else from so many bytes of the
    /// device.
    async fn head(&self, place: &Place, bytes: u64) -> Result<Head> {
        let Place { location, segment, .. } = *place;
        let offset = location.offset;
        let parse = |bytes: &[u8]| {
            let damaged = |damage, key| Damaged { damage, key, segment, offset };
            let head = RecordHead::parse(bytes, &self.space.secret.identity(segment, offset));
            let head = head.map_err(|damage| damaged(damage, None))?;
            if head.kind != Kind::Put {
                return Err(damaged(Damage::Header, Some(head.key.to_vec())));
            }
            Ok(KeyEntry {
                key: Bytes::copy_from_slice(head.key),
                value_bytes: head.value_bytes as u64,
                version: head.sequence,
                expires_at_ms: head.expires_at_ms,
            })
        };
        if let Some(segment_buffer) = self.space.buffered.find(location.tier, location.slot, segment) {
            self.space.counters.memory_hit();
            return Ok(Head::Read(parse(segment_buffer.record(offset))));
        }
        if let Some(cached) = self.catalog.cache.get(segment, offset) {
            self.space.counters.cache_hit();
            return Ok(Head::Read(Ok(KeyEntry::of(&cached))));
        }
        let most = class_bytes(location.class);
        let (buffer, at) =
            self.space.tier(location.tier).read(location.slot, offset, bytes.min(most)).await?;
        self.space.counters.device_read();
        let read = &buffer[at..];
        Ok(match claimed_head_bytes(read) {
            Some(claimed) if claimed > read.len() && claimed as u64 <= most => Head::Longer(claimed),
            _ => Head::Read(parse(read)),
        })
    }
}

impl KeyEntry {
    /// The key is copied, so that it does not keep the value in memory.
    fn of(record: &Cached) -> KeyEntry {
        KeyEntry {
            key: Bytes::copy_from_slice(record.key()),
            value_bytes: record.value().len() as u64,
            version: record.sequence,
            expires_at_ms: record.expires_at_ms,
        }
    }
}
