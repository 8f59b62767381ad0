//! Reading a segment that has no usable summary: frame by frame, telling a torn tail from rot.
//!
//! 1. Frames are walked from the start: each must carry the segment's number, the next index and no older epoch.
//! 2. A frame that does not verify is the **torn tail** if nothing proves that it was durable: the scan ends there and
//!    whatever lies behind is void.
//! 3. It is **rot** if a later frame says that it was durable when that one was written, or if the caller knows it (a
//!    later segment of the same lane exists). What still verifies is kept; a record whose value is rotten keeps its
//!    entry, so that reading its key is an error; what cannot be named is counted as a loss.

use crate::checksum::Secret;
use crate::frame::FrameHeader;
use crate::record::{Damage, RecordView};
use crate::segment::SegmentShape;
use crate::summary::Entry;

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentScan {
    /// Number of the segment; `None` if no frame of it was found.
    pub segment: Option<u64>,
    /// Records, in the order of their offsets.
    pub entries: Vec<Entry>,
    /// Where the last accepted frame ends.
    pub tail: u32,
    /// Ranges that were durable and can no longer be read: keys are lost that cannot be named.
    pub lost: Vec<std::ops::Range<u32>>,
    /// Whether something behind the tail was given up as torn.
    pub torn: bool,
}

enum FrameState {
    Whole,
    /// Some records do not verify; those whose key is readable were collected.
    Broken {
        unnamed: Option<u32>,
    },
}

/// Scans the bytes of a segment, from its start. `wholly_durable`: everything up to the last frame is known to have been
/// durable.
pub fn scan_segment(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    segment: u64,
    wholly_durable: bool,
) -> SegmentScan {
    let mut scan = SegmentScan { segment: Some(segment), ..SegmentScan::default() };
    let (mut at, mut index, mut epoch) = (0u32, 0u32, 0u64);
    while (at as usize) < bytes.len() {
        let header = FrameHeader::parse(&bytes[at as usize..], secret, at)
            .filter(|h| h.segment == segment && h.index == index && h.epoch >= epoch)
            .filter(|h| u64::from(at) + u64::from(h.padded_bytes) <= bytes.len() as u64);
        let Some(header) = header else {
            let Some(next) =
                proof_of_durability(bytes, secret, shape, segment, (at, index, epoch), wholly_durable)
            else {
                scan.torn = at as usize + shape.unit_bytes as usize <= bytes.len();
                break;
            };
            scan.lost.push(at..next.offset);
            (at, index, epoch) = (next.offset, next.index, next.epoch);
            continue;
        };
        let before = scan.entries.len();
        match read_frame(bytes, secret, shape, &header, &mut scan.entries) {
            FrameState::Whole => {}
            FrameState::Broken { unnamed } => {
                let next = at + header.padded_bytes;
                let position = (next, index + 1, header.epoch);
                let durable = wholly_durable
                    || later_frame(bytes, secret, shape, segment, position, |h| h.durable_through >= next)
                        .is_some();
                if !durable {
                    scan.entries.truncate(before);
                    scan.torn = true;
                    break;
                }
                if let Some(from) = unnamed {
                    scan.lost.push(from..at + header.bytes);
                }
            }
        }
        at += header.padded_bytes;
        (index, epoch) = (index + 1, header.epoch);
        scan.tail = at;
    }
    scan
}

/// The next frame of the segment behind `position`, if it proves that what lies at `position` was durable.
fn proof_of_durability(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    segment: u64,
    position: (u32, u32, u64),
    wholly_durable: bool,
) -> Option<FrameHeader> {
    let proven =
        later_frame(bytes, secret, shape, segment, position, |h| h.durable_through > position.0).is_some();
    if wholly_durable || proven {
        later_frame(bytes, secret, shape, segment, position, |_| true)
    } else {
        None
    }
}

fn later_frame(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    segment: u64,
    (at, index, epoch): (u32, u32, u64),
    wanted: impl Fn(&FrameHeader) -> bool,
) -> Option<FrameHeader> {
    (at as usize..bytes.len()).step_by(shape.unit_bytes as usize).find_map(|offset| {
        let header = FrameHeader::parse(&bytes[offset..], secret, offset as u32)?;
        let follows = header.segment == segment && header.index >= index && header.epoch >= epoch;
        (follows && wanted(&header)).then_some(header)
    })
}

fn read_frame(
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
    header: &FrameHeader,
    entries: &mut Vec<Entry>,
) -> FrameState {
    let end = (header.offset + header.bytes) as usize;
    let mut at = header.offset + shape.first_record();
    let mut state = FrameState::Whole;
    for _ in 0..header.records {
        let identity = secret.identity(header.segment, at);
        let record = match bytes.get(at as usize..end).ok_or(Damage::Length) {
            Ok(bytes) => RecordView::parse(bytes, &identity),
            Err(damage) => Err(damage),
        };
        let Ok(record) = record else {
            // Without this record's length the ones behind it cannot be found.
            return FrameState::Broken { unnamed: Some(at) };
        };
        if record.verify_value(secret).is_err() {
            state = FrameState::Broken { unnamed: None };
        }
        entries.push(Entry {
            digest: secret.digest(record.key),
            sequence: record.sequence,
            offset: at,
            bytes: record.bytes() as u32,
            kind: record.kind,
            expires_at_ms: record.expires_at_ms,
        });
        at += shape.padded(record.bytes()) as u32;
    }
    state
}
