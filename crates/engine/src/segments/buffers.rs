//! Segment memory, and the buffered segments whose bytes are still in it.
//!
//! A lane has a fixed number of buffers. The buffer of a sealed segment stays *buffered*, so that reads and destaging need no
//! device read, until the lane needs it for a new segment: the oldest is reused first.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use esker_device::{Appender, DeviceError, OperationKind, SegmentBuffer, Shortage};
use esker_log::{EntryList, OpenSegment, SegmentName, Tier as TierName};
use parking_lot::Mutex;

use crate::base::error::{Error, Result};
use crate::segments::staging::{StagingFile, is_full};

/// A segment whose bytes are in memory.
#[derive(Clone)]
pub(crate) struct BufferedSegment {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) buffer: Arc<SegmentBuffer>,
}

/// All segments whose bytes are in memory. They are few, so a list is the fastest map.
///
/// A reader loads the current list and writes nothing that another processor reads, so look-ups of many threads do not slow
/// each other down, and no number of readers delays adding a segment.
#[derive(Default)]
pub(crate) struct BufferedSegments {
    list: ArcSwap<Vec<BufferedSegment>>,
    /// Serializes changes of the list. May be acquired under any other lock, because its holder acquires no other.
    changes: Mutex<()>,
}

impl BufferedSegments {
    /// Returns a segment's memory. The segment number is required, because the slot may hold another segment by now.
    pub(crate) fn find(&self, tier: TierName, slot: u32, segment: u64) -> Option<BufferedSegment> {
        self.hold().find(tier, slot, segment).cloned()
    }

    /// Returns the current list. The memory of its segments is not reused while the result is alive.
    pub(crate) fn hold(&self) -> HeldBuffered {
        HeldBuffered(self.list.load())
    }

    /// Returns the length of all segments whose bytes are in memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.load().iter().map(|segment| segment.buffer.capacity() as u64).sum()
    }

    pub(crate) fn add(&self, buffered_segment: BufferedSegment) {
        self.change(|list| list.push(buffered_segment));
    }

    pub(crate) fn remove(&self, segment: u64) {
        self.change(|list| list.retain(|r| r.segment != segment));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<BufferedSegment>)) {
        let changing = self.changes.lock();
        let mut list = Vec::clone(&self.list.load());
        change(&mut list);
        let old = self.list.swap(Arc::new(list));
        drop(changing);
        drop(old);
    }
}

/// See [`BufferedSegments::hold`].
pub(crate) struct HeldBuffered(Guard<Arc<Vec<BufferedSegment>>>);

impl HeldBuffered {
    /// See [`BufferedSegments::find`].
    pub(crate) fn find(&self, tier: TierName, slot: u32, segment: u64) -> Option<&BufferedSegment> {
        self.0.iter().find(|r| r.slot == slot && r.tier == tier && r.segment == segment)
    }
}

impl BufferedSegment {
    /// Returns the entry for a segment that is being filled.
    pub(crate) fn of(segment: &OpenSegment) -> BufferedSegment {
        let SegmentName { segment: number, slot, .. } = segment.name();
        let (tier, buffer) = (segment.shape().tier, segment.memory().buffer());
        BufferedSegment { tier, slot, segment: number, buffer }
    }

    /// Returns the readable bytes from a record's offset on, or nothing if there are none, as a reader with an outdated pointer
    /// may find. The record's header gives its end.
    #[inline]
    pub(crate) fn record(&self, offset: u32) -> &[u8] {
        self.buffer.get_from(offset as usize)
    }
}

/// Source of segment memory.
pub(crate) enum Backing {
    /// Anonymous memory of this process.
    Anonymous,
    /// A file whose pages outlive the process.
    Staging(Arc<StagingFile>),
}

/// A piece of segment memory.
pub(crate) struct PoolBuffer {
    pub(crate) memory: Appender,
    /// Number of the piece; in the staging file it begins at `index * (HEADER + bytes)`.
    pub(crate) index: usize,
}

struct Parked {
    segment: u64,
    piece: PoolBuffer,
}

/// The segment memory of a lane.
pub(crate) struct MemoryPool {
    backing: Backing,
    bytes: usize,
    state: Mutex<PoolState>,
}

struct PoolState {
    made: usize,
    /// Maximum number of pieces.
    limit: usize,
    parked: VecDeque<Parked>,
    /// An empty list of entries with capacity for those of a segment, for reuse: clearing fresh pages costs 3 % of small puts.
    entries: EntryList,
}

/// Number of attempts to reuse a segment's memory while readers hold it; a look-up in memory takes less than a microsecond.
const LOOKS_FOR_READERS: usize = 200;

/// Bytes of a piece's header in the staging file.
pub(crate) const STAGING_HEADER_BYTES: u64 = 4096;

impl MemoryPool {
    pub(crate) fn new(backing: Backing, bytes: usize, limit: usize) -> MemoryPool {
        MemoryPool {
            backing,
            bytes,
            state: Mutex::new(PoolState {
                made: 0,
                limit,
                parked: VecDeque::new(),
                entries: EntryList::new(),
            }),
        }
    }

    pub(crate) fn staging(&self) -> Option<&Arc<StagingFile>> {
        match &self.backing {
            Backing::Anonymous => None,
            Backing::Staging(file) => Some(file),
        }
    }

    /// Returns the offset of a piece in the staging file.
    pub(crate) fn staging_offset(index: usize, segment_bytes: u64) -> u64 {
        index as u64 * (STAGING_HEADER_BYTES + segment_bytes)
    }

    /// Returns memory for a new segment: a new piece, otherwise that of the segment sealed longest ago. Returns `None` if a
    /// reader holds that one, or if no segment is sealed; the caller retries soon.
    pub(crate) fn take(&self, buffered: &BufferedSegments) -> Result<Option<PoolBuffer>> {
        let mut state = self.state.lock();
        if state.made < state.limit {
            let index = state.made;
            match self.make(index) {
                Ok(memory) => {
                    state.made += 1;
                    return Ok(Some(PoolBuffer { memory, index }));
                }
                // The staging file's file system is full, which is common for `/dev/shm` of a container.
                Err(error) if is_full(&error) && index > 0 => {
                    tracing::warn!(pieces = index, %error, "the staging file's file system is full; using fewer segment buffers than planned");
                    state.limit = index;
                }
                Err(error) if is_full(&error) => {
                    return Err(Error::Io(DeviceError::Full {
                        shortage: Shortage::of(&error),
                        op: OperationKind::Allocate,
                        offset: 0,
                        bytes: self.bytes as u64,
                        path: "the staging file".into(),
                    }));
                }
                Err(error) => {
                    let what = format!("no memory for a segment buffer of {} bytes: {error}", self.bytes);
                    return Err(Error::invalid(what));
                }
            }
        }
        let Some(Parked { segment, piece }) = state.parked.pop_front() else { return Ok(None) };
        // Released early, so that parking memory waits for no reader.
        drop(state);
        buffered.remove(segment);
        // The segment can no longer be found, so its readers end soon: most of them during these attempts.
        let PoolBuffer { mut memory, index } = piece;
        for _ in 0..LOOKS_FOR_READERS {
            memory = match memory.recycle() {
                Ok(memory) => return Ok(Some(PoolBuffer { memory, index })),
                Err(memory) => memory,
            };
            std::hint::spin_loop();
        }
        let piece = PoolBuffer { memory, index };
        self.state.lock().parked.push_front(Parked { segment, piece });
        Ok(None)
    }

    /// Returns the approximate number of segments that memory is available for.
    pub(crate) fn available(&self) -> usize {
        let state = self.state.lock();
        state.limit - state.made + state.parked.len()
    }

    fn make(&self, index: usize) -> std::io::Result<Appender> {
        match &self.backing {
            Backing::Anonymous => SegmentBuffer::anonymous(self.bytes),
            Backing::Staging(file) => {
                let at = MemoryPool::staging_offset(index, self.bytes as u64);
                file.file.allocate(at, STAGING_HEADER_BYTES)?;
                SegmentBuffer::mapped(file, at + STAGING_HEADER_BYTES, self.bytes)
            }
        }
    }

    /// Returns an empty list of entries for a new segment.
    pub(crate) fn take_entries(&self) -> EntryList {
        std::mem::take(&mut self.state.lock().entries)
    }

    /// Keeps the memory of a segment that is sealed, or no longer needed, for reuse. `index` is the number of the piece.
    pub(crate) fn park(&self, segment: OpenSegment, index: usize) {
        let number = segment.name().segment;
        let (memory, mut entries) = segment.into_parts();
        entries.clear();
        let piece = PoolBuffer { memory, index };
        let mut state = self.state.lock();
        state.parked.push_back(Parked { segment: number, piece });
        let replaced = std::mem::replace(&mut state.entries, entries);
        drop(state);
        drop(replaced);
    }
}

#[cfg(test)]
mod tests {
    use esker_log::{Keyspace, Kind, Record, Secret, SegmentShape, Stream, TierIdentity};

    use super::*;

    #[test]
    fn readers_block_neither_segment_add_nor_memory_parking() {
        let (pool, buffered) = (MemoryPool::new(Backing::Anonymous, 1 << 16, 1), BufferedSegments::default());
        let segment = |segment, buffer| BufferedSegment { tier: TierName::Fast, slot: 0, segment, buffer };
        let piece = pool.take(&buffered).unwrap().unwrap();
        buffered.add(segment(1, piece.memory.buffer()));
        pool.state.lock().parked.push_back(Parked { segment: 1, piece });
        let (other, held) = (SegmentBuffer::anonymous(1 << 16).unwrap(), buffered.hold());
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                buffered.add(segment(2, other.buffer()));
                assert!(pool.take(&buffered).unwrap().is_none(), "a reader still holds it");
                assert!(pool.state.lock().parked.len() == 1);
                done.send(()).unwrap();
            });
            let ended = is_done.recv_timeout(std::time::Duration::from_secs(10));
            assert!(held.find(TierName::Fast, 0, 1).is_some());
            drop(held);
            ended.expect("neither an add nor a take waits for a reader");
        });
        assert!(buffered.find(TierName::Fast, 0, 2).is_some());
        assert!(pool.take(&buffered).unwrap().is_some());
    }

    #[test]
    fn segment_reuses_entry_list_of_parked_segment() {
        let secret = Secret { digest_key: [1, 2], salt: 3 };
        let shape = SegmentShape {
            tier: TierName::Fast,
            segment_bytes: 1 << 16,
            unit_bytes: 4096,
            granule_bytes: 16,
            identity: TierIdentity::NONE,
        };
        let (pool, buffered) = (MemoryPool::new(Backing::Anonymous, 1 << 16, 2), BufferedSegments::default());
        let fill = |records: u64| {
            let PoolBuffer { memory, index } = pool.take(&buffered).unwrap().unwrap();
            let name = SegmentName { segment: 1, slot: 0, epoch: 1, stream: Stream::LANE, opened_at: 0 };
            let mut segment = OpenSegment::new(shape, name, secret, memory);
            segment.reuse(pool.take_entries());
            for sequence in 0..records {
                let key = sequence.to_le_bytes();
                let record = Record {
                    kind: Kind::Put,
                    keyspace: Keyspace::FIRST,
                    key: &key,
                    value: &[],
                    compressed: None,
                    value_check: secret.value_check(&[]),
                    sequence,
                    expires_at_ms: None,
                    version: None,
                    batch_goes_on: false,
                    short_lived: false,
                };
                segment.append(&record, secret.key_hash(Keyspace::FIRST, &key));
            }
            assert_eq!(segment.entries().len() as u64, records);
            let list = segment.entries().memory_bytes();
            pool.park(segment, index);
            list
        };
        let first = fill(100);
        assert_eq!(fill(10), first);
    }
}
