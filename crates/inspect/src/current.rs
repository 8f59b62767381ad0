//! Reads the current records, one segment after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use esker_device::Buffer;
use esker_log::{Damage, Entry, ExpiryWatermark, KeyHash, Location, RecordView, Tier, scan_segment};

use crate::error::Result;
use crate::marks::{Marked, Marks};
use crate::newest_versions::{Rule, read_summaries};
use crate::slots::{Content, Segment};
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::Watcher;

/// A record at its location.
pub(crate) struct At<'a> {
    /// The number of its segment.
    pub(crate) segment: u64,
    pub(crate) location: Location,
    pub(crate) record: std::result::Result<RecordView<'a>, Damage>,
}

/// Slots that a segment left before its marked records were read, with the offset from which none was.
pub(crate) type Left = BTreeMap<(Tier, u32), u32>;

/// Marks the current version of every key if it is a put and `passes` returns true for it.
pub(crate) fn mark_current(
    rule: &Rule<'_>,
    versions: &Versions,
    marks: &Marks,
    passes: impl Fn(&Version) -> bool + Sync,
) {
    versions.for_each_key(
        || (),
        |(), versions| {
            if let Some(current) = rule.current(versions)
                && !current.is_tombstone()
                && passes(current)
            {
                marks.set(current);
            }
        },
    );
}

/// Reads the marked records in the order of their locations, and passes each with its verified value to
/// `see`, until `see` returns `Break`. Returns the slots that their segments left meanwhile.
pub(crate) fn read_marked(
    view: &StoreView,
    segments: &[Segment],
    marks: &Marks,
    watcher: &dyn Watcher,
    mut see: impl FnMut(At<'_>) -> Result<ControlFlow<()>>,
) -> Result<Left> {
    let segment_bytes = view.packing.segment_bytes;
    let marked = |segment: &&Segment| !marks.in_segment(view, segment).is_empty();
    watcher.begin("reading records", segments.iter().filter(marked).count() as u64 * segment_bytes);
    let mut buffer = Buffer::zeroed(segment_bytes as usize);
    let (mut unread, mut left) = (Vec::new(), Left::new());
    for segment in segments {
        let marked = marks.in_segment(view, segment);
        if marked.is_empty() {
            continue;
        }
        let tier = &view.tiers[segment.tier];
        tier.read_slot(segment.slot, &mut buffer, &mut unread);
        match read_in(view, segment, &marked, &buffer, &mut see)? {
            Outcome::All => {}
            Outcome::Enough => return Ok(left),
            Outcome::LeftFrom(offset) => drop(left.insert((tier.name(), segment.slot), offset)),
        }
        watcher.advance(segment_bytes);
    }
    Ok(left)
}

/// The outcome of reading the marked records of a segment.
enum Outcome {
    All,
    /// The caller wants no more.
    Enough,
    /// The segment had left its slot before the records from this offset on were read.
    LeftFrom(u32),
}

/// Passes the marked records of a segment, whose bytes are `bytes`, to `see`.
fn read_in(
    view: &StoreView,
    segment: &Segment,
    marked: &Marked,
    bytes: &[u8],
    see: &mut impl FnMut(At<'_>) -> Result<ControlFlow<()>>,
) -> Result<Outcome> {
    let (slot, number, tier) = (segment.slot, segment.number, &view.tiers[segment.tier]);
    let at = |offset| Location { tier: tier.name(), slot, offset, class: 0 };
    let entries = view.entries_within(segment, bytes);
    if !marked.are_in(&entries) {
        if tier.has_left(slot, number) {
            return Ok(Outcome::LeftFrom(0));
        }
        // The summary cannot be read any more: which records were meant is unknown.
        for _ in 0..marked.len() {
            let lost = At { segment: number, location: at(0), record: Err(Damage::Header) };
            if see(lost)?.is_break() {
                return Ok(Outcome::Enough);
            }
        }
        return Ok(Outcome::All);
    }
    for (_, entry) in (0..).zip(&entries).filter(|(ordinal, _)| marked.contains(*ordinal)) {
        let offset = entry.offset;
        let record = view.parse(bytes.get(offset as usize..).unwrap_or(&[]), number, offset);
        if record.is_err() && tier.has_left(slot, number) {
            return Ok(Outcome::LeftFrom(offset));
        }
        if see(At { segment: number, location: at(offset), record })?.is_break() {
            return Ok(Outcome::Enough);
        }
    }
    Ok(Outcome::All)
}

/// Returns the keys of the current records that were not read because their segments had left.
pub(crate) fn keys_left(rule: &Rule<'_>, versions: &Versions, left: &Left) -> BTreeSet<KeyHash> {
    if left.is_empty() {
        return BTreeSet::new();
    }
    let found = versions.for_each_key(BTreeSet::new, |keys: &mut BTreeSet<KeyHash>, versions| {
        let current = rule.current(versions).filter(|current| !current.is_tombstone());
        keys.extend(current.filter(|current| is_left(left, &current.location())).map(|current| current.hash));
    });
    found.into_iter().flatten().collect()
}

fn is_left(left: &Left, location: &Location) -> bool {
    left.get(&(location.tier, location.slot)).is_some_and(|from| location.offset >= *from)
}

impl StoreView {
    pub(crate) fn tier(&self, name: Tier) -> &crate::store::TierView {
        let found = self.tiers.iter().find(|tier| tier.name() == name);
        found.expect("every location is on a tier of the store")
    }

    /// Returns the entries of a segment whose bytes are `bytes`, in the order that its check and its summary
    /// have: from the summary, or from the frames if it does not verify.
    fn entries_within(&self, segment: &Segment, bytes: &[u8]) -> Vec<Entry> {
        let Content::Sealed(footer) = &segment.content else {
            let mut entries = Vec::new();
            self.entries(segment, |entry| entries.push(entry));
            return entries;
        };
        let mut entries = Vec::with_capacity(footer.entries as usize);
        let summary = bytes.get(footer.start as usize..).unwrap_or(&[]);
        if footer.for_each_entry(summary, &self.secret, |entry| entries.push(entry)).is_some() {
            return entries;
        }
        let shape = self.tiers[segment.tier].shape;
        scan_segment(bytes, &self.secret, shape, segment.number, true).entries
    }

    /// Parses the record at the start of `bytes`, which lies at `offset` of `segment`, and verifies its
    /// value.
    pub(crate) fn parse<'b>(
        &self,
        bytes: &'b [u8],
        segment: u64,
        offset: u32,
    ) -> std::result::Result<RecordView<'b>, Damage> {
        let record = RecordView::parse(bytes, &self.secret.identity(segment, offset))?;
        record.verify_value(&self.secret).map(|()| record)
    }

    /// Returns the uncompressed value of a record. A stated length greater than a segment is damage.
    pub(crate) fn raw_value<'b>(
        &self,
        record: &RecordView<'b>,
    ) -> std::result::Result<Cow<'b, [u8]>, Damage> {
        let fits = record.raw_bytes() <= self.packing.segment_bytes;
        if fits { record.raw_value() } else { Err(Damage::Compression) }
    }

    /// Checks that a record's value decompresses to its stated length, if this build has its codec: the
    /// checksum covers the stored bytes.
    pub(crate) fn verify_compression(&self, record: &RecordView<'_>) -> std::result::Result<(), Damage> {
        match self.raw_value(record) {
            Ok(_) | Err(Damage::MissingCodec(_)) => Ok(()),
            Err(damage) => Err(damage),
        }
    }

    /// Returns true if a record has expired, by the caller's time or by an expiry watermark in a
    /// superblock.
    pub(crate) fn is_expired(&self, expires_at_ms: Option<u64>, sequence: u64, now_ms: u64) -> bool {
        let Some(at) = expires_at_ms else { return false };
        let marks = self.tiers.iter().flat_map(|tier| &tier.superblock.expired);
        let over = |mark: &ExpiryWatermark| sequence <= mark.sequence && at <= mark.time_ms;
        at <= now_ms || { marks }.any(over)
    }

    /// Returns all segments, and all versions of the keys for which `keep` returns true, whatever memory
    /// they take.
    pub(crate) fn versions_of(
        &self,
        watcher: &dyn Watcher,
        keep: impl Fn(&KeyHash) -> bool + Sync,
    ) -> (Vec<Segment>, Versions) {
        let mut segments = self.segments(&self.slots());
        let versions = Versions::unlimited();
        read_summaries(self, &mut segments, watcher, "reading summaries", &versions, None, keep);
        (segments, versions)
    }
}
