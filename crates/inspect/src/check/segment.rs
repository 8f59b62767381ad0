//! Checks all bytes of one segment: summary, frames, records, and the zeros between them.
//!
//! 1. The summary lists the records. If it is damaged, the frames are walked, as at an opening.
//! 2. Every frame header verifies, follows the previous frame, and has a length in whole units.
//! 3. Every record verifies, key and value, and matches its summary entry.
//! 4. Padding is zeros. Other padding is a note, because no data is lost.

use std::ops::Range;

use esker_log::{
    Damage, Entry, FOOTER_BYTES, FRAME_HEADER_BYTES, Footer, FrameHeader, IDENTITY_BYTES, Kind, RecordView,
    SegmentIdentity, SegmentScan, gap_before, next_expiry_ms, scan_segment, scan_segment_up_to,
};

use super::report::{Finding, Findings, Severity};
use crate::names::key_of;
use crate::slots::{Content, Segment};
use crate::store::{StoreView, TierView};
use crate::versions::{Version, place_of};

const NOTHING_LOST: &str =
    "no key is lost; esker repair, or collection in a server, writes the records elsewhere";
const LOG_LOST: &str = "votes or acknowledged writes of the node may be lost, so a server refuses to open it: remove the node, and let \
     an empty one join";
const PADDING: &str = "no data is stored there";
const IDENTITY: &str =
    "no key is lost; if all superblocks were lost, they could not be rebuilt from this segment";

/// A segment's bytes, and the collection of its findings.
pub(super) struct SegmentCheck<'a> {
    view: &'a StoreView,
    segment: &'a Segment,
    bytes: &'a [u8],
    /// Ranges that the device could not read.
    unread: &'a [Range<u32>],
    findings: &'a mut Findings,
    /// Number of records that were checked: the ordinal of the next one.
    checked: u32,
}

impl<'a> SegmentCheck<'a> {
    pub(super) fn new(
        view: &'a StoreView,
        segment: &'a Segment,
        bytes: &'a [u8],
        unread: &'a [Range<u32>],
        findings: &'a mut Findings,
    ) -> SegmentCheck<'a> {
        SegmentCheck { view, segment, bytes, unread, findings, checked: 0 }
    }

    /// Checks the segment, and passes every version in it to `see`. `entries` is a buffer that is reused
    /// for all segments, because allocating it for each segment would cost more than the check.
    pub(super) fn run(mut self, entries: &mut Vec<Entry>, mut see: impl FnMut(Version)) {
        entries.clear();
        for range in self.unread {
            let what = format!("{} bytes cannot be read from the device", range.len());
            self.add(
                range.start,
                Severity::Damage,
                what,
                "affected records are listed below; replace the device",
            );
        }
        let segment = self.segment;
        if segment.is_log() {
            return self.log();
        }
        // Step 1.
        let sealed = match &segment.content {
            Content::Sealed(footer) => self.summary(*footer, entries),
            Content::Scanned(scan) => {
                self.scanned(scan);
                entries.extend_from_slice(&scan.entries);
                None
            }
            Content::Nameless => {
                let what = "nothing is left of the segment in this slot";
                let so = "its keys cannot be named: restore a backup, or repair, which lists the keys that may be stale";
                self.unnamed(0, what, so);
                None
            }
        };
        // Steps 2 and 3.
        match &sealed {
            Some(footer) => self.frames(footer, entries, &mut see),
            None => self.records(entries, &mut see),
        }
    }

    /// Step 3: checks records, and passes their versions to `see`.
    fn records(&mut self, entries: &[Entry], see: &mut impl FnMut(Version)) {
        for entry in entries {
            let damaged = self.record(entry);
            let tier = self.tier().name();
            see(Version::new(tier, self.segment.slot, self.checked, entry, damaged));
            self.checked += 1;
        }
    }

    fn tier(&self) -> &TierView {
        &self.view.tiers[self.segment.tier]
    }

    fn at(&self, offset: u32) -> u64 {
        self.tier().slot_offset(self.segment.slot) + u64::from(offset)
    }

    fn finding(&self, offset: u32, severity: Severity, what: impl Into<String>, so: &str) -> Finding {
        Finding::at(self.tier(), self.at(offset), severity, what).of_segment(self.segment.number).so(so)
    }

    fn add(&mut self, offset: u32, severity: Severity, what: impl Into<String>, so: &str) {
        let finding = self.finding(offset, severity, what, so);
        self.findings.add(finding);
    }

    fn unnamed(&mut self, offset: u32, what: impl Into<String>, so: &str) {
        let mut finding = self.finding(offset, Severity::Damage, what, so).unnamed();
        if let Content::Sealed(footer) = &self.segment.content {
            finding.up_to = footer.max_sequence;
        }
        self.findings.add(finding);
    }

    /// Reads the entries of a sealed segment. Returns the footer if it matches them.
    fn summary(&mut self, footer: Footer, entries: &mut Vec<Entry>) -> Option<Footer> {
        let summary = &self.bytes[footer.start as usize..];
        let (mut highest, mut expires) = (0, false);
        let take = |entry: Entry| {
            highest = highest.max(entry.sequence);
            expires |= entry.expires_at_ms.is_some();
            entries.push(entry);
        };
        if footer.for_each_entry(summary, &self.view.secret, take).is_some() {
            let expiry_ms = if expires { next_expiry_ms(entries.iter().copied(), 0) } else { None };
            self.footer(&footer, highest, expiry_ms);
            return Some(footer);
        }
        entries.clear();
        let so = "opening scans the records instead, and writes no new summary; repair writes one";
        self.add(footer.start, Severity::Damage, "the summary does not match its checksum", so);
        let shape = self.tier().shape;
        let scan = scan_segment(self.bytes, &self.view.secret, shape, self.segment.number, true);
        self.lost(&scan);
        entries.extend_from_slice(&scan.entries);
        None
    }

    /// Compares a footer with the entries.
    fn footer(&mut self, footer: &Footer, highest: u64, expiry_ms: Option<u64>) {
        let (at, unit) = (self.bytes.len() as u32 - FOOTER_BYTES as u32, self.tier().shape.unit_bytes);
        let expires_s = expiry_ms.map_or(0, |ms| u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX));
        let wrong = [
            (
                footer.max_sequence != highest,
                format!("highest sequence number {}, but it is {highest}", footer.max_sequence),
            ),
            (footer.expires_s != expires_s, format!("expiry at {}, but it is {expires_s}", footer.expires_s)),
            (
                !footer.start.is_multiple_of(unit),
                format!("start {}, which is not a multiple of the unit", footer.start),
            ),
            (
                !footer.tail.is_multiple_of(unit),
                format!("tail {}, which is not a multiple of the unit", footer.tail),
            ),
        ];
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            self.add(at, Severity::Damage, format!("the footer says {what}"), NOTHING_LOST);
        }
        self.zeros(footer.start + footer.entry_bytes..at, "behind the summary");
    }

    /// Reports the defects of a segment without a summary.
    fn scanned(&mut self, scan: &SegmentScan) {
        if self.view.is_closed() {
            let so =
                "closing writes a summary to every segment, and this one is lost; repair writes a new one";
            let at = self.bytes.len() as u32 - FOOTER_BYTES as u32;
            self.add(at, Severity::Damage, "the segment has no valid footer", so);
        }
        self.lost(scan);
    }

    /// Reports the ranges that a scan lost.
    fn lost(&mut self, scan: &SegmentScan) {
        for range in &scan.lost {
            let what = format!(
                "{} bytes of frames cannot be read, and no summary says which keys they held",
                range.len()
            );
            let so =
                "opening refuses this: restore a backup, or repair, which lists the keys that may be stale";
            self.unnamed(range.start, what, so);
        }
    }

    /// Checks a segment of the log of replicated groups. Its summary is empty, and its records are of no keys.
    fn log(&mut self) {
        let (shape, number) = (self.tier().shape, self.segment.number);
        let tail = match &self.segment.content {
            Content::Sealed(footer) => Some(footer.tail),
            _ => None,
        };
        let scan = scan_segment_up_to(self.bytes, &self.view.secret, shape, number, tail.is_some(), tail);
        for range in &scan.lost {
            let what = format!("{} bytes of the log of the groups cannot be read", range.len());
            self.add(range.start, Severity::Damage, what, LOG_LOST);
        }
        for entry in &scan.entries {
            let bytes = self.bytes.get(entry.offset as usize..).unwrap_or(&[]);
            if let Err(damage) = self.view.parse(bytes, number, entry.offset) {
                let what = format!("a record of the log of the groups does not verify: {damage}");
                self.add(entry.offset, Severity::Damage, what, LOG_LOST);
            }
        }
    }

    /// Step 2: walks the frames of a sealed segment, and checks the records of each while its entries are
    /// cached.
    fn frames(&mut self, footer: &Footer, entries: &[Entry], see: &mut impl FnMut(Version)) {
        let (mut at, mut index) = (0, 0);
        let mut rest = entries;
        let mut epoch = 0;
        while at < footer.tail {
            let Some(header) = self.frame_at(at) else {
                let so = if at == 0 {
                    "opening finds the segment by its footer; repair rewrites it"
                } else {
                    NOTHING_LOST
                };
                self.add(at, Severity::Damage, "a frame header does not match its checksum", so);
                let Some(next) = self.next_frame(at, footer.tail, index) else { break };
                let (passed, behind) =
                    rest.split_at(rest.partition_point(|entry| entry.offset < next.offset));
                self.records(passed, see);
                rest = behind;
                (at, index) = (next.offset, next.index);
                continue;
            };
            let end = at + header.padded_bytes;
            // A linear search from the start is short, because a frame has few of the segment's entries.
            let count = rest.iter().position(|entry| entry.offset >= end).unwrap_or(rest.len());
            let (of_frame, behind) = rest.split_at(count);
            rest = behind;
            if let Some(what) = self.contradiction(&header, footer, index, epoch, of_frame) {
                self.add(at, Severity::Damage, format!("a frame header says {what}"), NOTHING_LOST);
            }
            self.frame_padding(&header, of_frame);
            self.records(of_frame, see);
            (at, index, epoch) = (at + header.padded_bytes, header.index.saturating_add(1), header.epoch);
        }
        // Records of frames that were not found.
        self.records(rest, see);
    }

    fn frame_at(&self, at: u32) -> Option<FrameHeader> {
        let header = FrameHeader::parse(self.bytes.get(at as usize..)?, &self.view.secret, at)?;
        (header.segment == self.segment.number && header.padded_bytes > 0).then_some(header)
    }

    fn next_frame(&self, at: u32, tail: u32, index: u32) -> Option<FrameHeader> {
        let unit = self.tier().shape.unit_bytes;
        let units = (at..tail).step_by(unit as usize).skip(1);
        units.filter_map(|at| self.frame_at(at)).find(|header| header.index > index)
    }

    /// Returns the contradiction in a frame header whose checksum is correct, if any.
    fn contradiction(
        &self,
        header: &FrameHeader,
        footer: &Footer,
        index: u32,
        epoch: u64,
        entries: &[Entry],
    ) -> Option<String> {
        let shape = self.tier().shape;
        let first = header.offset + shape.first_record(header.offset);
        let end = entries.last().map_or(first, |entry| entry.offset + entry.bytes);
        let dense = entries.windows(2).all(|pair| {
            let end = u64::from(pair[0].offset + pair[0].bytes);
            end + gap_before(end, pair[1].bytes.into()) == u64::from(pair[1].offset)
        });
        let begins = entries.first().is_none_or(|entry| entry.offset == first);
        let opened = self.tier().superblock.epoch;
        let says = |what: String| Some(what);
        match header {
            h if h.slot != self.segment.slot => {
                says(format!("slot {}, but it is in slot {}", h.slot, self.segment.slot))
            }
            h if h.index != index => says(format!("index {}, but it should be {index}", h.index)),
            h if h.epoch < epoch || h.epoch > opened => says(format!("epoch {}, after {epoch}", h.epoch)),
            h if h.stream != footer.stream => {
                says(format!("stream {}, but the footer says {}", h.stream.0, footer.stream.0))
            }
            h if !h.padded_bytes.is_multiple_of(shape.unit_bytes) => says(format!(
                "{} bytes, which is not a multiple of the unit of {}",
                h.padded_bytes, shape.unit_bytes
            )),
            h if h.offset + h.padded_bytes > footer.tail => {
                says("that it ends after the last frame".to_owned())
            }
            h if h.records as usize != entries.len() => {
                says(format!("{} records, but the summary has {}", h.records, entries.len()))
            }
            h if !(begins && dense)
                || !entries.is_empty() && end > h.offset + h.bytes.next_multiple_of(shape.granule_bytes) =>
            {
                says("record offsets that differ from the summary".to_owned())
            }
            _ => None,
        }
    }

    /// Step 4: checks the padding between the header and the first record, between records, and after the
    /// last record.
    fn frame_padding(&mut self, header: &FrameHeader, entries: &[Entry]) {
        let mut start = header.offset + FRAME_HEADER_BYTES as u32;
        if header.offset == 0 {
            self.identity(header);
            start += IDENTITY_BYTES as u32;
        }
        let first = entries.first().map_or(start, |entry| entry.offset);
        self.zeros(start..first.max(start), "behind a frame header");
        for pair in entries.windows(2) {
            self.zeros(pair[0].offset + pair[0].bytes..pair[1].offset, "at the end of a page");
        }
        let end = header.offset.saturating_add(header.bytes).max(start);
        self.zeros(end..header.offset + header.padded_bytes, "behind a frame");
    }

    /// Step 4: checks the identity block of the first frame, which only a lost superblock makes necessary.
    fn identity(&mut self, header: &FrameHeader) {
        let is_right = SegmentIdentity::parse(self.bytes).is_some_and(|found| {
            found.is_of(&self.tier().shape, &self.view.secret)
                && (found.segment, found.slot, found.epoch) == (header.segment, header.slot, header.epoch)
        });
        if !is_right {
            let what = "the identity block behind the first frame header does not verify".to_owned();
            self.add(FRAME_HEADER_BYTES as u32, Severity::Note, what, IDENTITY);
        }
    }

    /// Step 3: returns true if the record is damaged.
    fn record(&mut self, entry: &Entry) -> bool {
        let (start, end) = (entry.offset as usize, entry.offset as usize + entry.bytes as usize);
        let checked = match self.bytes.get(start..end) {
            Some(bytes) => self.verify(entry, bytes),
            None => Err("it ends after the end of its segment".to_owned()),
        };
        let what = match checked {
            Ok(bytes) => {
                self.zeros(entry.offset + bytes as u32..end as u32, "behind a record");
                return false;
            }
            Err(what) => what,
        };
        let bytes = self.bytes.get(start..end.min(self.bytes.len())).unwrap_or(&[]);
        // Lazy, because finding the name takes longer than the rest of the check.
        let key = || key_of(entry, bytes, &self.view.secret, &self.view.databases, self.tier().shape);
        let key = self.findings.has_room_for_record().then(key);
        let mut finding = self.finding(entry.offset, Severity::Damage, what, "");
        let place = place_of(self.tier().name(), self.segment.slot, entry.offset);
        (finding.key, finding.place) = (key, Some(place));
        self.findings.add(finding);
        true
    }

    /// Returns the length of the record without padding, or its defect.
    fn verify(&self, entry: &Entry, bytes: &[u8]) -> Result<usize, String> {
        let secret = &self.view.secret;
        let record = match RecordView::parse(bytes, &secret.identity(self.segment.number, entry.offset)) {
            Ok(record) => record,
            // `bytes` ends where the summary says that the record ends, so a length beyond it is a
            // damaged header.
            Err(Damage::Length) => return Err(Damage::Header.to_string()),
            Err(damage) => return Err(damage.to_string()),
        };
        let padded = self.tier().shape.padded(record.bytes()) as u32;
        let same = (record.sequence, record.kind, record.expires_at_ms, padded)
            == (entry.sequence, entry.kind, entry.expires_at_ms, entry.bytes)
            && record.expansion() == entry.expansion;
        if !same || secret.key_hash(record.keyspace, record.key) != entry.key_hash {
            return Err("the record does not match its entry in the summary".to_owned());
        }
        if record.kind == Kind::Tombstone && !(record.value.is_empty() && record.expires_at_ms.is_none()) {
            return Err("a tombstone has a value or an expiry".to_owned());
        }
        let verified = record.verify_value(secret).and_then(|()| self.view.verify_compression(&record));
        verified.map(|()| record.bytes()).map_err(|damage| damage.to_string())
    }

    /// Step 4: checks that padding is zeros.
    fn zeros(&mut self, range: Range<u32>, place: &str) {
        let Some(bytes) = self.bytes.get(range.start as usize..range.end as usize) else { return };
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            let what = format!("padding {place} is not zeros");
            self.add(range.start + at as u32, Severity::Note, what, PADDING);
        }
    }
}
