//! Shared test helpers: a store's secret, segments built in memory, and random cases that replay from a seed.

use std::fmt::Debug;

use esker_device::SegmentBuffer;
use esker_log::{
    Census, Cleared, Databases, ExpiryWatermark, Keyspace, Kind, OpenSegment, Record, Secret, SegmentName,
    SegmentShape, Stream, Superblock, Tier, TierIdentity, record_bytes_max,
};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestRunner};

pub(crate) const SECRET: Secret =
    Secret { digest_key: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210], salt: 0x5bd1_e995_9e37_79b9 };

/// Runs `body` on random cases. The seed is fixed, so a run is the same everywhere; `ESKER_SEED` gives another one.
pub(crate) fn random<S>(test: &str, cases: u32, strategy: S, body: impl Fn(S::Value))
where
    S: Strategy,
    S::Value: Debug,
{
    let seed = std::env::var("ESKER_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let config =
        Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Config::default() };
    let result = TestRunner::new(config).run(&strategy, |case| {
        body(case);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}\nreplay with: ESKER_SEED={seed} cargo test -p esker-log --test format {test}");
    }
}

pub(crate) fn shape(segment_bytes: u32, unit_bytes: u32, granule_bytes: u32) -> SegmentShape {
    SegmentShape { tier: Tier::Fast, segment_bytes, unit_bytes, granule_bytes, identity: TierIdentity::NONE }
}

pub(crate) fn name(segment: u64) -> SegmentName {
    SegmentName { segment, slot: 3, epoch: 5, stream: Stream::LANE, opened_at: 99 }
}

pub(crate) fn open(shape: SegmentShape, name: SegmentName) -> OpenSegment {
    let memory = SegmentBuffer::anonymous(shape.segment_bytes as usize).expect("memory");
    OpenSegment::new(shape, name, SECRET, memory)
}

pub(crate) fn put<'a>(key: &'a [u8], value: &'a [u8], sequence: u64) -> Record<'a> {
    Record {
        kind: Kind::Put,
        keyspace: Keyspace::FIRST,
        key,
        value,
        compressed: None,
        value_check: SECRET.value_check(value),
        sequence,
        version: None,
        expires_at_ms: None,
        batch_goes_on: false,
        short_lived: false,
    }
}

/// Returns a record's bytes on the medium at `offset` of `segment`.
pub(crate) fn bytes_of(record: &Record<'_>, segment: u64, offset: u32) -> Vec<u8> {
    let header = record.encode_header(&SECRET.identity(segment, offset));
    [&header, record.key, record.value].concat()
}

/// One frame of a test segment: its range and its records.
#[derive(Clone, Debug)]
pub(crate) struct FrameAt {
    pub(crate) offset: usize,
    /// End of the last record.
    pub(crate) payload_end: usize,
    pub(crate) end: usize,
    /// Offsets of the records.
    pub(crate) records: Vec<u32>,
}

/// A segment that was written frame by frame.
pub(crate) struct Written {
    pub(crate) shape: SegmentShape,
    pub(crate) segment: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: Vec<FrameAt>,
    pub(crate) open: OpenSegment,
}

/// Writes a segment of `frames` frames of three records with long values. `durable(i, offsets)` returns
/// `durable_through` of frame `i`; `offsets` are those of the frames up to and including it.
pub(crate) fn write(
    shape: SegmentShape,
    name: SegmentName,
    frames: usize,
    durable: impl Fn(usize, &[u32]) -> u32,
) -> Written {
    write_values(shape, name, frames, |j| 700 + 300 * j, durable)
}

/// As [`write`]; `value_bytes(j)` returns the length of the value of a frame's record `j`.
pub(crate) fn write_values(
    shape: SegmentShape,
    name: SegmentName,
    frames: usize,
    value_bytes: impl Fn(usize) -> usize,
    durable: impl Fn(usize, &[u32]) -> u32,
) -> Written {
    let mut open = open(shape, name);
    let mut written = Vec::<FrameAt>::new();
    let mut sequence = 100;
    for i in 0..frames {
        let mut records = Vec::new();
        for j in 0..3 {
            let key = format!("key {i} {j}");
            let value = vec![(i * 16 + j) as u8; value_bytes(j)];
            sequence += 1;
            records.push(open.append(
                &put(key.as_bytes(), &value, sequence),
                SECRET.key_hash(Keyspace::FIRST, key.as_bytes()),
            ));
        }
        let mut offsets: Vec<u32> = written.iter().map(|f| f.offset as u32).collect();
        offsets.push(open.frame_offset());
        let closed = open.close_frame(durable(i, &offsets)).expect("it has records");
        written.push(FrameAt {
            offset: closed.offset as usize,
            payload_end: (closed.offset + closed.payload_bytes) as usize,
            end: closed.memory.end,
            records,
        });
    }
    let mut bytes = vec![0u8; shape.segment_bytes as usize];
    let tail = open.tail() as usize;
    bytes[..tail].copy_from_slice(open.memory().buffer().slice(0..tail));
    Written { shape, segment: name.segment, bytes, frames: written, open }
}

impl Written {
    /// Returns the bytes with the summary at their end.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let (start, summary) = self.open.summary();
        let mut bytes = self.bytes.clone();
        bytes[start as usize..].copy_from_slice(&summary);
        bytes
    }
}

pub(crate) fn superblock(unit_bytes: u64, generation: u64) -> Superblock {
    Superblock {
        generation,
        store_id: 0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00,
        fast: true,
        has_peer: true,
        epoch: 7,
        staging_epoch: 6,
        digest_key: SECRET.digest_key,
        salt: SECRET.salt,
        granule_bytes: 16,
        segment_bytes: 1 << 20,
        unit_bytes,
        data_offset: Superblock::data_offset_for(unit_bytes),
        used_slots: 64,
        staging_boot: 0x1112_1314_1516_1718,
        staging_bytes: 0x2122,
        census: Some(Census { segments: 3, sum: 0x0102_0304_0506_0708 }),
        cleared: cleared(),
        databases: Databases::default().swapped(1, 9),
        created_at_ms: 1_700_000_000_000,
        clock_ms: 1_750_000_000_000,
        expired: vec![ExpiryWatermark { sequence: 11, time_ms: 1_749_000_000_000 }],
        device_id: 0xa1a2_a3a4_a5a6_a7a8_a9aa_abac_adae_afb0,
        devices: Vec::new(),
        far_copies: Vec::new(),
        stripes: Vec::new(),
        moved: Vec::new(),
    }
}

fn cleared() -> Cleared {
    let mut cleared = Cleared::default();
    cleared.clear(Keyspace::FIRST, 12);
    cleared.clear(Keyspace::new(9).expect("one of sixteen"), 0x3334);
    cleared
}

/// Returns the maximum padded length of a record.
pub(crate) fn padded(shape: SegmentShape, key: usize, value: usize) -> u64 {
    shape.padded(record_bytes_max(key, value, false))
}
