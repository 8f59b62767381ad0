//! Parts of values. See `docs/decisions/0008-parts-of-values.md`.
//!
//! A value has one checksum, so all of it is read before a byte of it is handed out; but never is more of it in memory than
//! the part that was asked for and two pieces, one being read while the other is hashed.

use std::ops::Range;

use bytes::Bytes;
use esker_device::Buffer;
use esker_log::{Kind, RecordHead, class_bytes};
use futures_util::future::join;

use crate::base::error::Result;
use crate::base::latency::Timed;
use crate::catalog::cache::Cached;
use crate::catalog::place::Place;
use crate::read::Reader;
use crate::read::peek::Peek;

/// Records of classes up to this are read whole.
const WHOLE_BYTES: u64 = 600 << 10;
/// What is read at once: what a device has registered buffers for.
const PIECE_BYTES: u64 = 256 << 10;

/// What there is of a range in a value of so many bytes.
fn cut(start: u64, end: u64, bytes: usize) -> Range<usize> {
    let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes);
    let start = within(start);
    start..within(end).max(start)
}

impl Reader {
    /// See [`Store::get_range`](crate::Store::get_range).
    pub(crate) async fn get_range(&self, key: &[u8], start: u64, end: u64) -> Result<Option<Bytes>> {
        match self.peek(key, |seen| Bytes::copy_from_slice(&seen.value[cut(start, end, seen.value.len())]))? {
            Peek::Seen(part) => return Ok(Some(part)),
            Peek::Absent => return Ok(None),
            Peek::Unknown => {}
        }
        let began = self.space.runtime.now();
        if let Some(part) = self.stream_range(key, start, end).await? {
            self.space.took(Timed::Get, began);
            if part.is_some() {
                self.catalog.recency.note_asked(&self.catalog.hash(key));
            }
            return Ok(part);
        }
        let Some(value) = self.get(key).await?.map(Cached::into_value) else { return Ok(None) };
        let part = cut(start, end, value.len());
        // A small part does not keep all of it in memory.
        let is_small = part.len() < value.len() / 2;
        Ok(Some(if is_small { Bytes::copy_from_slice(&value[part]) } else { value.slice(part) }))
    }

    /// The part of a large value that lies on a device; nothing if it is not that simple.
    async fn stream_range(&self, key: &[u8], start: u64, end: u64) -> Result<Option<Option<Bytes>>> {
        let hash = self.catalog.hash(key);
        loop {
            let Some(pointer) = self.catalog.between_batches(|| self.catalog.index.get(&hash)) else {
                return Ok(Some(None));
            };
            let location = self.catalog.packing.unpack(pointer.get());
            if class_bytes(location.class, location.offset) <= WHOLE_BYTES {
                return Ok(None);
            }
            let Some(place) = self.catalog.place(&hash, pointer) else { continue };
            match self.read_range(&place, key, start, end).await {
                Ok(part) if part.is_some() || self.catalog.is_still(&hash, &place) => return Ok(part),
                Ok(_) => {}
                // It may be another key's record: whoever reads it whole finds out.
                Err(error) if error.is_of_reading() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads and verifies the value of the record at a place, and keeps a part of it. Nothing if there is another key, or
    /// something does not verify: whoever reads it whole will say what is wrong.
    async fn read_range(
        &self,
        place: &Place,
        key: &[u8],
        start: u64,
        end: u64,
    ) -> Result<Option<Option<Bytes>>> {
        let Place { location, segment, .. } = *place;
        let tier = self.space.tier(location.tier);
        let block = u64::from(tier.device()?.geometry().block_bytes);
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        // Whole blocks, so that what is read fits in a buffer that is registered.
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
        let is_it = head.key == key && head.kind == Kind::Put && value_end <= segment_bytes;
        let Some(check) = head.value_check.filter(|_| is_it) else { return Ok(None) };
        let (sequence, expires_at_ms) = (head.sequence, head.expires_at_ms);
        let wanted = cut(start, end, head.value_bytes);
        let wanted = value_at + wanted.start as u64..value_at + wanted.end as u64;
        let mut part = Vec::with_capacity((wanted.end - wanted.start) as usize);
        let mut hasher = self.space.secret.value_hasher();
        skip += head.value_offset;
        let (mut at, mut spare) = (value_at, None);
        loop {
            let piece = &buffer[skip..];
            let piece = &piece[..piece.len().min((value_end - at) as usize)];
            let next = at + piece.len() as u64;
            let hash = async {
                hasher.add(piece);
                let (from, to) = (wanted.start.clamp(at, next), wanted.end.clamp(at, next));
                part.extend_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
            };
            if next == value_end {
                hash.await;
                break;
            }
            // The read is under way while the piece before it is hashed.
            let (after, ()) = join(read(next, spare.take()), hash).await;
            let (after, skip_after) = after?;
            spare = Some(std::mem::replace(&mut buffer, after));
            (at, skip) = (next, skip_after);
        }
        if hasher.finish() != check {
            return Ok(None);
        }
        let may_show = self.writer.may_show(key, &self.catalog.hash(key), sequence, expires_at_ms).await;
        Ok(Some(may_show.then(|| part.into())))
    }
}
