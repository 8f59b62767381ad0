//! Iterating over keys without their values.
//!
//! Of a record that is not in memory only the beginning is read: header and key, and a small value, as they have one checksum.
//! So they are verified. A long value is not looked at: damage in it is found by whoever reads it.

use bytes::Bytes;
use esker_index::{Cursor as IndexCursor, KeyHash, Pointer};
use esker_log::{Claim, Damage, Kind, RecordHead, class_bytes};
use futures_util::future::join_all;

use crate::base::error::{Error, Result};
use crate::catalog::cache::Cached;
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::read::Reader;
use crate::read::scan::Cursor;
use crate::read::sift::{Met, Scanned, Sifted};

/// What is read of a record at first. Few heads with their keys and small values are longer.
const HEAD_BYTES: u64 = 1024;

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
#[derive(Clone, Debug)]
pub struct KeyPage {
    /// Keys, in no order.
    pub keys: Vec<KeyEntry>,
    /// As [`Page::damaged`](crate::Page::damaged), where the key is what is damaged.
    pub damaged: Vec<Error>,
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
    head: Result<Head>,
}

impl Started {
    /// Length of the key, if there is one.
    fn key_bytes(&self) -> usize {
        match &self.head {
            Ok(Head::Read(Ok(entry))) => entry.key.len(),
            Ok(Head::Longer(bytes)) => *bytes,
            Ok(Head::Read(Err(_))) | Err(_) => 0,
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
            let started = join_all(pointers.into_iter().map(|pointer| self.start(pointer))).await;
            let wanted: usize = started.iter().map(Started::key_bytes).sum();
            let count = limit.min(started.len());
            if wanted > bytes && limit > 1 {
                limit = (count.saturating_mul(bytes) / wanted).clamp(1, (count / 2).max(1));
                continue;
            }
            let met = join_all(started.into_iter().map(|started| self.finish(started))).await;
            let Sifted { current, damaged, again } = self.sift(met, opened_through, &suspects).await?;
            if again.is_empty() {
                let next = next.map(|next| Cursor::from_u64(next.to_u64()));
                return Ok(KeyPage { keys: current, damaged, next });
            }
            suspects.extend(again);
        }
    }

    async fn start(&self, pointer: Pointer) -> Started {
        let place = self.catalog.unchecked_place(pointer);
        Started { place, head: self.head(&place, HEAD_BYTES).await }
    }

    async fn finish(&self, Started { place, head }: Started) -> Met<KeyEntry> {
        let whole = match head {
            Ok(head) => self.whole(&place, head).await,
            Err(error) => Err(error),
        };
        (place, whole)
    }

    /// The whole head of a record whose beginning was read.
    async fn whole(&self, place: &Place, head: Head) -> Result<std::result::Result<KeyEntry, Damaged>> {
        let longer = match head {
            Head::Read(read) => return Ok(read),
            Head::Longer(bytes) => self.head(place, bytes as u64).await?,
        };
        Ok(match longer {
            Head::Read(read) => read,
            // What was read says now that the key is longer than what it said before.
            Head::Longer(_) => {
                let Place { location, segment, .. } = *place;
                let (damage, offset) = (Damage::Header, location.offset);
                Err(Damaged { damage, key: None, claimed_key: None, segment, offset })
            }
        })
    }

    /// Reads and verifies the head of the record at a place of a segment: from memory, else from so many bytes of the
    /// device.
    async fn head(&self, place: &Place, bytes: u64) -> Result<Head> {
        let Place { location, segment, .. } = *place;
        let offset = location.offset;
        let parse = |bytes: &[u8]| {
            let damaged = |damage, key, claimed_key| Damaged { damage, key, claimed_key, segment, offset };
            let head = RecordHead::parse(bytes, &self.space.secret.identity(segment, offset));
            let head = head.map_err(|damage| damaged(damage, None, Claim::key(bytes).map(<[u8]>::to_vec)))?;
            if head.kind != Kind::Put {
                return Err(damaged(Damage::Header, Some(head.key.to_vec()), None));
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
        let most = class_bytes(location.class, offset);
        let (buffer, at) =
            self.space.tier(location.tier).read(location.slot, offset, bytes.min(most)).await?;
        self.space.counters.device_read();
        let read = &buffer[at..];
        Ok(match Claim::of(read).map(|claim| claim.key_known_bytes) {
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

impl Scanned for KeyEntry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    async fn look_up(reader: &Reader, key: &[u8], hash: &KeyHash) -> Result<Option<KeyEntry>> {
        if let Some(pointer) = reader.catalog.between_batches(|| reader.catalog.index.get(hash))
            && let Some(place) = reader.catalog.place(hash, pointer)
        {
            let head = reader.head(&place, HEAD_BYTES).await?;
            if let Ok(entry) = reader.whole(&place, head).await?
                && entry.key == key
            {
                return Ok(Some(entry));
            }
        }
        // It moved, or another key has the slot.
        Ok(reader.catalog.look_up(key, hash).await?.map(|found| KeyEntry::of(&found.record)))
    }
}
