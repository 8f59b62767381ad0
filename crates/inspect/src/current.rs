//! Reads the current records, one segment after the other.

use std::borrow::Cow;
use std::ops::ControlFlow;

use esker_device::Buffer;
use esker_log::{Damage, ExpiryWatermark, KeyHash, Location, RecordView, Tier};

use crate::error::Result;
use crate::newest_versions::{Rule, read_summaries};
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::Watcher;

/// Current records in the order of their locations.
pub(crate) struct Places(Vec<Version>);

/// A record at its location.
pub(crate) struct At<'a> {
    pub(crate) hash: KeyHash,
    /// The number of its segment.
    pub(crate) segment: u64,
    pub(crate) location: Location,
    pub(crate) record: std::result::Result<RecordView<'a>, Damage>,
}

impl Places {
    /// Selects the current version of every key if it is a put and `passes` returns true for it.
    pub(crate) fn of(
        view: &StoreView,
        rule: &Rule<'_>,
        versions: &Versions,
        passes: impl Fn(&Version) -> bool + Sync,
    ) -> Places {
        let found = versions.for_each_key(Vec::new, |places: &mut Vec<Version>, versions| {
            let current = rule.current(versions).filter(|current| !current.is_tombstone() && passes(current));
            places.extend(current);
        });
        let mut places = Vec::with_capacity(found.iter().map(Vec::len).sum());
        found.into_iter().for_each(|of_thread| places.extend(of_thread));
        places.sort_unstable_by_key(|version| {
            let at = version.location(&view.packing);
            (at.tier, at.slot, at.offset)
        });
        Places(places)
    }

    /// Reads the records segment by segment, and passes each with its verified value to `see`, until
    /// `see` returns `Break`.
    pub(crate) fn read(
        &self,
        view: &StoreView,
        rule: &Rule<'_>,
        watcher: &dyn Watcher,
        mut see: impl FnMut(At<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let location = |version: &Version| version.location(&view.packing);
        let slot = |version: &Version| (location(version).tier, location(version).slot);
        let of_one_slot = |a: &Version, b: &Version| slot(a) == slot(b);
        let slots = self.0.chunk_by(of_one_slot).count() as u64;
        watcher.begin("reading records", slots * view.packing.segment_bytes);
        let mut buffer = Buffer::zeroed(view.packing.segment_bytes as usize);
        let mut unread = Vec::new();
        for places in self.0.chunk_by(of_one_slot) {
            let (tier, slot) = slot(&places[0]);
            let segment = rule.ages.segment(&location(&places[0]));
            view.tier(tier).read_slot(slot, &mut buffer, &mut unread);
            for version in places {
                let location = location(version);
                let from = buffer.get(location.offset as usize..).unwrap_or(&[]);
                let record = view.parse(from, segment, location.offset);
                if see(At { hash: version.hash, segment, location, record })?.is_break() {
                    return Ok(());
                }
            }
            watcher.advance(view.packing.segment_bytes);
        }
        Ok(())
    }
}

impl StoreView {
    pub(crate) fn tier(&self, name: Tier) -> &crate::store::TierView {
        let found = self.tiers.iter().find(|tier| tier.name() == name);
        found.expect("every location is on a tier of the store")
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

    /// Returns all segments, and all versions of the keys for which `keep` returns true.
    pub(crate) fn versions_of(
        &self,
        watcher: &dyn Watcher,
        keep: impl Fn(&KeyHash) -> bool + Sync,
        keeps_all: bool,
    ) -> (Vec<Segment>, Versions) {
        let slots = self.slots();
        let mut segments = self.segments(&slots);
        let records = segments.iter().map(Segment::records).sum();
        let expected = if keeps_all { records } else { 0 };
        let versions = read_summaries(self, &mut segments, watcher, expected, keep);
        (segments, versions)
    }
}
