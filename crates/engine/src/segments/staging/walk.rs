//! Finds the records in the memory of a segment that was being written when the process died.

use esker_log::{
    Claim, Entry, FrameHeader, RecordView, SEQUENCE_EPOCH_SHIFT, Secret, SegmentShape, skip_gap,
};
use esker_seeded_bugs::{Bug, planted};

/// The bytes of a segment in memory when the process died.
pub(super) struct Walk<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) secret: &'a Secret,
    pub(super) shape: SegmentShape,
    pub(super) segment: u64,
    /// Opening of the store in which it was written.
    pub(super) epoch: u64,
}

impl Walk<'_> {
    /// Walks closed frames by their headers, then the open frame, which has no header yet, record by record. An incomplete
    /// record at the very end was being written; anywhere else it is damage, whose offset is returned.
    pub(super) fn entries(&self) -> (Vec<Entry>, Option<usize>) {
        let mut entries = Vec::new();
        let mut frame = 0usize;
        loop {
            let closed = self.closed_frame(frame);
            let end = closed.as_ref().map_or(self.bytes.len(), |h| frame + h.bytes as usize);
            let stopped_at = self.read_records(frame, end, &mut entries);
            match closed {
                Some(_) if stopped_at < end => return (entries, Some(stopped_at)),
                Some(header) => frame += header.padded_bytes as usize,
                None => {
                    let is_damaged = self.goes_on(stopped_at, &entries);
                    return (entries, is_damaged.then_some(stopped_at));
                }
            }
        }
    }

    fn closed_frame(&self, at: usize) -> Option<FrameHeader> {
        let header = FrameHeader::parse(self.bytes.get(at..)?, self.secret, at as u32)?;
        let fits = at as u64 + u64::from(header.padded_bytes) <= self.bytes.len() as u64;
        (header.segment == self.segment && fits).then_some(header)
    }

    fn record(&self, at: usize, end: usize) -> Option<RecordView<'_>> {
        let identity = self.secret.identity(self.segment, at as u32);
        let record = RecordView::parse(self.bytes.get(at..end)?, &identity).ok()?;
        record.verify_value(self.secret).is_ok().then_some(record)
    }

    /// Collects the records of a frame up to the first that does not verify. Returns the offset of that record, or of the end.
    /// A batch that is incomplete because of it is left out.
    fn read_records(&self, frame: usize, end: usize, entries: &mut Vec<Entry>) -> usize {
        let mut at = frame + self.shape.first_record(frame as u32) as usize;
        let mut whole = entries.len();
        while at < end {
            let begin = skip_gap(&self.bytes[..end], at);
            let Some(record) = self.record(begin, end) else { break };
            let key_hash = self.secret.key_hash(record.keyspace, record.key);
            let padded_bytes = self.shape.padded(record.bytes()) as u32;
            entries.push(Entry::of_record(&record.to_record(), key_hash, begin as u32, padded_bytes));
            if !record.batch_goes_on || planted(Bug::TornBatchTaken) {
                whole = entries.len();
            }
            at = begin + padded_bytes as usize;
        }
        entries.truncate(whole);
        at
    }

    /// Returns true if the segment has any valid data behind the offset at which `entries` end: since it was written in order,
    /// the unreadable part was complete once. Data found here is used for nothing else.
    fn goes_on(&self, from: usize, entries: &[Entry]) -> bool {
        // Leftover bytes may look like a header, but hardly like one of this opening, whose sequence numbers begin with its own
        // epoch, so few candidates need a checksum. The next epoch begins after a trillion numbers.
        let last = entries.last().map_or(u64::MAX, |entry| (entry.sequence >> SEQUENCE_EPOCH_SHIFT) + 1);
        let claims = |at: &usize| {
            Claim::epoch_of(&self.bytes[*at..]).is_some_and(|epoch| (self.epoch..=last).contains(&epoch))
        };
        let granules = (from..self.bytes.len()).step_by(self.shape.granule_bytes as usize).skip(1);
        let mut units = (0..self.bytes.len()).step_by(self.shape.unit_bytes as usize).filter(|&at| at > from);
        units.any(|at| self.closed_frame(at).is_some())
            || granules.filter(claims).any(|at| self.record(at, self.bytes.len()).is_some())
    }
}
