//! The staging file: lane memory that outlives the process, for [`Durability::Process`](crate::Durability).
//!
//! Each piece of lane memory lies in the file behind a header of one page that says which segment is being built in it. The
//! file counts only if it was written since the machine was started (the boot id tells) and in the last opening of the
//! store (the epoch tells): then the page cache holds exactly what the process wrote before it died, and whatever does not
//! verify is damage. The superblock says which start of the machine that was, and how long the file has to be.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::PrivateFile;
use esker_log::{
    Claim, Entry, FRAME_HEADER_BYTES, FrameHeader, RecordView, Secret, SegmentName, SegmentShape, Superblock,
    skip_gap,
};
use esker_planted::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::buffers::{MemoryPool, STAGING_HEADER_BYTES};

const MAGIC: &[u8; 8] = b"ESKERST3";
const HEADER_BYTES: usize = 64;
/// How much of a file is looked at, at once and in all, to tell whether it is one.
const LOOK_BYTES: usize = 1 << 20;
const LOOK_FAR_BYTES: u64 = 64 << 20;

/// A staging file that this process has for itself.
pub(crate) struct StagingFile {
    pub(crate) file: PrivateFile,
    pub(crate) path: PathBuf,
    /// What is in it counts if it was written in this start of the machine.
    pub(crate) boot: BootId,
    /// How long it is by the superblock.
    covered_bytes: AtomicU64,
}

impl StagingFile {
    pub(crate) fn new(file: PrivateFile, path: PathBuf, boot: BootId) -> StagingFile {
        StagingFile { file, path, boot, covered_bytes: AtomicU64::new(0) }
    }

    /// Nothing was ever written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() == 0)
    }

    pub(crate) fn covered_bytes(&self) -> u64 {
        self.covered_bytes.load(Ordering::Acquire)
    }

    /// The superblock says that it is so long.
    pub(crate) fn set_covered_bytes(&self, bytes: u64) {
        self.covered_bytes.store(bytes, Ordering::Release);
    }

    /// The superblocks tell of so many bytes, or of more.
    pub(crate) fn cover_bytes(&self, bytes: u64) {
        self.covered_bytes.fetch_max(bytes, Ordering::AcqRel);
    }
}

impl Deref for StagingFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Number of one start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootId(u64);

impl BootId {
    /// As it is written down; never 0.
    pub(crate) fn number(self) -> u64 {
        self.0.max(1)
    }
}

/// Number of this start of the machine, if the kernel tells. One that is unknown is the same as no other, not even as one
/// that was unknown: the pages of a file may or may not have outlived what was between.
pub(crate) fn boot_id() -> Option<BootId> {
    parse_boot_id(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

fn parse_boot_id(text: &[u8]) -> Option<BootId> {
    let digits = text.trim_ascii().iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    // A UUID, which never is zero.
    let known = digits == 32 && text.iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0');
    known.then(|| BootId(xor_fold(text)))
}

fn xor_fold(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0u64, |sum, chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.rotate_left(9) ^ u64::from_le_bytes(word)
    })
}

fn io(error: std::io::Error) -> Error {
    Error::invalid(format!("staging file: {error}"))
}

/// What the header of a piece says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// Which piece of the file.
    index: u64,
    boot: u64,
    epoch: u64,
    /// Number of the segment that is built in it; 0: nothing of it is of use to another process.
    segment: u64,
    slot: u64,
    opened_at: u64,
}

impl Head {
    fn words(&self) -> [u64; 6] {
        [self.index, self.boot, self.epoch, self.segment, self.slot, self.opened_at]
    }

    fn encode(&self, secret: &Secret) -> [u8; HEADER_BYTES] {
        let mut bytes = [0u8; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        for (to, word) in bytes[16..].chunks_exact_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = secret.identity(self.segment, 0).crc(&[&bytes[16..]]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header of a piece; `None`: it is damaged, or none of this store's.
    fn parse(bytes: &[u8; HEADER_BYTES], secret: &Secret, index: u64) -> Option<Head> {
        let head = Head::of(bytes);
        (head.index == index && *bytes == head.encode(secret)).then_some(head)
    }

    /// What stands in a header, whatever it is.
    fn of(bytes: &[u8; HEADER_BYTES]) -> Head {
        let mut words =
            bytes[16..].chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let mut word = || words.next().expect("six words");
        Head { index: word(), boot: word(), epoch: word(), segment: word(), slot: word(), opened_at: word() }
    }
}

/// Where a piece begins.
fn start_of(index: u64, shape: SegmentShape) -> u64 {
    MemoryPool::staging_offset(index as usize, u64::from(shape.segment_bytes))
}

/// Says which segment is being built in a piece of memory.
pub(crate) fn write_header(
    file: &StagingFile,
    index: usize,
    secret: &Secret,
    shape: SegmentShape,
    name: SegmentName,
) -> Result<()> {
    let SegmentName { segment, epoch, opened_at, .. } = name;
    let (index, boot, slot) = (index as u64, file.boot.number(), u64::from(name.slot));
    let head = Head { index, boot, epoch, segment, slot, opened_at };
    file.write_all_at(&head.encode(secret), start_of(index, shape)).map_err(io)
}

/// Says that what lies in a piece of memory is of no use to another process. The opening is told all the same: the file that
/// the last one had is known by it.
pub(crate) fn void(
    file: &StagingFile,
    index: usize,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<()> {
    let index = index as u64;
    let head = Head { index, boot: file.boot.number(), epoch, segment: 0, slot: 0, opened_at: 0 };
    file.write_all_at(&head.encode(secret), start_of(index, shape)).map_err(io)
}

/// Says so of all pieces that there are: the store is closed.
pub(crate) fn void_all(file: &StagingFile, secret: &Secret, shape: SegmentShape, epoch: u64) -> Result<()> {
    let pieces = file.metadata().map_err(io)?.len() / start_of(1, shape);
    (0..pieces).try_for_each(|index| void(file, index as usize, secret, shape, epoch))
}

/// Where the next piece begins.
pub(crate) fn end_of(index: usize, shape: SegmentShape) -> u64 {
    start_of(index as u64 + 1, shape)
}

/// Makes the staging file void, and at least as long as `pieces` pieces of memory need it. Returns how far: not to its end
/// where the file system has no room for the headers of pieces that are new.
pub(crate) fn clear(
    file: &StagingFile,
    pieces: usize,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<u64> {
    let there = file.metadata().map_err(io)?.len();
    // Never made shorter: as long as the superblock does not say so, that would look like damage.
    let pieces = (pieces as u64).max(there.div_ceil(start_of(1, shape)));
    let bytes = start_of(pieces, shape);
    file.set_len(bytes).map_err(io)?;
    for index in 0..pieces {
        match file.file.allocate(start_of(index, shape), STAGING_HEADER_BYTES) {
            Err(error) if is_full(&error) => {
                tracing::warn!(path = %file.path.display(), "no room for all of the staging file");
                return Ok(start_of(index, shape));
            }
            allocated => allocated.map_err(io)?,
        }
        void(file, index as usize, secret, shape, epoch)?;
    }
    Ok(bytes)
}

/// Whether there is something in a file, and it is no staging file: neither a header at the start of any page, nor zeros alone.
pub(crate) fn is_something_else(file: &File) -> Result<bool> {
    let bytes = file.metadata().map_err(io)?.len();
    let mut piece = vec![0u8; LOOK_BYTES];
    let (mut at, mut is_empty) = (0, true);
    while at < bytes && (is_empty || at < LOOK_FAR_BYTES) {
        let piece = &mut piece[..LOOK_BYTES.min((bytes - at) as usize)];
        file.read_exact_at(piece, at).map_err(io)?;
        if piece.chunks(STAGING_HEADER_BYTES as usize).any(|page| page.starts_with(MAGIC)) {
            return Ok(false);
        }
        is_empty &= piece.iter().all(|&byte| byte == 0);
        at += piece.len() as u64;
    }
    Ok(!is_empty)
}

/// Whether a file has what a process left in this start of the machine, of whatever store and whatever length of pieces.
pub(crate) fn holds_acknowledged(file: &File, boot: BootId) -> Result<bool> {
    let bytes = file.metadata().map_err(io)?.len();
    let mut head = [0u8; HEADER_BYTES];
    for at in (0..bytes / STAGING_HEADER_BYTES).map(|page| page * STAGING_HEADER_BYTES) {
        file.read_exact_at(&mut head, at).map_err(io)?;
        let left = Head::of(&head);
        if head.starts_with(MAGIC) && left.boot == boot.number() && left.segment != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether it is only room that was missing.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// A segment as the last process left it in memory.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Staged {
    pub(crate) segment: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

impl Staged {
    /// One of its records.
    pub(crate) fn record(&self, entry: &Entry, secret: &Secret) -> RecordView<'_> {
        let bytes = &self.bytes[entry.offset as usize..(entry.offset + entry.bytes) as usize];
        RecordView::parse(bytes, &secret.identity(self.segment, entry.offset))
            .expect("it verified when the staging file was read")
    }
}

/// What the last process left in the staging file.
pub(crate) struct Left {
    pub(crate) staged: Vec<Staged>,
    /// What does not verify, although nothing but the process ended since it was written: acknowledged records are lost.
    pub(crate) damage: Vec<String>,
}

impl Left {
    /// Puts together what was read of the pieces, and what is wrong with the headers.
    pub(crate) fn of(pieces: Vec<(Staged, Option<usize>)>, mut damage: Vec<String>) -> Left {
        let mut staged = Vec::new();
        for (piece, damaged_at) in pieces {
            damage
                .extend(damaged_at.map(|offset| format!("segment {} is damaged at {offset}", piece.segment)));
            staged.push(piece);
        }
        Left { staged, damage }
    }

    /// Damage is refused, unless the loss is accepted.
    pub(crate) fn accept(self, path: &str, accept_loss: bool) -> Result<Vec<Staged>> {
        let Some(first) = self.damage.first() else { return Ok(self.staged) };
        let what = format!("staging file {path}: {first}");
        if accept_loss {
            tracing::error!("{what}; accepted");
            return Ok(self.staged);
        }
        let what = format!(
            "{what}; records that were acknowledged and are nowhere else may be lost; open with accept_loss (esker serve --accept-loss) to go on \
             without them"
        );
        Err(Error::Corrupt { key: None, segment: 0, offset: 0, what })
    }
}

/// What a staging file is read by.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// This start of the machine.
    pub(crate) boot: BootId,
    pub(crate) secret: Secret,
    pub(crate) shape: SegmentShape,
    /// The opening of the store that is believed.
    pub(crate) epoch: u64,
    /// How long the file was, if it was written in this start of the machine; else whatever is in it may be.
    pub(crate) expected_bytes: Option<u64>,
}

/// A piece of the staging file that holds a segment of the last process.
pub(crate) struct Piece {
    at: u64,
    segment: u64,
}

impl Reading {
    /// As the superblock of the first tier says, but for the length.
    pub(crate) fn of(first: &Superblock, shape: SegmentShape, boot: BootId) -> Reading {
        let (secret, epoch) = (first.secret(), first.staging_epoch);
        Reading { boot, secret, shape, epoch, expected_bytes: None }
    }

    /// Whether the file is of this store, and of an earlier opening than the last: what the last process left is in another one.
    pub(crate) fn is_outdated(&self, file: &File) -> Result<bool> {
        let mut head = [0u8; HEADER_BYTES];
        if file.metadata().map_err(io)?.len() < HEADER_BYTES as u64 {
            return Ok(false);
        }
        file.read_exact_at(&mut head, 0).map_err(io)?;
        Ok(Head::parse(&head, &self.secret, 0).is_some_and(|head| self.is_too_old(&head)))
    }

    fn is_too_old(&self, head: &Head) -> bool {
        self.expected_bytes.is_some_and(|bytes| bytes > 0) && head.epoch < self.epoch
    }

    /// Whether the file has what a process of another store left in this start of the machine.
    pub(crate) fn is_anothers(&self, file: &File) -> Result<bool> {
        let bytes = file.metadata().map_err(io)?.len();
        let mut head = [0u8; HEADER_BYTES];
        // Whoever has the file for itself writes the first header; one of a store that was killed may be damaged.
        let pieces = self.expected_bytes.map_or(1, |_| (bytes / start_of(1, self.shape)).max(1));
        for index in (0..pieces).filter(|_| bytes >= HEADER_BYTES as u64) {
            file.read_exact_at(&mut head, start_of(index, self.shape)).map_err(io)?;
            if Head::parse(&head, &self.secret, index).is_some() {
                return Ok(false);
            }
        }
        holds_acknowledged(file, self.boot)
    }

    /// Reads what the process left.
    pub(crate) fn read(&self, file: &File) -> Result<Left> {
        let (pieces, damage) = self.pieces(file)?;
        let read: Result<Vec<_>> = pieces.iter().map(|piece| self.piece(file, piece)).collect();
        Ok(Left::of(read?, damage))
    }

    /// The pieces to be read, and what is wrong with the headers.
    pub(crate) fn pieces(&self, file: &File) -> Result<(Vec<Piece>, Vec<String>)> {
        let bytes = file.metadata().map_err(io)?.len();
        let (mut pieces, mut damage) = (Vec::new(), Vec::new());
        if let Some(expected) = self.expected_bytes.filter(|&expected| bytes < expected) {
            damage.push(format!("it is {bytes} bytes long and was {expected}"));
        }
        for index in 0..bytes / start_of(1, self.shape) {
            let at = start_of(index, self.shape);
            let mut head = [0u8; HEADER_BYTES];
            file.read_exact_at(&mut head, at).map_err(io)?;
            let Some(head) = Head::parse(&head, &self.secret, index) else {
                if self.expected_bytes.is_some_and(|expected| at < expected) {
                    damage.push(format!("the header at {at} is damaged"));
                }
                continue;
            };
            if index == 0 && self.is_too_old(&head) {
                damage.push("it is not the one of the last opening, which is still to be found".to_owned());
            }
            let is_of_this_boot = head.boot == self.boot.number() || planted(Bug::StagingOfAnyBoot);
            let is_of_last_opening = head.epoch == self.epoch || planted(Bug::StagingOfAnyOpening);
            if head.segment != 0 && is_of_this_boot && is_of_last_opening {
                pieces.push(Piece { at, segment: head.segment });
            }
        }
        Ok((pieces, damage))
    }

    /// Reads and verifies a piece: what is in it, and where it is damaged.
    pub(crate) fn piece(&self, file: &File, piece: &Piece) -> Result<(Staged, Option<usize>)> {
        let Reading { ref secret, shape, epoch, .. } = *self;
        let mut bytes = vec![0u8; shape.segment_bytes as usize];
        file.read_exact_at(&mut bytes, piece.at + STAGING_HEADER_BYTES).map_err(io)?;
        let walk = Walk { bytes: &bytes, secret, shape, segment: piece.segment, epoch };
        let (entries, damaged_at) = walk.entries();
        Ok((Staged { segment: piece.segment, bytes, entries }, damaged_at))
    }
}

/// The bytes of a segment as they were in memory when the process died.
struct Walk<'a> {
    bytes: &'a [u8],
    secret: &'a Secret,
    shape: SegmentShape,
    segment: u64,
    /// Opening of the store in which it was written.
    epoch: u64,
}

impl Walk<'_> {
    /// Walks closed frames by their headers, then the open one, which has none yet, record by record. What is not whole at
    /// the very end was being written; anywhere else it is damage, and the offset tells where.
    fn entries(&self) -> (Vec<Entry>, Option<usize>) {
        let mut entries = Vec::new();
        let mut frame = 0usize;
        loop {
            let closed = self.closed_frame(frame);
            let end = closed.as_ref().map_or(self.bytes.len(), |h| frame + h.bytes as usize);
            let stopped_at = self.read_records(frame, end, &mut entries);
            match closed {
                Some(_) if stopped_at < end => return (entries, Some(stopped_at)),
                Some(header) => frame += header.padded_bytes as usize,
                None => return (entries, self.goes_on(stopped_at).then_some(stopped_at)),
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

    /// Collects the records of a frame, up to the first that does not verify: where that is, or where they end. A batch of
    /// which that is a part is left out.
    fn read_records(&self, frame: usize, end: usize, entries: &mut Vec<Entry>) -> usize {
        let mut at = frame + FRAME_HEADER_BYTES.next_multiple_of(self.shape.granule_bytes as usize);
        let mut whole = entries.len();
        while at < end {
            let begin = skip_gap(&self.bytes[..end], at);
            let Some(record) = self.record(begin, end) else { break };
            entries.push(Entry {
                key_hash: self.secret.key_hash(record.keyspace, record.key),
                sequence: record.sequence,
                offset: begin as u32,
                bytes: self.shape.padded(record.bytes()) as u32,
                kind: record.kind,
                expansion: record.expansion(),
                expires_at_ms: record.expires_at_ms,
            });
            if !record.batch_goes_on || planted(Bug::TornBatchTaken) {
                whole = entries.len();
            }
            at = begin + self.shape.padded(record.bytes()) as usize;
        }
        entries.truncate(whole);
        at
    }

    /// Whether anything of the segment lies behind an offset: it was written in its order, so what is there was whole. What
    /// is found is not believed for anything else.
    fn goes_on(&self, from: usize) -> bool {
        // Whatever was there before may look like a header, but hardly like one of this opening, whose numbers begin with its
        // own: so few are worth their checksums.
        let claims = |at: &usize| {
            let claim = Claim::of(&self.bytes[*at..]);
            claim.is_some_and(|claim| claim.sequence >> esker_log::SEQUENCE_EPOCH_SHIFT >= self.epoch)
        };
        let granules = (from..self.bytes.len()).step_by(self.shape.granule_bytes as usize).skip(1);
        let mut units = (0..self.bytes.len()).step_by(self.shape.unit_bytes as usize).filter(|&at| at > from);
        units.any(|at| self.closed_frame(at).is_some())
            || granules.filter(claims).any(|at| self.record(at, self.bytes.len()).is_some())
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
