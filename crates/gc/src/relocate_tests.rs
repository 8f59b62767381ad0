use esker_log::{Keyspace, Tier, TierIdentity};
use futures_util::FutureExt;
use parking_lot::Mutex;

use super::*;

const SECRET: Secret = Secret { digest_key: [1, 2], salt: 3 };
const SHAPE: SegmentShape = SegmentShape {
    tier: Tier::Capacity,
    segment_bytes: 64 << 10,
    unit_bytes: 4096,
    granule_bytes: 16,
    identity: TierIdentity::NONE,
};
const VALUE: [u8; 900] = [7; 900];

fn memory(bytes: usize) -> Appender {
    SegmentBuffer::anonymous(bytes.next_multiple_of(4096)).expect("memory")
}

fn segment(number: u64, stream: Stream, bytes: usize) -> OpenSegment {
    let name = SegmentName { segment: number, slot: number as u32, epoch: 1, stream, opened_at: 0 };
    OpenSegment::new(SHAPE, name, SECRET, memory(bytes))
}

/// Victims in memory, and few slots for copies: a second output is opened only if more than three slots are free.
struct FewSlots {
    /// Contents of the victims, by segment number.
    victims: BTreeMap<u64, Arc<SegmentBuffer>>,
    slots: Mutex<Slots>,
}

struct Slots {
    free: u32,
    opened: u64,
    /// Write stream of each output that was opened, by slot.
    streams: BTreeMap<u32, Stream>,
}

impl From<NoMemory> for () {
    fn from(_: NoMemory) {}
}

impl Source for FewSlots {
    type Error = ();

    fn need(&self, _: &Victim, _: &Entry) -> Need {
        Need::Record
    }

    /// The records of each victim go to a write stream of their own.
    fn place(&self, victim: &Victim, _: &RecordView<'_>) -> Stream {
        Stream::RELOCATED[victim.segment as usize % 2]
    }

    fn reads_at_once(&self) -> usize {
        1
    }

    async fn read(&self, victim: &Victim, offset: u32, bytes: u32) -> Result<(Buffer, usize), ()> {
        let at = offset as usize;
        Ok((Buffer::copy_from(self.victims[&victim.segment].slice(at..at + bytes as usize)), 0))
    }
}

impl Target for FewSlots {
    type Error = ();

    async fn open(&self, stream: Stream, bytes: usize, others: usize) -> Result<Opening, ()> {
        let mut slots = self.slots.lock();
        match slots.free {
            0 => return Ok(Opening::NoSlot),
            1..=3 if others > 0 => return Ok(Opening::NotBesideOthers),
            _ => {}
        }
        slots.free -= 1;
        slots.opened += 1;
        let output = segment(100 + slots.opened, stream, bytes);
        slots.streams.insert(output.name().slot, stream);
        Ok(Opening::Opened(Box::new(output)))
    }

    async fn write_frame(&self, _: SegmentName, _: Arc<SegmentBuffer>, _: ClosedFrame) -> Result<(), ()> {
        Ok(())
    }

    async fn seal(&self, output: OpenSegment) -> Result<(), ()> {
        assert!(output.entries().len() > 1, "a nearly empty segment is sealed");
        Ok(())
    }
}

/// Returns a victim whose copies fill more than half of an output segment.
fn victim(number: u64) -> OpenSegment {
    let mut victim = segment(number, Stream::LANE, SHAPE.segment_bytes as usize);
    for sequence in 1..=40 {
        let key = (number << 32 | sequence).to_le_bytes();
        let record = Record {
            kind: Kind::Put,
            keyspace: Keyspace::FIRST,
            key: &key,
            value: &VALUE,
            compressed: None,
            value_check: SECRET.value_check(&VALUE),
            sequence,
            expires_at_ms: None,
            version: None,
            batch_goes_on: false,
            short_lived: false,
        };
        victim.append(&record, SECRET.key_hash(Keyspace::FIRST, &key));
    }
    victim.close_frame(0).expect("it has records");
    victim
}

fn copy_all(free: u32) -> (Relocated, Slots) {
    let segments = [victim(1), victim(2), victim(3)];
    let of = |s: &OpenSegment| {
        let (segment, slot) = (s.name().segment, s.name().slot);
        let victim = Victim { segment, slot, shape: SHAPE, stream: Stream::LANE, records: s.entries().len() };
        (victim, s.entries().clone())
    };
    let victims: Vec<_> = segments.iter().map(of).collect();
    let bytes = segments.iter().map(|s| (s.name().segment, s.memory().buffer())).collect();
    let slots = Slots { free, opened: 0, streams: BTreeMap::new() };
    let host = FewSlots { victims: bytes, slots: Mutex::new(slots) };
    let mut outputs = Outputs::new();
    let inputs = Inputs { secret: &SECRET, victims: &victims, shape: SHAPE, frame_bytes: 16 << 10 };
    let copied = copy_needed(inputs, &host, &host, &mut outputs);
    let relocated = copied.now_or_never().expect("nothing waits").expect("nothing fails");
    let records: usize = victims.iter().map(|(_, entries)| entries.len()).sum();
    assert!(relocated.moves.len() <= records && relocated.damaged.is_empty());
    assert_eq!(relocated.out_of_room_at.is_none(), relocated.moves.len() == records);
    (relocated, host.slots.into_inner())
}

#[test]
fn an_output_that_is_full_makes_way_for_one_of_another_flow() {
    // At most three slots are free, so a second output is never opened beside an open one.
    let (relocated, slots) = copy_all(3);
    assert_eq!((relocated.out_of_room_at, slots.opened), (None, 2), "there are slots");
    assert_eq!(copy_all(1).0.out_of_room_at, Some(1), "the second victim needs a second slot");
}

#[test]
fn flows_have_outputs_of_their_own_where_there_are_slots() {
    let (relocated, slots) = copy_all(9);
    assert_eq!((relocated.out_of_room_at, slots.opened), (None, 3));
    let streams: Vec<Stream> = relocated.moves.iter().map(|m| slots.streams[&m.slot]).collect();
    let wanted: Vec<Stream> = relocated.moves.iter().map(|m| Stream::RELOCATED[(m.victim + 1) % 2]).collect();
    assert_eq!(streams, wanted);
}
