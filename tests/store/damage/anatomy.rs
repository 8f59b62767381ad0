//! Finds the structures in the bytes of a store, by means of the public parsers of the log.

use std::collections::BTreeSet;
use std::ops::Range;

use esker_log::{
    FOOTER_BYTES, FRAME_HEADER_BYTES, Footer, FrameHeader, IDENTITY_BYTES, Kind, RecordView,
    SUPERBLOCK_COPIES, Secret, SlotStart, Stream, Superblock, skip_gap, slot_start,
};

use crate::support::history::{Key, Stamp, stamp_in};

/// A file or device of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Fast,
    Capacity,
    Staging,
}

/// The purpose of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Superblock,
    FrameHeader,
    /// The identity block of a segment, in its first frame.
    Identity,
    RecordHeader,
    Key,
    Value,
    Tombstone,
    Padding,
    /// The gap between the last frame and the summary, or the end.
    Gap,
    Summary,
    Footer,
    FreeMarker,
    /// The old content of a freed slot.
    Stale,
    /// Slots that were never used, and bytes beside the slots.
    Unused,
    /// A frame of the last append to a user's append point.
    LastFrame,
    /// The newest frame of copies that is not sealed yet.
    LastCopies,
    StagingHeader,
    StagedRecord,
}

/// A range of bytes with one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) part: Part,
    pub(crate) what: What,
    pub(crate) range: Range<u64>,
    /// Number of its segment: later ones are more interesting.
    pub(crate) segment: u64,
}

/// A record on a device or in staged memory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) stamp: Stamp,
    pub(crate) expires_at_ms: Option<u64>,
    /// Byte offset in the segment.
    pub(crate) offset: u32,
    pub(crate) end: u32,
}

/// An intact frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Byte offset in the segment, with padding.
    pub(crate) offset: u32,
    pub(crate) end: u32,
    pub(crate) durable_through: u32,
    pub(crate) records: Vec<Found>,
}

/// A segment that is not free.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) part: Part,
    /// Byte offset of its start on the device or in the staging file.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) segment: u64,
    pub(crate) epoch: u64,
    pub(crate) stream: Stream,
    pub(crate) sealed: bool,
    pub(crate) frames: Vec<Frame>,
}

/// The secret shared by all tiers of a store, and the superblock of one.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) secret: Secret,
    pub(crate) superblock: Superblock,
}

/// Pieces and segments of a store.
#[derive(Default)]
pub(crate) struct Anatomy {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) segments: Vec<Segment>,
    /// Ranges of freed slots.
    pub(crate) freed: Vec<(Part, Range<u64>)>,
    /// Records in staged memory: start of their piece of the file, segment, and record. Offsets are those
    /// in the segment.
    pub(crate) staged: Vec<(u64, u64, Found)>,
}

impl Format {
    pub(crate) fn of(device: &[u8]) -> Format {
        let superblock = Superblock::find(&device[..device.len().min(4 << 20)]).expect("it is formatted");
        Format { secret: superblock.secret(), superblock }
    }

    fn first_record(&self, frame_offset: usize) -> usize {
        let identity = if frame_offset == 0 { IDENTITY_BYTES } else { 0 };
        (FRAME_HEADER_BYTES + identity).next_multiple_of(self.superblock.granule_bytes as usize)
    }

    /// Parses the record at `at`. Returns it with its length and the position of its key.
    fn record_at(&self, bytes: &[u8], segment: u64, at: usize) -> Option<(Found, usize, usize)> {
        let view = RecordView::parse(bytes, &self.secret.identity(segment, at as u32)).ok()?;
        let stamp = (view.kind == Kind::Put)
            .then(|| stamp_in(view.key, view.value).expect("what is on the medium was written by somebody"));
        let found = Found {
            key: view.key.to_vec(),
            stamp,
            expires_at_ms: view.expires_at_ms,
            offset: at as u32,
            end: (at + view.bytes()) as u32,
        };
        Some((found, view.bytes(), view.bytes() - view.key_and_value.len()))
    }

    fn padded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.superblock.granule_bytes as usize)
    }
}

/// Collects the pieces of one segment.
struct Surgeon<'a> {
    anatomy: &'a mut Anatomy,
    part: Part,
    start: u64,
    segment: u64,
}

impl Surgeon<'_> {
    fn piece(&mut self, what: What, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let range = self.start + range.start as u64..self.start + range.end as u64;
        let (part, segment) = (self.part, self.segment);
        self.anatomy.pieces.push(Piece { part, what, range, segment });
    }

    fn record(&mut self, found: &Found, header: usize) {
        let (at, end) = (found.offset as usize, found.end as usize);
        if found.stamp.is_none() {
            return self.piece(What::Tombstone, at..end);
        }
        let key = at + header;
        self.piece(What::RecordHeader, at..key);
        self.piece(What::Key, key..key + found.key.len());
        self.piece(What::Value, key + found.key.len()..end);
    }
}

impl Anatomy {
    /// Finds the structures of a tier's device.
    pub(crate) fn dissect(&mut self, part: Part, device: &[u8]) {
        let format = Format::of(device);
        let superblock = &format.superblock;
        let stride = Superblock::stride_bytes(superblock.unit_bytes);
        for copy in 0..SUPERBLOCK_COPIES as u64 {
            // Most of a copy is padding.
            let range = copy * stride..copy * stride + 256;
            self.pieces.push(Piece { part, what: What::Superblock, range, segment: 0 });
        }
        let range = SUPERBLOCK_COPIES as u64 * stride..superblock.data_offset;
        self.pieces.push(Piece { part, what: What::Unused, range, segment: 0 });
        let mut start = superblock.data_offset;
        let mut slot = 0;
        while start + superblock.segment_bytes <= device.len() as u64 {
            let bytes = &device[start as usize..(start + superblock.segment_bytes) as usize];
            self.dissect_slot(&format, part, slot, start, bytes);
            (start, slot) = (start + superblock.segment_bytes, slot + 1);
        }
        self.pieces.push(Piece { part, what: What::Unused, range: start..device.len() as u64, segment: 0 });
        self.pieces.retain(|piece| !piece.range.is_empty());
    }

    fn dissect_slot(&mut self, format: &Format, part: Part, slot: u32, start: u64, bytes: &[u8]) {
        let end_at = bytes.len() - FOOTER_BYTES;
        let begins = slot_start(bytes, &format.secret, slot);
        let marker = slot_start(&bytes[end_at..], &format.secret, slot);
        let freed = if let SlotStart::Free(freed) = marker { freed } else { None };
        let first = match begins {
            SlotStart::Frame(first) if freed != Some(first.segment) => first,
            SlotStart::Free(None) => {
                let mut surgeon = Surgeon { anatomy: self, part, start, segment: 0 };
                return surgeon.piece(What::Unused, 0..bytes.len());
            }
            _ => {
                let segment = freed.unwrap_or(0);
                self.freed.push((part, start..start + bytes.len() as u64));
                let mut surgeon = Surgeon { anatomy: self, part, start, segment };
                surgeon.piece(What::FreeMarker, 0..FRAME_HEADER_BYTES);
                surgeon.piece(What::Stale, FRAME_HEADER_BYTES..end_at);
                return surgeon.piece(What::FreeMarker, end_at..bytes.len());
            }
        };
        let footer = Footer::parse(&bytes[end_at..], &format.secret, bytes.len() as u32)
            .filter(|footer| footer.segment == first.segment);
        let mut surgeon = Surgeon { anatomy: self, part, start, segment: first.segment };
        let (frames, tail) = dissect_frames(&mut surgeon, format, &first, bytes);
        match footer {
            Some(footer) => {
                let (from, to) = (footer.start as usize, (footer.start + footer.entry_bytes) as usize);
                surgeon.piece(What::Gap, tail..from);
                surgeon.piece(What::Summary, from..to);
                surgeon.piece(What::Padding, to..end_at);
                surgeon.piece(What::Footer, end_at..bytes.len());
            }
            None => {
                surgeon.piece(What::Gap, tail..end_at);
                surgeon.piece(What::FreeMarker, end_at..bytes.len());
            }
        }
        self.segments.push(Segment {
            part,
            start,
            bytes: bytes.len() as u64,
            segment: first.segment,
            epoch: first.epoch,
            stream: first.stream,
            sealed: footer.is_some(),
            frames,
        });
    }

    /// Finds the structures of the staging file of a store whose lane fills segments of `format`.
    pub(crate) fn dissect_staging(&mut self, format: &Format, file: &[u8]) {
        let segment_bytes = format.superblock.segment_bytes;
        let stride = 4096 + segment_bytes;
        let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"));
        for start in (0..file.len() as u64 / stride).map(|piece| piece * stride) {
            let head = start as usize;
            let (epoch, segment) = (word(head + 32), word(head + 40));
            let is_ours = file[head..].starts_with(b"ESKERST3");
            let counts = is_ours && segment != 0 && epoch == format.superblock.staging_epoch;
            let bytes = &file[head + 4096..head + stride as usize];
            let mut surgeon = Surgeon { anatomy: self, part: Part::Staging, start, segment };
            if !counts {
                surgeon.piece(What::Unused, 0..stride as usize);
                continue;
            }
            surgeon.piece(What::StagingHeader, 0..64);
            surgeon.start += 4096;
            let records = staged_records(&mut surgeon, format, segment, bytes);
            self.staged.extend(records.into_iter().map(|found| (start, segment, found)));
        }
    }

    /// Returns true if a segment belongs to an append point of users, by its tier and stream.
    pub(crate) fn is_users(&self, segment: &Segment, two_tiers: bool) -> bool {
        match segment.part {
            Part::Capacity if two_tiers => segment.stream == Stream::LARGE,
            _ => [Stream::LANE, Stream::LONG_LIVED].contains(&segment.stream),
        }
    }

    /// Returns the structure around an offset, in words.
    pub(crate) fn home(&self, part: Part, at: u64, two_tiers: bool) -> &'static str {
        let around = |s: &&Segment| s.part == part && (s.start..s.start + s.bytes).contains(&at);
        match self.segments.iter().find(around) {
            _ if part == Part::Staging => "staging",
            Some(segment) if segment.sealed => "sealed segment",
            Some(segment) if self.is_users(segment, two_tiers) => "open segment of a lane",
            Some(_) => "open segment of copies",
            None if self.freed.iter().any(|(of, range)| *of == part && range.contains(&at)) => "freed slot",
            None => "superblocks and unused",
        }
    }

    /// Returns the offsets of the intact records of a segment on a device.
    pub(crate) fn on_device(&self, segment: u64) -> BTreeSet<u32> {
        let of = self.segments.iter().filter(|s| s.segment == segment);
        of.flat_map(|s| &s.frames).flat_map(|f| &f.records).map(|r| r.offset).collect()
    }
}

/// Finds the frames of a segment. Returns them and the end of the last one.
fn dissect_frames(
    surgeon: &mut Surgeon<'_>,
    format: &Format,
    first: &FrameHeader,
    bytes: &[u8],
) -> (Vec<Frame>, usize) {
    let mut frames: Vec<Frame> = Vec::new();
    let mut offset = 0;
    while let Some(header) = bytes
        .get(offset..)
        .and_then(|from| FrameHeader::parse(from, &format.secret, offset as u32))
        .filter(|h| h.segment == first.segment && h.index as usize == frames.len())
    {
        let end = offset + header.bytes as usize;
        let mut at = offset + format.first_record(offset);
        let mut records = Vec::new();
        if !is_whole(format, &header, bytes) {
            break;
        }
        surgeon.piece(What::FrameHeader, offset..offset + FRAME_HEADER_BYTES);
        if offset == 0 {
            surgeon.piece(What::Identity, FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + IDENTITY_BYTES);
        }
        for _ in 0..header.records {
            let begin = skip_gap(&bytes[..end], at);
            surgeon.piece(What::Padding, at..begin);
            at = begin;
            let (found, length, header) =
                format.record_at(&bytes[at..end], first.segment, at).expect("the frame is whole");
            surgeon.record(&found, header);
            surgeon.piece(What::Padding, at + length..(at + format.padded(length)).min(end));
            records.push(found);
            at += format.padded(length);
        }
        let next = offset + header.padded_bytes as usize;
        surgeon.piece(What::Padding, end..next);
        frames.push(Frame {
            offset: offset as u32,
            end: next as u32,
            durable_through: header.durable_through,
            records,
        });
        offset = next;
    }
    (frames, offset)
}

/// Returns true if a frame was written completely: a kill tears frames in flight.
fn is_whole(format: &Format, header: &FrameHeader, bytes: &[u8]) -> bool {
    let (offset, end) = (header.offset as usize, (header.offset + header.bytes) as usize);
    let mut at = offset + format.first_record(offset);
    let frame = bytes.get(..end);
    (0..header.records).all(|_| {
        let bytes = frame.and_then(|frame| {
            at = skip_gap(frame, at);
            let identity = format.secret.identity(header.segment, at as u32);
            let view = RecordView::parse(frame.get(at..)?, &identity).ok()?;
            view.verify_value(&format.secret).ok().map(|_| view.bytes())
        });
        at += bytes.map_or(0, |bytes| format.padded(bytes));
        bytes.is_some()
    })
}

/// Parses the records of a piece of staged memory: closed frames, and then the open one, which has no
/// header yet.
fn staged_records(surgeon: &mut Surgeon<'_>, format: &Format, segment: u64, bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut frame = 0;
    loop {
        let header = bytes
            .get(frame..)
            .and_then(|from| FrameHeader::parse(from, &format.secret, frame as u32))
            .filter(|h| h.segment == segment);
        let end = header.as_ref().map_or(bytes.len(), |h| frame + h.bytes as usize);
        let mut at = frame + format.first_record(frame);
        while at < end {
            let begin = skip_gap(&bytes[..end], at);
            let here = bytes.get(begin..end);
            let Some((record, length, _)) = here.and_then(|here| format.record_at(here, segment, begin))
            else {
                break;
            };
            surgeon.piece(What::StagedRecord, begin..begin + length);
            at = begin + format.padded(length);
            found.push(record);
        }
        match header {
            Some(header) => frame += header.padded_bytes as usize,
            None => {
                surgeon.piece(What::Gap, at.min(bytes.len())..bytes.len());
                return found;
            }
        }
    }
}
