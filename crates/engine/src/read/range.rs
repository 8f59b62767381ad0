//! Reads of parts of values. See `docs/decisions/0008-parts-of-values.md`.
//!
//! A value has one checksum, so all of it is read before any byte of it is returned. Memory holds at most the requested
//! part and two pieces, of which one is read while the other is hashed; and two copies of one block if the value is
//! compressed.

use std::ops::Range;

use bytes::Bytes;
use esker_device::Buffer;
use esker_index::KeyHash;
use esker_log::{Damage, Decompressor, Kind, RecordHead};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join;

use crate::base::error::Result;
use crate::base::latency::Timed;
use crate::catalog::cache::Cached;
use crate::catalog::place::Place;
use crate::read::Reader;
use crate::read::peek::Peek;
use crate::read::probe::Probe;

/// Records of size classes up to this many bytes are read as a whole.
const WHOLE_BYTES: u64 = 600 << 10;
/// Bytes per read: the size of a device's registered buffers.
const PIECE_BYTES: u64 = 256 << 10;

/// Returns the part of a range that lies within a value of `bytes` bytes.
fn cut(start: u64, end: u64, bytes: usize) -> Range<usize> {
    let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes);
    let start = within(start);
    start..within(end).max(start)
}

/// The requested part of a value that arrives in pieces.
enum Part {
    Plain { at: usize, wanted: Range<usize>, part: Vec<u8> },
    Compressed(Decompressor),
}

impl Part {
    fn of(head: &RecordHead<'_>, wanted: Range<usize>) -> Part {
        let part = Vec::with_capacity(wanted.len());
        match head.compressed {
            None => Part::Plain { at: 0, wanted, part },
            Some(how) => Part::Compressed(Decompressor::new(how, head.value_bytes, wanted, part)),
        }
    }

    fn add(&mut self, piece: &[u8]) -> std::result::Result<(), Damage> {
        match self {
            Part::Plain { at, wanted, part } => {
                let next = *at + piece.len();
                let (from, to) = (wanted.start.clamp(*at, next), wanted.end.clamp(*at, next));
                part.extend_from_slice(&piece[from - *at..to - *at]);
                *at = next;
                Ok(())
            }
            Part::Compressed(decompressor) => decompressor.add(piece),
        }
    }

    fn finish(self) -> std::result::Result<Vec<u8>, Damage> {
        match self {
            Part::Plain { part, .. } => Ok(part),
            Part::Compressed(decompressor) => decompressor.finish(),
        }
    }
}

impl Reader {
    /// See [`Store::get_range`](crate::Store::get_range).
    pub(crate) async fn get_range(
        &self,
        database: u8,
        key: &[u8],
        start: u64,
        end: u64,
    ) -> Result<Option<Bytes>> {
        let mut probe = self.probe(database, key);
        match self.peek_range(&probe, |bytes| cut(start, end, bytes))? {
            Peek::Seen(part) => return Ok(Some(part)),
            Peek::Absent => return Ok(None),
            Peek::Unknown => {}
        }
        let began = self.space.runtime.now();
        if let Some(part) = self.stream_range(&mut probe, start, end).await? {
            self.space.took(Timed::Get, began);
            if part.is_some() {
                self.catalog.recency.note_asked(&probe.hash);
            }
            return Ok(part);
        }
        let Some(value) = self.get_probed(probe).await?.map(Cached::into_value) else { return Ok(None) };
        let part = cut(start, end, value.len());
        // A small part is copied, so that it does not keep the whole value in memory.
        let is_small = part.len() < value.len() / 2;
        Ok(Some(if is_small { Bytes::copy_from_slice(&value[part]) } else { value.slice(part) }))
    }

    /// Reads a part of a large value of a key that was probed just now from a device; `None` if the value must be read
    /// as a whole. Renews the probe if it turns out to be outdated.
    async fn stream_range(
        &self,
        probe: &mut Probe<'_>,
        start: u64,
        end: u64,
    ) -> Result<Option<Option<Bytes>>> {
        loop {
            if probe.pointer.is_none() {
                self.follow_swap(probe);
                *probe = self.searched(*probe);
            }
            let Probe { key, hash, pointer, .. } = *probe;
            let Some(pointer) = pointer else {
                if !self.is_in_its_database(probe) {
                    continue;
                }
                return Ok((!self.catalog.index.may_be_hidden(&hash)).then_some(None));
            };
            let location = self.catalog.packing.unpack(pointer.get());
            if self.catalog.expansions.in_memory(location.class) <= WHOLE_BYTES {
                return Ok(None);
            }
            let Some(place) = self.catalog.place(&hash, pointer) else {
                probe.pointer = None;
                continue;
            };
            let read = self.read_range(&hash, &place, key, start, end).await;
            if !self.is_in_its_database(probe) {
                probe.pointer = None;
                continue;
            }
            match read {
                Ok(part) if part.is_some() || self.catalog.is_still(&hash, &place) => return Ok(part),
                Ok(_) => probe.pointer = None,
                // The record may belong to another key: a complete read finds out.
                Err(error) if error.is_of_reading() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads and verifies the value of the record at a place, and keeps a part of it. `None` if the record belongs to
    /// another key or fails verification: a complete read will report the reason.
    async fn read_range(
        &self,
        hash: &KeyHash,
        place: &Place,
        key: &[u8],
        start: u64,
        end: u64,
    ) -> Result<Option<Option<Bytes>>> {
        let Place { location, segment, .. } = *place;
        let tier = self.space.tier(location.tier);
        let block = u64::from(tier.device()?.geometry().block_bytes);
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        // Whole blocks, so that each read fits in a registered buffer.
        let read = async |at: u64, used: Option<Buffer>| {
            self.space.counters.device_read();
            tier.read_into(location.slot, at as u32, PIECE_BYTES - at % block, used).await
        };
        let begin = u64::from(location.offset);
        let (mut buffer, mut skip) = read(begin, None).await?;
        let head = RecordHead::parse(&buffer[skip..], &self.space.secret.identity(segment, location.offset));
        let Ok(head) = head else { return Ok(None) };
        let value_at = begin + head.value_offset as u64;
        let value_end = value_at + head.value_bytes as u64;
        let stated = head.compressed.map(|how| (how, head.value_bytes));
        let can_be = self.catalog.check_stated(stated, head.bytes(), location).is_ok();
        let is_key = head.key == key || planted(Bug::PartOfOtherKey);
        let is_it = is_key && head.keyspace == hash.keyspace() && head.kind == Kind::Put;
        if !is_it || value_end > segment_bytes || !can_be {
            return Ok(None);
        }
        // A small value that was read completely with its head was verified with it.
        let (check, sequence, expires_at_ms) = (head.value_check, head.sequence, head.expires_at_ms);
        let mut part = Part::of(&head, cut(start, end, head.raw_bytes() as usize));
        let mut hasher = self.space.secret.value_hasher();
        skip += head.value_offset;
        let (mut at, mut spare) = (value_at, None);
        loop {
            let piece = &buffer[skip..];
            let piece = &piece[..piece.len().min((value_end - at) as usize)];
            let next = at + piece.len() as u64;
            let hashing = async {
                hasher.add(piece);
                part.add(piece)
            };
            if next == value_end {
                if hashing.await.is_err() {
                    return Ok(None);
                }
                break;
            }
            // The next piece is read while this one is hashed.
            let (after, added) = join(read(next, spare.take()), hashing).await;
            let (after, skip_after) = after?;
            if added.is_err() {
                return Ok(None);
            }
            spare = Some(std::mem::replace(&mut buffer, after));
            (at, skip) = (next, skip_after);
        }
        let Ok(part) = part.finish() else { return Ok(None) };
        if check.is_some_and(|check| check != hasher.finish()) && !planted(Bug::PartNotVerified) {
            return Ok(None);
        }
        let may_show = self.writer.may_show(key, hash, sequence, expires_at_ms).await?;
        let may_show = may_show || planted(Bug::ExpiredPartShown);
        Ok(Some(may_show.then(|| part.into())))
    }
}
