use std::collections::BTreeMap;

use esker_device::{Buffer, Device, MemoryDevice, Runtime, SegmentBuffer, Source, WriteMode};
use esker_index::IndexOptions;
use esker_log::{
    Cleared, Entry, Keyspace, Kind, OpenSegment, Packing, Record, SEGMENT_STEP, Secret, SegmentName, Stream,
    Superblock,
};

use super::*;

use crate::base::error::Error;
use crate::open::progress::Progress;
use crate::segments::tier::Tier;
use crate::testing::{EPOCH, Plan, SEGMENT_BYTES};

#[path = "recover_large_tests.rs"]
mod large;

const TIER: TierName = TierName::Capacity;
const COPIES_OF: Stream = Stream::RELOCATED[0];

/// A medium as a process left it.
struct Left {
    plan: Plan,
    superblock: Superblock,
    device: MemoryDevice,
    staged: Vec<Staged>,
    accept_loss: bool,
}

/// Parses a key name: `3:key` is a key of keyspace 3, without a prefix of the first keyspace.
fn named(key: &str) -> (Keyspace, &str) {
    let number = |number: &str| Keyspace::new(number.parse().expect("a number")).expect("below 16");
    key.split_once(':').map_or((Keyspace::FIRST, key), |(keyspace, key)| (number(keyspace), key))
}

/// The result of an opening.
struct Opened {
    tier: Arc<Tier>,
    index: Arc<Indexes>,
    packing: Packing,
    secret: Secret,
    recovered: Recovered,
}

/// A segment under construction.
struct Writing {
    open: OpenSegment,
    /// Start of each frame, and end of its content.
    frames: Vec<(u32, u32)>,
    /// True if the next record is in the same batch as the record after it.
    batch_goes_on: bool,
}

impl Writing {
    fn put(mut self, key: &str, sequence: u64) -> Writing {
        self.append(Kind::Put, key, sequence, &vec![sequence as u8; 300]);
        self
    }

    fn delete(mut self, key: &str, sequence: u64) -> Writing {
        self.append(Kind::Tombstone, key, sequence, &[]);
        self
    }

    /// Appends a put that is in the same batch as the next record.
    fn joined(mut self, key: &str, sequence: u64) -> Writing {
        self.batch_goes_on = true;
        self = self.put(key, sequence);
        self.batch_goes_on = false;
        self
    }

    fn append(&mut self, kind: Kind, key: &str, sequence: u64, value: &[u8]) {
        let secret = Plan::new(0).superblock(TIER).secret();
        let (keyspace, key) = named(key);
        let record = Record {
            kind,
            keyspace,
            key: key.as_bytes(),
            value,
            compressed: None,
            value_check: secret.value_check(value),
            sequence,
            expires_at_ms: None,
            version: None,
            batch_goes_on: self.batch_goes_on,
            short_lived: false,
        };
        self.open.append(&record, secret.key_hash(keyspace, key.as_bytes()));
    }

    /// Closes a frame, which states that everything before it is durable, or nothing.
    fn frame(mut self, all_durable: bool) -> Writing {
        let durable_through = if all_durable { self.open.frame_offset() } else { 0 };
        let frame = self.open.close_frame(durable_through).expect("there is something in it");
        self.frames.push((frame.offset, frame.offset + frame.payload_bytes));
        self
    }
}

impl Left {
    fn new() -> Left {
        let plan = Plan::new(1);
        let (superblock, device) = (plan.superblock(TIER), plan.device());
        Left { plan, superblock, device, staged: Vec::new(), accept_loss: false }
    }

    fn begin(&self, segment: u64, slot: u32, stream: Stream) -> Writing {
        let name = SegmentName { segment, slot, epoch: EPOCH, stream, opened_at: segment };
        let memory = SegmentBuffer::anonymous(SEGMENT_BYTES as usize).expect("there is memory");
        let open = OpenSegment::new(self.plan.shape(TIER), name, self.superblock.secret(), memory);
        Writing { open, frames: Vec::new(), batch_goes_on: false }
    }

    fn at(&self, slot: u32, offset: u32) -> u64 {
        self.superblock.data_offset + u64::from(slot) * u64::from(SEGMENT_BYTES) + u64::from(offset)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let written = self.device.write(at, Source::Owned(Buffer::copy_from(bytes)), WriteMode::Durable);
        self.plan.world.run(written).expect("it is written");
    }

    /// Writes the segment to the device without a summary. Returns its frames.
    fn unsealed(&self, segment: Writing) -> Vec<(u32, u32)> {
        let frames = segment.open.memory().buffer();
        self.write(self.at(segment.open.name().slot, 0), frames.slice(0..segment.open.tail() as usize));
        segment.frames
    }

    /// Writes the segment to the device with its summary. Returns the offset of the summary.
    fn sealed(&self, segment: Writing) -> u32 {
        let (start, summary) = segment.open.summary();
        self.write(self.at(segment.open.name().slot, start), &summary);
        self.unsealed(segment);
        start
    }

    /// Puts the segment into the staging file.
    fn staged(&mut self, segment: Writing) {
        let (memory, mut bytes) = (segment.open.memory().buffer(), vec![0; SEGMENT_BYTES as usize]);
        let entries: Vec<Entry> = segment.open.entries().iter().collect();
        // The header of the open frame is not written yet.
        for entry in &entries {
            let record = entry.offset as usize..(entry.offset + entry.bytes) as usize;
            bytes[record.clone()].copy_from_slice(memory.slice(record));
        }
        self.staged.push(Staged { segment: segment.open.name().segment, bytes, entries });
    }

    fn open(&self) -> Result<Opened> {
        self.open_with(None)
    }

    fn open_with(&self, hash_bits: Option<u32>) -> Result<Opened> {
        let tier = self.plan.tier(TIER, &self.device);
        let runtime: Arc<dyn Runtime> = Arc::new(self.plan.world.clone());
        let index = Arc::new(Indexes::new(IndexOptions { hash_bits, ..IndexOptions::default() }));
        let (packing, secret) = (self.plan.packing(), self.superblock.secret());
        let context = RecoveryContext {
            runtime: &runtime,
            tiers: vec![(&tier, &self.superblock)],
            secret,
            packing,
            index: &index,
            expansions: &Arc::default(),
            cleared: Cleared::of([&self.superblock]),
            known_ms: 0,
            accept_loss: self.accept_loss,
            progress: Progress::default(),
            memory_bytes: 16 << 20,
        };
        let reading = async { Ok(self.staged.clone()) };
        let (_, recovered) = self.plan.world.run(context.recover(reading))?;
        Ok(Opened { tier, index, packing, secret, recovered })
    }
}

impl Opened {
    /// Returns the slot with a key's record; `None` if the key is absent.
    fn slot_of(&self, key: &str) -> Option<u32> {
        let (keyspace, key) = named(key);
        let hash = self.secret.key_hash(keyspace, key.as_bytes());
        let pointer = self.index.get_exact(&hash).or_else(|| self.index.get(&hash))?;
        Some(self.packing.unpack(pointer.get()).slot)
    }

    fn slots_of<const N: usize>(&self, keys: [&str; N]) -> [Option<u32>; N] {
        keys.map(|key| self.slot_of(key))
    }

    /// Returns the number of live records by slot: all puts have the same length.
    fn live(&self) -> BTreeMap<u32, i64> {
        let header = esker_log::record_header_bytes(1, 300, 1, None);
        let padded = self.tier.shape().padded(header + 1 + 300) as i64;
        let slots = self.tier.slots().all().filter_map(|(slot, s)| Some((slot, s?)));
        let puts = slots.map(|(slot, s)| (slot, s.live_bytes() - s.tombstone_bytes()));
        puts.filter(|(_, bytes)| *bytes != 0).map(|(slot, bytes)| (slot, bytes / padded)).collect()
    }
}

#[test]
fn the_newest_version_of_each_key_wins_wherever_it_lies() {
    for [old, new, open] in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [7, 0, 15]] {
        let left = Left::new();
        left.sealed(
            left.begin(10, old, Stream::LANE).put("a", 1).put("b", 2).put("c", 3).put("d", 4).frame(true),
        );
        left.sealed(left.begin(20, new, Stream::LANE).put("a", 5).delete("c", 6).frame(true));
        left.unsealed(left.begin(30, open, Stream::LANE).put("b", 7).put("e", 8).frame(true));
        // Either every key has its own stored hash, or all keys share one.
        for hash_bits in [None, Some(0)] {
            let opened = left.open_with(hash_bits).expect("nothing is damaged");
            let found = opened.index.len();
            assert_eq!(found, 4, "{hash_bits:?}");
            if hash_bits.is_none() {
                let slots = opened.slots_of(["a", "b", "c", "d", "e"]);
                assert_eq!(slots, [Some(new), Some(open), None, Some(old), Some(open)]);
            }
            assert_eq!(opened.live(), BTreeMap::from([(old, 1), (new, 1), (open, 2)]), "{hash_bits:?}");
            assert!(opened.tier.tombstone_bytes() > 0, "a tombstone counts");
            let Recovered { unsealed, redundant, max_sequence, max_segment, .. } = opened.recovered;
            assert_eq!((max_sequence, max_segment, redundant), (8, 30, Vec::new()));
            assert_eq!(unsealed.iter().map(|u| (u.segment, u.slot)).collect::<Vec<_>>(), [(30, open)]);
            assert_eq!(opened.tier.free_slots(), 13);
        }
    }
}

#[test]
fn recovery_skips_records_before_clear() {
    let mut left = Left::new();
    left.sealed(left.begin(10, 0, Stream::LANE).put("a", 1).put("b", 2).put("c", 3).frame(true));
    left.superblock.cleared.clear(Keyspace::FIRST, 2);
    let opened = left.open().expect("nothing is damaged");
    assert_eq!(opened.slots_of(["a", "b", "c"]), [None, None, Some(0)]);
}

#[test]
fn keyspaces_are_recovered_one_beside_the_other() {
    let mut left = Left::new();
    let old = left.begin(10, 0, Stream::LANE).put("a", 1).put("3:a", 2).put("15:a", 3).put("15:b", 4);
    left.sealed(old.frame(true));
    left.sealed(left.begin(20, 1, Stream::LANE).put("3:a", 5).delete("15:a", 6).put("15:c", 7).frame(true));
    left.unsealed(left.begin(30, 2, Stream::LANE).put("3:b", 8).put("a", 9).frame(true));
    for hash_bits in [None, Some(0)] {
        let opened = left.open_with(hash_bits).expect("nothing is damaged");
        let keys = [0, 3, 15].map(|number| opened.index.len_of(Keyspace::new(number).expect("below 16")));
        assert_eq!(keys, [1, 2, 2], "{hash_bits:?}");
        assert_eq!(opened.live(), BTreeMap::from([(0, 1), (1, 2), (2, 2)]), "{hash_bits:?}");
        if hash_bits.is_none() {
            let slots = opened.slots_of(["a", "3:a", "3:b", "15:a", "15:b", "15:c", "7:a"]);
            assert_eq!(slots, [Some(2), Some(1), Some(2), None, Some(0), Some(1), None]);
        }
    }
    left.superblock.cleared.clear(Keyspace::new(15).expect("below 16"), 6);
    left.superblock.cleared.clear(Keyspace::new(3).expect("below 16"), 8);
    let opened = left.open().expect("nothing is damaged");
    let slots = opened.slots_of(["a", "3:a", "3:b", "15:a", "15:b", "15:c"]);
    assert_eq!(slots, [Some(2), None, None, None, None, Some(1)]);
    assert_eq!(opened.live(), BTreeMap::from([(1, 1), (2, 1)]));
    assert_eq!(opened.recovered.max_sequence, 9);
}

/// Three frames of an open segment, of which the first two are durable, with a flipped bit in the last one.
#[test]
fn the_torn_tail_of_the_newest_segment_is_dropped() {
    for step in 0..60 {
        let left = Left::new();
        let segment = left.begin(10, 3, Stream::LANE).put("a", 1).frame(true).put("b", 2).frame(true);
        let frames = left.unsealed(segment.put("c", 3).put("d", 4).frame(true));
        let (start, end) = frames[2];
        left.device.corrupt(left.at(3, start + (end - start) * step / 60), 0x40);
        let opened = left.open().unwrap_or_else(|error| panic!("at {step}: {error}"));
        assert_eq!(opened.slots_of(["a", "b", "c", "d"]), [Some(3), Some(3), None, None], "at {step}");
        assert_eq!(opened.recovered.unsealed[0].tail, start, "at {step}");
    }
}

#[test]
fn a_hole_in_any_other_segment_is_a_loss() {
    for later in [false, true] {
        let mut left = Left::new();
        let segment = left.begin(10, 3, Stream::LANE).put("a", 1).frame(false).put("b", 2).frame(false);
        let frames = left.unsealed(segment.put("c", 3).frame(false));
        if later {
            // The next segment's first frame was written after this segment was durable as a whole.
            left.unsealed(left.begin(20, 4, Stream::LANE).put("d", 4).frame(false));
        }
        left.device.corrupt(left.at(3, frames[1].0), 0x40);
        match (left.open(), later) {
            (Ok(opened), false) => {
                assert_eq!(opened.slots_of(["a", "b", "c"]), [Some(3), None, None], "a frame was torn");
            }
            (Err(Error::Corrupt { segment, offset, .. }), true) => {
                assert_eq!((segment, offset), (10, u64::from(frames[1].0)));
                left.accept_loss = true;
                let opened = left.open().expect("the loss is accepted");
                let slots = opened.slots_of(["a", "b", "c", "d"]);
                assert_eq!(slots, [Some(3), None, Some(3), Some(4)], "only what cannot be read is lost");
            }
            (opened, _) => panic!("later: {later}, opened: {:?}", opened.err()),
        }
    }
}

/// Only the direct follower of a segment states where the segment ended. The follower may be freed, its records
/// rewritten, while the segment's summary is still being written; the next segment states where the follower ended, and
/// nothing about the segment before.
#[test]
fn where_a_segment_ended_is_told_by_the_next_one_alone() {
    let numbers = [1, 2, 3].map(|number| number * SEGMENT_STEP);
    for records_of_next in [1, 9] {
        for next_is_there in [false, true] {
            let left = Left::new();
            let first =
                left.begin(numbers[0], 1, Stream::LANE).put("a", 1).frame(true).put("b", 2).frame(true);
            let first_tail = first.open.tail();
            let frames = left.unsealed(first);
            let mut next = left.begin(numbers[1], 2, Stream::LANE);
            next.open.set_follows(numbers[0], first_tail);
            let next =
                (0..records_of_next).fold(next, |next, n| next.put(&format!("c{n}"), 3 + n)).frame(true);
            let next_tail = next.open.tail();
            if next_is_there {
                left.sealed(next);
            }
            let mut last = left.begin(numbers[2], 3, Stream::LANE);
            last.open.set_follows(numbers[1], next_tail);
            left.unsealed(last.put("d", 20).frame(true));
            let opened = left.open().expect("nothing is damaged");
            assert_eq!(opened.slots_of(["a", "b", "d"]), [Some(1), Some(1), Some(3)], "ended at {next_tail}");
            // The last frame of a segment is proven durable by the next segment.
            left.device.corrupt(left.at(1, frames[1].0), 0x40);
            let lost = left.open().err().map(|error| matches!(error, Error::Corrupt { .. }));
            assert_eq!(lost, next_is_there.then_some(true));
        }
    }
}

#[test]
fn recovery_finds_records_by_frames_if_summary_is_damaged() {
    for behind in [0, 9, 17] {
        let left = Left::new();
        let segment = left.begin(10, 3, Stream::LANE).put("a", 1).frame(true).put("b", 2).frame(true);
        let start = left.sealed(segment);
        left.sealed(left.begin(20, 4, Stream::LANE).put("b", 3).frame(true));
        left.device.corrupt(left.at(3, start + behind), 0x40);
        let opened = left.open().expect("the frames are whole");
        assert_eq!(opened.slots_of(["a", "b"]), [Some(3), Some(4)]);
        assert_eq!(
            opened.live(),
            BTreeMap::from([(3, 1), (4, 1)]),
            "what was loaded before does not count twice"
        );
        assert_eq!(opened.recovered.unsealed.len(), 1, "it is to be sealed again");
    }
}

#[test]
fn copies_of_a_relocation_that_a_crash_ended_are_redundant() {
    for has_more in [false, true] {
        let left = Left::new();
        left.sealed(left.begin(10, 1, Stream::LANE).put("a", 1).put("b", 2).put("c", 3).frame(true));
        left.sealed(left.begin(20, 2, Stream::LANE).put("d", 4).frame(true));
        let copies = left.begin(30, 0, COPIES_OF).put("a", 1).put("d", 4);
        // A record whose victim was freed exists only here.
        let copies = if has_more { copies.put("e", 5) } else { copies };
        left.unsealed(copies.frame(true));
        let opened = left.open().expect("nothing is damaged");
        let slots = opened.slots_of(["a", "b", "c", "d"]);
        assert_eq!(slots, [Some(1), Some(1), Some(1), Some(2)], "the older copy counts");
        let (redundant, unsealed) = (&opened.recovered.redundant, &opened.recovered.unsealed);
        if has_more {
            assert_eq!((redundant.len(), unsealed.len()), (0, 1), "the segment is needed");
            assert_eq!(opened.slot_of("e"), Some(0));
            let opened_at = |slot| opened.tier.slot(slot).opened_at();
            assert_eq!(
                [0, 1, 2].map(opened_at),
                [0, 10, 20],
                "tombstones are needed as long as copies are left"
            );
        } else {
            assert_eq!((&**redundant, unsealed.len()), (&[(TIER, 0)][..], 0));
        }
    }
}

#[test]
fn staged_records_win_where_they_are_the_newest() {
    let mut left = Left::new();
    left.sealed(left.begin(10, 1, Stream::LANE).put("a", 1).put("b", 4).put("c", 3).frame(true));
    // Part of the staged segment had been written.
    left.unsealed(left.begin(20, 2, Stream::LANE).put("d", 5).frame(true));
    let staged = left.begin(20, 2, Stream::LANE).put("d", 5).frame(true);
    left.staged(staged.put("a", 6).put("e", 7).delete("c", 8).put("e", 9));
    left.staged(left.begin(5, 9, Stream::LANE).put("b", 2));
    let opened = left.open().expect("nothing is damaged");
    let staged = opened.recovered.staged.iter();
    let staged = staged.map(|record| (record.piece, record.entry.sequence, record.is_newest));
    assert_eq!(
        staged.collect::<Vec<_>>(),
        [(0, 6, true), (0, 7, false), (0, 8, true), (0, 9, true)],
        "in the order of their numbers, without what is on the device and what the device has newer versions of"
    );
    let slots = opened.slots_of(["a", "b", "c", "d", "e"]);
    assert_eq!(slots, [None, Some(1), None, Some(2), None], "those that won are still to be written");
    assert_eq!(opened.live(), BTreeMap::from([(1, 1), (2, 1)]));
    assert_eq!(opened.recovered.max_sequence, 9);
}

/// An eviction leaves a tombstone with the sequence number of the record that it dropped. Copies of that record may
/// remain in other segments.
#[test]
fn tombstone_of_same_number_hides_its_record() {
    for [record, tombstone] in [[10, 20], [20, 10]] {
        let left = Left::new();
        left.sealed(left.begin(record, 1, Stream::LANE).put("a", 1).put("b", 2).frame(true));
        left.sealed(left.begin(tombstone, 2, COPIES_OF).delete("a", 1).frame(true));
        let opened = left.open().expect("nothing is damaged");
        assert_eq!(opened.slots_of(["a", "b"]), [None, Some(1)]);
    }
}

/// A staged record becomes durable only when the opening writes it.
#[test]
fn a_durable_copy_is_preferred_to_a_staged_one() {
    let mut left = Left::new();
    left.sealed(left.begin(10, 1, COPIES_OF).put("a", 1).frame(true));
    left.staged(left.begin(5, 9, Stream::LANE).put("a", 1));
    let opened = left.open().expect("nothing is damaged");
    assert_eq!(opened.slot_of("a"), Some(1));
    assert!(opened.recovered.staged.is_empty() && opened.recovered.redundant.is_empty());
}

/// The power may fail while staged records are written; a device may then have a newer version of one key of a batch.
#[test]
fn staged_batch_is_written_whole() {
    let mut left = Left::new();
    left.sealed(left.begin(10, 1, Stream::LANE).put("b", 8).frame(true));
    left.staged(left.begin(5, 9, Stream::LANE).joined("a", 6).put("b", 7).put("b", 5));
    let opened = left.open().expect("nothing is damaged");
    let staged = opened.recovered.staged.iter().map(|record| (record.entry.sequence, record.is_newest));
    assert_eq!(staged.collect::<Vec<_>>(), [(6, true), (7, false)]);
}

/// If a store was overwritten everywhere, only the summary of the newest segment is read twice.
#[test]
fn segments_are_loaded_newest_first() {
    let reads = |newest: &str| {
        let left = Left::new();
        for slot in 0..6 {
            let keys = [0, 1, 2].map(|number| format!("old {slot} {number}"));
            let segment = left.begin(10 + u64::from(slot), slot, Stream::LANE);
            let filled =
                (0..).zip(&keys).fold(segment, |open, (n, key)| open.put(key, 1 + 3 * u64::from(slot) + n));
            left.sealed(filled.frame(true));
        }
        let last = (0..18).fold(left.begin(20, 6, Stream::LANE), |open, number| {
            open.put(&format!("{newest} {} {}", number / 3, number % 3), 100 + number)
        });
        left.sealed(last.frame(true));
        let reads = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let seen = reads.clone();
        left.device.set_observer(Box::new(move |operation| {
            let is_read = operation.kind == esker_device::OperationKind::Read;
            seen.fetch_add(u64::from(is_read), std::sync::atomic::Ordering::Relaxed);
        }));
        left.open().expect("nothing is damaged");
        reads.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(reads("old") - reads("new"), 1);
}
