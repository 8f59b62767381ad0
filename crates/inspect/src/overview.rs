//! Identity and usage of a store, from the superblocks and the ends of its slots alone.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_log::{Databases, FORMAT_VERSION, FoundSlot, Keyspace, SegmentClass, SlotEnds, Superblock};
use serde::Serialize;

use crate::error::Result;
use crate::find_superblock;
use crate::slots::{TierSlots, is_plainly_free};
use crate::store::{StoreView, TierView};
use crate::superblocks::SuperblockCopy;

/// Limit of reads of the superblock copies, which differ while a server writes them.
const LOOKS_MAX: u32 = 5;

/// Delay between two reads.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The state in which a store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Another process has the store open, so the data shown can change at any time.
    InUse,
    /// Closed: the superblocks state the store's content.
    Closed,
    /// The process ended without closing the store. Opening recovers the acknowledged
    /// writes, as far as their durability level promises.
    NotClosed,
}

/// Overview of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Its identity, the same on its tiers.
    pub store_id: String,
    /// Format version of the bytes on the devices.
    pub format_version: u64,
    /// The state in which it was left.
    pub state: State,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the last superblock write, as far as the store had confirmed it, in milliseconds since the
    /// Unix epoch.
    pub clock_ms: u64,
    /// Number of openings.
    pub epoch: u64,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Alignment of records in bytes.
    pub granule_bytes: u64,
    /// Highest sequence number in a sealed segment: about the number of writes.
    pub highest_sequence: u64,
    /// Per database: the sequence number up to which its records were cleared.
    pub cleared_through: Vec<u64>,
    /// The keyspace of each database: its number, unless it was swapped.
    pub keyspaces: Vec<u8>,
    /// Records of all versions in sealed segments.
    pub records: u64,
    /// Its tiers.
    pub tiers: Vec<TierOverview>,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// Overview of a tier.
#[derive(Clone, Debug, Serialize)]
pub struct TierOverview {
    /// `fast` or `capacity`.
    pub name: &'static str,
    /// The file or device.
    pub path: String,
    /// Length of the file or device in bytes.
    pub device_bytes: u64,
    /// Write unit in bytes: the indirection unit on the capacity tier.
    pub unit_bytes: u64,
    /// Byte offset of slot 0.
    pub data_offset: u64,
    /// Number of superblock writes.
    pub generation: u64,
    /// Copies of the superblock.
    pub superblock_copies: Vec<SuperblockCopy>,
    /// Slots that were ever prepared. A file grows beyond them, up to the limit with which it is opened.
    pub slots: u64,
    /// Numbers of free, sealed, open and unclear slots.
    pub states: States,
    /// Usage of the bytes of these slots.
    pub space: Space,
    /// The segments by class, that is by the origin of their records.
    #[serde(serialize_with = "crate::class::by_name")]
    pub classes: BTreeMap<SegmentClass, ClassOverview>,
    /// Bytes in segments by the activity that wrote them.
    pub written: Written,
}

/// Slots by state.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct States {
    /// Empty.
    pub free: u64,
    /// Written, with a summary.
    pub sealed: u64,
    /// Begun, without a summary: being written, or interrupted.
    pub open: u64,
    /// Start and end contradict each other, or cannot be read: see `esker check`.
    pub unclear: u64,
}

/// Bytes of slots.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Space {
    /// Frames of sealed segments: records and their padding, current or superseded.
    pub frames_bytes: u64,
    /// Summaries.
    pub summary_bytes: u64,
    /// Gaps between the last frame and the summary.
    pub gap_bytes: u64,
    /// Segments without a summary.
    pub open_bytes: u64,
    /// Free slots.
    pub free_bytes: u64,
}

/// Segments of a class.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ClassOverview {
    /// Number of segments.
    pub segments: u64,
    /// Records in the sealed ones.
    pub records: u64,
    /// Bytes of the frames in the sealed ones.
    pub frames_bytes: u64,
}

/// Bytes in sealed segments now, by the activity that wrote them. The history before that is unknown
/// here: a running server counts it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Written {
    /// Writes of users.
    pub user_bytes: u64,
    /// Destaging, from the fast tier.
    pub destaged_bytes: u64,
    /// Collection of segments with garbage.
    pub collected_bytes: u64,
    /// Summaries, one per segment.
    pub summary_bytes: u64,
}

impl StoreView {
    /// Returns an overview of the store. Reads only the ends of its slots.
    ///
    /// # Errors
    /// If a device cannot be read.
    pub fn overview(&self) -> Result<Overview> {
        let first = &self.tiers[0].superblock;
        let bits = self.databases.bits();
        let keyspaces = || (0..Databases::COUNT).map(|database| Databases::keyspace(bits, database));
        let (mut tiers, mut records, mut highest) = (Vec::new(), 0, 0);
        for tier in &self.tiers {
            let slots = tier.slots();
            for footer in slots.found.iter().filter_map(|found| found.footer) {
                records += u64::from(footer.entries);
                highest = highest.max(footer.max_sequence);
            }
            tiers.push(tier.overview(&slots)?);
        }
        Ok(Overview {
            store_id: format!("{:032x}", first.store_id),
            format_version: FORMAT_VERSION,
            state: self.state(),
            created_at_ms: first.created_at_ms,
            clock_ms: self.tiers.iter().map(|tier| tier.superblock.clock_ms).max().unwrap_or(0),
            epoch: self.tiers.iter().map(|tier| tier.superblock.epoch).max().unwrap_or(0),
            segment_bytes: first.segment_bytes,
            granule_bytes: first.granule_bytes,
            highest_sequence: highest,
            cleared_through: keyspaces().map(|keyspace| self.cleared.through(keyspace)).collect(),
            keyspaces: keyspaces().map(Keyspace::number).collect(),
            records,
            notes: self.notes(&tiers),
            tiers,
        })
    }

    /// Returns the state in which the store was left.
    pub fn state(&self) -> State {
        match (self.is_in_use(), self.is_closed()) {
            (true, _) => State::InUse,
            (false, true) => State::Closed,
            (false, false) => State::NotClosed,
        }
    }

    fn notes(&self, tiers: &[TierOverview]) -> Vec<String> {
        let mut notes = Vec::new();
        match self.state() {
            State::InUse => notes.push("another process has it open: the values may change meanwhile".to_owned()),
            State::NotClosed => notes.push(
                "it was not closed; opening it recovers the acknowledged writes, also from the staging file, which is not \
                 read here"
                    .to_owned(),
            ),
            State::Closed => {}
        }
        for (tier, view) in tiers.iter().zip(&self.tiers) {
            for copy in tier.superblock_copies.iter().filter(|copy| !copy.is_good && !self.is_in_use()) {
                let (SuperblockCopy { number, offset, .. }, path) = (copy, &tier.path);
                notes.push(format!("{path}: copy {number} of the superblock, at byte {offset}, is damaged"));
            }
            if tier.device_bytes < view.bytes_needed() {
                notes.push(view.cut_off());
            }
            if tier.states.unclear > 0 && !self.is_in_use() {
                let (unclear, path) = (tier.states.unclear, &tier.path);
                notes.push(format!("{path}: {unclear} slots are unclear; see esker check"));
            }
        }
        notes
    }
}

impl TierView {
    pub(crate) fn cut_off(&self) -> String {
        format!(
            "{} has {} bytes, but its store reaches up to {}: it was cut off or has shrunk",
            self.path(),
            self.bytes(),
            self.bytes_needed()
        )
    }

    /// Returns the newest superblock and the number of its copies. A server that is writing leaves
    /// different copies for a moment, so the read is repeated if fewer than all match.
    #[allow(
        clippy::disallowed_methods,
        reason = "a look at a store lives in real time; only the engine is replayed"
    )]
    fn newest_copies(&self) -> Result<(Superblock, Vec<SuperblockCopy>)> {
        let mut found = (self.superblock.clone(), self.copies(&self.superblock)?);
        for look in 0..LOOKS_MAX {
            if look > 0 {
                std::thread::sleep(LOOK_AGAIN_AFTER);
            }
            let Ok(Ok(newest)) = find_superblock::find(&*self.source) else { continue };
            let copies = self.copies(&newest)?;
            let are_good = copies.iter().all(|copy| copy.is_good);
            found = (newest, copies);
            if are_good {
                break;
            }
        }
        Ok(found)
    }

    fn overview(&self, slots: &TierSlots) -> Result<TierOverview> {
        let (superblock, superblock_copies) = self.newest_copies()?;
        let mut overview = TierOverview {
            name: self.name().name(),
            path: self.path(),
            device_bytes: self.bytes(),
            unit_bytes: self.superblock.unit_bytes,
            data_offset: self.superblock.data_offset,
            generation: superblock.generation,
            superblock_copies,
            slots: (slots.ends.len() - self.superblock.slots_out_of_use(slots.ends.len() as u32).count())
                as u64,
            states: States::default(),
            space: Space::default(),
            classes: BTreeMap::new(),
            written: Written::default(),
        };
        let mut found = slots.found.iter().peekable();
        for (slot, ends) in (0..).zip(&slots.ends).filter(|(_, ends)| **ends != SlotEnds::OUT_OF_USE) {
            match found.next_if(|found| found.slot == slot) {
                Some(found) => overview.count(found, &self.superblock),
                None => {
                    overview.states.free += u64::from(is_plainly_free(ends));
                    overview.states.unclear += u64::from(!is_plainly_free(ends));
                    overview.space.free_bytes += self.superblock.segment_bytes;
                }
            }
        }
        Ok(overview)
    }
}

impl TierOverview {
    fn count(&mut self, found: &FoundSlot, superblock: &Superblock) {
        let segment_bytes = superblock.segment_bytes;
        let Some(footer) = found.footer else {
            match found.first {
                Some(first) => {
                    self.states.open += 1;
                    self.space.open_bytes += segment_bytes;
                    self.classes.entry(SegmentClass::of(first.stream)).or_default().segments += 1;
                }
                // Its ends read as zeros: only an opening or a check examines its data.
                None if found.may_be_torn => {
                    self.states.free += 1;
                    self.space.free_bytes += segment_bytes;
                }
                None => self.states.unclear += 1,
            }
            return;
        };
        let summary_bytes = segment_bytes - u64::from(footer.start);
        let frames_bytes = u64::from(footer.tail);
        self.states.sealed += 1;
        self.space.frames_bytes += frames_bytes;
        self.space.summary_bytes += summary_bytes;
        self.space.gap_bytes += u64::from(footer.start - footer.tail);
        let class = SegmentClass::of(footer.stream);
        let of_class = self.classes.entry(class).or_default();
        of_class.segments += 1;
        of_class.records += u64::from(footer.entries);
        of_class.frames_bytes += frames_bytes;
        self.written.summary_bytes += summary_bytes;
        let takes_destaged = superblock.has_peer && !superblock.fast;
        match class {
            SegmentClass::Lane | SegmentClass::Large => self.written.user_bytes += frames_bytes,
            SegmentClass::LongLived if !takes_destaged => self.written.user_bytes += frames_bytes,
            SegmentClass::LongLived | SegmentClass::Destaged => self.written.destaged_bytes += frames_bytes,
            _ => self.written.collected_bytes += frames_bytes,
        }
    }
}
