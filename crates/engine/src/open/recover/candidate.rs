//! Candidates: summary entries on their way into the index.

use esker_index::{Indexes, KeyHash, Keyspace, Pointer};
use esker_log::{Entry, Kind, Location, PACKED_BITS, Packing, Tier as TierName, digest_of};
use esker_seeded_bugs::{Bug, planted};

use super::context::{RecoveryContext, Segment};

/// A summary entry on its way into the index: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// First half of the key's digest. Its lower 16 bits repeat the upper ones, so they are replaced by the upper bits of the
    /// record's length.
    slot_and_length: u64,
    check: u64,
    pub(super) sequence: u64,
    pub(super) place: Address,
}

/// 54 bits of packed location, 1 bit for a tombstone, 1 bit for a staged record, and the lower 8 bits of the length in
/// granules; or the number of a staged record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Address(u64);

const TOMBSTONE: u64 = 1 << PACKED_BITS;
/// Set, together with `TOMBSTONE`, for a staged record.
const STAGED: u64 = TOMBSTONE << 1;
/// Position of the lower bits of the length in an address.
const LENGTH_SHIFT: u32 = PACKED_BITS + 2;
/// Number of length bits in an address.
const LENGTH_BITS: u32 = u64::BITS - LENGTH_SHIFT;
/// Bits of the digest's first half that hold the upper bits of the length.
const UPPER_LENGTH: u64 = 0xffff;
const _: () = assert!(esker_log::SEGMENT_GRANULES_MAX <= (UPPER_LENGTH + 1) << LENGTH_BITS);
/// Bits of the number of a record within its piece of the staging file.
const STAGED_NUMBER_BITS: u32 = 27;

impl Address {
    /// No location.
    const NOWHERE: Address = Address(0);

    #[inline]
    fn of(packing: &Packing, segment: &Segment, entry: &Entry) -> Address {
        let location =
            Location { tier: segment.tier, slot: segment.slot, offset: entry.offset, class: entry.class() };
        let tombstone = if entry.kind == Kind::Tombstone { TOMBSTONE } else { 0 };
        Address(packing.pack(location) | tombstone)
    }

    fn of_staged(piece: usize, number: usize) -> Address {
        Address(STAGED | TOMBSTONE | (piece as u64) << STAGED_NUMBER_BITS | number as u64)
    }

    /// Returns true if it can be in the index: neither a tombstone nor a staged record.
    #[inline]
    pub(super) fn is_put(self) -> bool {
        self.0 & TOMBSTONE == 0
    }

    /// Returns true for a tombstone on a device.
    pub(super) fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0 && self.staged().is_none()
    }

    /// Returns piece and number of a staged record.
    pub(super) fn staged(self) -> Option<(usize, usize)> {
        let piece = ((self.0 & (TOMBSTONE - 1)) >> STAGED_NUMBER_BITS) as usize;
        let number = (self.0 & ((1 << STAGED_NUMBER_BITS) - 1)) as usize;
        (self.0 & STAGED != 0).then_some((piece, number))
    }

    /// Returns the packed location of a record that is not staged.
    #[inline]
    pub(super) fn packed(self) -> u64 {
        self.0 & (TOMBSTONE - 1)
    }
}

impl Candidate {
    /// Fills unused places in batches.
    pub(super) const NOBODY: Candidate =
        Candidate { slot_and_length: 0, check: 0, sequence: 0, place: Address::NOWHERE };

    #[inline]
    pub(super) fn new(packing: &Packing, segment: &Segment, entry: &Entry) -> Candidate {
        let hash = match planted(Bug::KeyspaceForgotten) {
            true => entry.key_hash.in_keyspace(Keyspace::FIRST),
            false => entry.key_hash,
        };
        let mut candidate = Candidate::at(hash, entry.sequence, Address::of(packing, segment, entry));
        let granules = packing.granules(entry.bytes);
        candidate.slot_and_length |= granules >> LENGTH_BITS;
        candidate.place.0 |= granules << LENGTH_SHIFT;
        candidate
    }

    pub(super) fn of_staged(piece: usize, number: usize, entry: &Entry) -> Candidate {
        Candidate::at(entry.key_hash, entry.sequence, Address::of_staged(piece, number))
    }

    #[inline]
    fn at(hash: KeyHash, sequence: u64, place: Address) -> Candidate {
        debug_assert_eq!(hash, digest_of(hash.slot, hash.check), "summaries keep as much of a digest");
        Candidate { slot_and_length: hash.slot & !UPPER_LENGTH, check: hash.check, sequence, place }
    }

    /// Returns the key's digest.
    #[inline]
    pub(super) fn hash(&self) -> KeyHash {
        digest_of(self.slot_and_length, self.check)
    }

    /// Returns the padded length of a record that is not staged, in bytes.
    #[inline]
    pub(super) fn padded_bytes(&self, packing: &Packing) -> i64 {
        let granules = (self.slot_and_length & UPPER_LENGTH) << LENGTH_BITS | self.place.0 >> LENGTH_SHIFT;
        (granules * packing.granule_bytes) as i64
    }

    /// Returns the index pointer of a record that is neither a tombstone nor staged.
    #[inline]
    pub(super) fn pointer(&self) -> Pointer {
        Pointer::new(self.place.packed()).expect("a record never begins at offset 0")
    }

    /// Sort key: stored hash, then key; the newest version of a key comes first, and among its copies one on a device.
    pub(super) fn order(&self, index: &Indexes) -> impl Ord + use<> {
        let newest_first = std::cmp::Reverse(self.sequence);
        let hash = self.hash();
        (index.stored_hash(&hash), hash.slot, hash.check, newest_first, self.place)
    }
}

/// Slots per allocation of [`Live`].
const LIVE_CHUNK: usize = 64;

/// Bytes of current records and of tombstones, by tier and slot. Takes memory only for chunks of slots in which a slot
/// holds records.
#[derive(Default)]
pub(super) struct Live(Vec<(TierName, Vec<LiveChunk>)>);

type LiveChunk = Option<Box<[[i64; 2]; LIVE_CHUNK]>>;

impl Live {
    pub(super) fn new(tiers: impl Iterator<Item = (TierName, usize)>) -> Live {
        let chunks = |slots: usize| (0..slots.div_ceil(LIVE_CHUNK)).map(|_| None).collect();
        Live(tiers.map(|(tier, slots)| (tier, chunks(slots))).collect())
    }

    #[inline]
    pub(super) fn add(&mut self, tier: TierName, slot: u32, bytes: i64, tombstone: bool) {
        let (_, live) =
            self.0.iter_mut().find(|(name, _)| *name == tier).expect("segments lie on tiers of the store");
        let chunk = live[slot as usize / LIVE_CHUNK].get_or_insert_with(|| Box::new([[0; 2]; LIVE_CHUNK]));
        chunk[slot as usize % LIVE_CHUNK][usize::from(tombstone)] += bytes;
    }

    /// Adds a record that became current (1), or subtracts one that is not (-1).
    #[inline]
    pub(super) fn count(&mut self, packing: &Packing, candidate: &Candidate, sign: i64) {
        let Location { tier, slot, .. } = packing.unpack(candidate.place.packed());
        self.add(tier, slot, sign * candidate.padded_bytes(packing), !candidate.place.is_put());
    }

    /// Returns the slots with nonzero counts.
    pub(super) fn into_slots(self) -> impl Iterator<Item = (TierName, u32, [i64; 2])> {
        let slots = |(tier, live): (TierName, Vec<LiveChunk>)| {
            let chunks =
                (0..).step_by(LIVE_CHUNK).zip(live).filter_map(|(first, chunk)| Some((first, chunk?)));
            chunks.flat_map(move |(first, chunk): (u32, _)| {
                let all = (first..).zip(*chunk).filter(|(_, bytes)| *bytes != [0; 2]);
                all.map(move |(slot, bytes)| (tier, slot, bytes))
            })
        };
        self.0.into_iter().flat_map(slots)
    }
}

impl RecoveryContext<'_> {
    pub(super) fn no_live(&self) -> Live {
        Live::new(self.tiers.iter().map(|(tier, _)| (tier.name(), tier.slots_total() as usize)))
    }

    pub(super) fn count_live(&self, live: Live) {
        for (tier, slot, [puts, tombstones]) in live.into_slots() {
            self.tier(tier).add_live(slot, puts);
            self.tier(tier).add_tombstones(slot, tombstones);
        }
    }
}
