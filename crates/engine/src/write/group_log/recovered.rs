//! The log as an opening finds it.

use bytes::Bytes;
use esker_log::{RecordView, Secret, SegmentScan, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::contents::{LogContents, LogPlace};
use super::key::LogKey;

use crate::base::error::{Error, Result};

/// A segment of the log.
pub(crate) struct LogSegment {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    /// End of its last frame.
    pub(crate) tail: u32,
    /// True if it has a footer.
    pub(crate) is_sealed: bool,
    records: Vec<FoundRecord>,
}

struct FoundRecord {
    key: LogKey,
    number: u64,
    offset: u32,
    bytes: u32,
    /// Value of a state or a purge.
    value: Bytes,
}

impl LogSegment {
    /// Returns the segment whose bytes were scanned.
    ///
    /// # Errors
    /// `Corrupt` if durable records are lost: the replica may have voted or acknowledged by them.
    pub(crate) fn of_scan(
        (tier, slot, segment): (TierName, u32, u64),
        is_sealed: bool,
        scan: &SegmentScan,
        bytes: &[u8],
        secret: &Secret,
    ) -> Result<LogSegment> {
        if let Some(range) = scan.lost.first() {
            let what = format!("{} bytes of the replicated log cannot be read", range.len());
            return Err(lost(segment, range.start, what));
        }
        let record = |offset: u32, padded: u32| {
            let record = bytes
                .get(offset as usize..(offset + padded) as usize)
                .and_then(|bytes| RecordView::parse(bytes, &secret.identity(segment, offset)).ok())
                .filter(|record| record.verify_value(secret).is_ok());
            let read = record.and_then(|record| Some((record, LogKey::decode(record.key)?)));
            let Some((record, key)) = read else {
                return Err(lost(segment, offset, "a record of the replicated log does not verify".into()));
            };
            let is_kept = matches!(key, LogKey::State { .. } | LogKey::Purge { .. });
            let value = if is_kept { Bytes::copy_from_slice(record.value) } else { Bytes::new() };
            Ok(FoundRecord { key, number: record.sequence, offset, bytes: padded, value })
        };
        let records =
            scan.entries.iter().map(|entry| record(entry.offset, entry.bytes)).collect::<Result<_>>()?;
        Ok(LogSegment { tier, slot, segment, tail: scan.tail, is_sealed, records })
    }
}

/// Applies the records of all segments in their order. Returns the contents, and the number of the next record.
///
/// # Errors
/// `Corrupt` if a record is missing between others, or a group's entries are not consecutive.
pub(crate) fn contents_of(segments: &mut [LogSegment]) -> Result<(LogContents, u64)> {
    segments.sort_by_key(|segment| segment.segment);
    let mut contents = LogContents::default();
    let mut next: Option<u64> = None;
    for &LogSegment { segment, slot, ref records, .. } in &*segments {
        contents.add_segment(segment, slot);
        for record in records {
            if next.is_some_and(|next| next != record.number) && !planted(Bug::LogGapIgnored) {
                let what = format!("record {} of the replicated log is missing", next.unwrap_or_default());
                return Err(lost(segment, record.offset, what));
            }
            next = Some(record.number + 1);
            let place = LogPlace { segment, slot, offset: record.offset, bytes: record.bytes };
            contents.apply(record.key, place, &record.value);
        }
    }
    if let Some((group, index)) = contents.first_hole().filter(|_| !planted(Bug::LogGapIgnored)) {
        let what = format!("entry {index} of group {group} of the replicated log is missing");
        return Err(lost(segments.last().map_or(0, |last| last.segment), 0, what));
    }
    Ok((contents, next.unwrap_or(0)))
}

fn lost(segment: u64, offset: u32, what: String) -> Error {
    let what = format!(
        "{what}: this replica may have acknowledged writes or votes that it no longer knows; format it anew, and let \
         it join its cluster as a new node"
    );
    Error::Corrupt { key: None, segment, offset: offset.into(), what }
}
