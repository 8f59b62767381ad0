//! Scans a segment that has no usable summary, frame by frame, distinguishing a torn tail from rot.
//!
//! 1. Frames are walked from the start: each must carry the segment's number, the next index and no older epoch. If the
//!    footer is readable, it gives the end of the last frame; everything after it is void.
//! 2. A frame that does not verify is the **torn tail** if nothing proves that it was durable: the scan ends there, and
//!    everything after it is void.
//! 3. It is **rot** if a later frame states that it was durable when that frame was written, or if the caller knows it
//!    (a later segment of the same lane exists). Records that still verify are kept; a record with a rotten value keeps
//!    its entry, so that reading its key is an error; records whose keys are unknown are counted as a loss. For long
//!    values, their own records show that only values are rotten; for small ones, the sum of all heads in the frame's
//!    header does. The sum also identifies a single damaged head. A header or footer of the segment at a wrong position
//!    is as much proof as one at its own position.
//! 4. Of a hole in the chain of frames, only the part that is proven durable is a loss. If the proof ends before the
//!    next frame begins, a frame in between was torn, and the scan ends there as in 2.

use std::ops::Range;

use esker_seeded_bugs::{Bug, planted};

use crate::checksum::{Identity, Secret};
use crate::frame::FrameHeader;
use crate::page::{PAGE_BYTES, skip_gap};
use crate::record::{Claimed, RecordView};
use crate::segment::SegmentShape;
use crate::summary::{Entry, FOOTER_BYTES, Footer};

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentScan {
    /// Number of the segment; `None` if no frame of it was found.
    pub segment: Option<u64>,
    /// Records, in the order of their offsets.
    pub entries: Vec<Entry>,
    /// End of the last accepted frame.
    pub tail: u32,
    /// Ranges that were durable and are unreadable: the keys lost in them are unknown.
    pub lost: Vec<Range<u32>>,
    /// True if anything after the tail was discarded as torn.
    pub torn: bool,
}

enum FrameState {
    Whole,
    /// Some records do not verify; those with a readable key were collected.
    Broken {
        unnamed: Option<Range<u32>>,
    },
}

/// Expected position of the next frame, and the minimum index and epoch that it must carry.
#[derive(Clone, Copy)]
struct Position {
    at: u32,
    index: u32,
    epoch: u64,
}

/// Scans the bytes of a segment, from its start. `wholly_durable`: everything up to the last frame is known to have
/// been durable.
pub fn scan_segment(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    segment: u64,
    wholly_durable: bool,
) -> SegmentScan {
    scan_segment_up_to(bytes, secret, shape, segment, wholly_durable, None)
}

/// As [`scan_segment`]. `tail`: the end of the last frame, if known from elsewhere.
pub fn scan_segment_up_to(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    segment: u64,
    wholly_durable: bool,
    tail: Option<u32>,
) -> SegmentScan {
    // 1. The footer was written last; a segment with a known tail has no frames after it.
    let footer = (bytes.len() == shape.segment_bytes as usize)
        .then(|| {
            Footer::parse(&bytes[bytes.len().saturating_sub(FOOTER_BYTES)..], secret, shape.segment_bytes)
        })
        .flatten()
        .filter(|f| f.segment == segment);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let tail = footer.map(|f| f.tail).or(tail).filter(|&tail| tail <= length);
    let end = tail.unwrap_or(length);
    let walk = Walk { bytes: &bytes[..end as usize], all: bytes, secret, shape, segment };
    let mut scan = SegmentScan::default();
    let mut next = Position { at: 0, index: 0, epoch: 0 };
    while next.at < end {
        let here = walk.frame_at(next.at).filter(|h| h.index == next.index && h.epoch >= next.epoch);
        let Some(header) = here else {
            let behind = Position { at: next.at.saturating_add(shape.unit_bytes), ..next };
            let durable_through = if wholly_durable {
                // Without a footer the end of the last frame is unknown, and nothing is missing after the last one
                // found.
                if tail.is_some() || walk.frames(behind).next().is_some() { end } else { 0 }
            } else {
                walk.frames(behind).map(|h| h.durable_through).max().unwrap_or(0).max(walk.proven_elsewhere())
            };
            if durable_through <= next.at {
                scan.torn = u64::from(next.at) + u64::from(shape.unit_bytes) <= u64::from(end);
                break;
            }
            match walk.frames(behind).next() {
                Some(later) if later.offset <= durable_through => {
                    scan.lost.push(next.at..later.offset);
                    next = Position { at: later.offset, index: later.index, epoch: later.epoch };
                    continue;
                }
                // 4.
                _ => {
                    scan.lost.push(next.at..durable_through);
                    scan.torn = durable_through < end;
                    break;
                }
            }
        };
        scan.segment = Some(segment);
        let before = scan.entries.len();
        let frame_end = header.offset + header.padded_bytes;
        let behind = Position { at: frame_end, index: header.index.saturating_add(1), epoch: header.epoch };
        if let FrameState::Broken { unnamed } = walk.read_frame(&header, &mut scan.entries) {
            let proven = wholly_durable
                || walk.frames(behind).any(|h| h.durable_through >= frame_end)
                || walk.proven_elsewhere() >= frame_end;
            if !proven || planted(Bug::RotTakenForTornTail) {
                if !planted(Bug::TornFrameTaken) {
                    scan.entries.truncate(before);
                }
                scan.torn = true;
                break;
            }
            scan.lost.extend(unnamed);
        }
        next = behind;
        scan.tail = frame_end;
    }
    scan
}

/// The frames of one segment's bytes.
struct Walk<'a> {
    /// Bytes up to the end of the last frame according to the footer, or all bytes without a footer.
    bytes: &'a [u8],
    all: &'a [u8],
    secret: &'a Secret,
    shape: SegmentShape,
    segment: u64,
}

impl Walk<'_> {
    /// Returns the frame at `at` if it ends within the bytes, on a write unit.
    fn frame_at(&self, at: u32) -> Option<FrameHeader> {
        let header = FrameHeader::parse(self.bytes.get(at as usize..)?, self.secret, at)?;
        let fits = u64::from(at) + u64::from(header.padded_bytes) <= self.bytes.len() as u64
            && header.padded_bytes.is_multiple_of(self.shape.unit_bytes);
        (header.segment == self.segment && fits).then_some(header)
    }

    /// Iterates over the frames at or after `from` that can follow there.
    fn frames(&self, from: Position) -> impl Iterator<Item = FrameHeader> {
        (from.at as usize..self.bytes.len())
            .step_by(self.shape.unit_bytes as usize)
            .filter_map(|at| self.frame_at(at as u32))
            .filter(move |h| h.index >= from.index && h.epoch >= from.epoch)
    }

    /// Returns the offset below which the segment was durable according to misplaced headers and a misplaced footer of
    /// it: whole pages that the device wrote to, or read from, the wrong position.
    fn proven_elsewhere(&self) -> u32 {
        let pages = self.all.chunks(PAGE_BYTES);
        let proof = |(at, page): (usize, &[u8])| {
            let at = at * PAGE_BYTES;
            let header = FrameHeader::parse_displaced(page, self.secret)
                .filter(|h| h.segment == self.segment && h.offset as usize != at)
                .map(|h| if h.index == 0 { 0 } else { h.durable_through });
            let footer = Footer::parse(
                page.get(page.len().checked_sub(FOOTER_BYTES)?..)?,
                self.secret,
                self.shape.segment_bytes,
            )
            .filter(|f| f.segment == self.segment && at + PAGE_BYTES < self.shape.segment_bytes as usize)
            .map(|f| f.tail);
            header.max(footer)
        };
        pages.enumerate().filter_map(proof).max().unwrap_or(0)
    }

    fn read_frame(&self, header: &FrameHeader, entries: &mut Vec<Entry>) -> FrameState {
        let end = (header.offset + header.bytes) as usize;
        let mut at = header.offset as usize + self.shape.first_record(header.offset) as usize;
        let mut state = FrameState::Whole;
        let mut heads = 0u32;
        let mut doubts: Vec<Doubt<'_>> = Vec::new();
        let mut unread_from = None;
        for _ in 0..header.records {
            let begin = skip_gap(&self.bytes[..end], at);
            // `begin` may be beyond the end; below it, it fits in 32 bits.
            let identity = self.secret.identity(header.segment, begin as u32);
            let claimed = self.bytes[..end].get(begin..);
            let Some(claimed) = claimed.and_then(|bytes| RecordView::claimed(bytes, &identity).ok()) else {
                // Without this record's length the following ones cannot be found.
                unread_from = Some(begin.min(end) as u32);
                break;
            };
            let Claimed { record, crc, damage, .. } = claimed;
            heads = heads.wrapping_add(crc);
            at = begin + self.shape.padded(record.bytes()) as usize;
            if damage.is_some() || record.verify_value(self.secret).is_err() {
                state = FrameState::Broken { unnamed: None };
                if planted(Bug::OlderVersionOnDamage) {
                    continue;
                }
            }
            let key_hash = self.secret.key_hash(record.keyspace, record.key);
            let padded_bytes = self.shape.padded(record.bytes()) as u32;
            let entry = Entry::of_record(&record.to_record(), key_hash, begin as u32, padded_bytes);
            if damage.is_some() {
                doubts.push(Doubt { claimed, identity, entry });
            }
            entries.push(entry);
        }
        let missing = header.heads.wrapping_sub(heads);
        let is_all_read = unread_from.is_none();
        if is_all_read && missing == 0 || doubts.is_empty() || planted(Bug::DamagedHeadTaken) {
            return if is_all_read {
                state
            } else {
                FrameState::Broken { unnamed: unread_from.map(|at| at..end as u32) }
            };
        }
        // Some of the records that do not verify have a changed head. If it is a single one, the sum gives its original
        // CRC, and its own checksum confirms which record it is; the heads of the others are then unchanged.
        let changed = doubts.iter().find(|doubt| is_all_read && doubt.had_other_head(missing));
        let changed = changed.map(|doubt| doubt.entry);
        let is_doubtful = |entry: &Entry| match changed {
            Some(changed) => entry.offset == changed.offset,
            None => doubts.binary_search_by_key(&entry.offset, |doubt| doubt.entry.offset).is_ok(),
        };
        let first = changed.unwrap_or(doubts[0].entry);
        entries.retain(|entry| !is_doubtful(entry));
        let behind = changed.map_or(end as u32, |changed| changed.offset + changed.bytes);
        FrameState::Broken { unnamed: Some(first.offset..behind) }
    }
}

/// A record with a small value that does not verify: the value or its head is damaged.
struct Doubt<'a> {
    claimed: Claimed<'a>,
    identity: Identity,
    entry: Entry,
}

impl Doubt<'_> {
    /// True if only the head is damaged, assuming that its original CRC was larger by `missing`.
    fn had_other_head(&self, missing: u32) -> bool {
        self.claimed.had(self.claimed.crc.wrapping_add(missing), &self.identity)
    }
}
