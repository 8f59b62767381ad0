//! Takes a backup.

use std::fs::{self, File};
use std::hash::Hasher;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker_device::block_on;
use esker_engine::{Checkpoint, CheckpointSegment, Store};
use esker_log::{FOOTER_BYTES, Footer, Superblock};
use twox_hash::XxHash3_64;

use crate::directory::{Directory, PIECE_BYTES};
use crate::error::{Error, Result};
use crate::manifest::{Header, Segment, file_name};
use crate::previous_backups::Known;
use crate::reading::{Reader, read_or_none};
use crate::summary::Summary;

/// Bytes of a run of zeros that is not written.
const HOLE_BYTES: usize = 64 << 10;

/// Interval at which a rate-limited backup checks whether the store waits for it.
const LIMIT_LOOK_EVERY: Duration = Duration::from_millis(10);

/// Number of pages of a sealed segment that are compared with an earlier backup: the first, the last, and some between.
const SAMPLES: u32 = 3;
const SAMPLE_BYTES: u32 = 4096;

/// Progress of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of segments that are in the backup already.
    pub bytes: u64,
    /// Bytes of all segments.
    pub of_bytes: u64,
}

/// Result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Summary of the backup.
    pub summary: Summary,
    /// Copied bytes; an earlier backup has the others.
    pub copied_bytes: u64,
    /// Number of copied segments.
    pub copied_segments: usize,
    /// Maximum time that writers waited for the point in time to be fixed.
    pub stood_still: Duration,
    /// Duration of the backup.
    pub took: Duration,
}

/// Takes a backup of an open store into a directory, which is created if missing. Blocks until the backup is durable.
/// The store stays in use meanwhile; the space of dead segments is freed once they were copied. `bytes_per_s`: maximum
/// read rate; 0: unlimited.
///
/// Unreadable ranges are zeros in the backup, and listed in its manifest. The next backup reads them again.
///
/// # Errors
/// [`Error::Unread`] if there were unreadable ranges, although the backup exists; [`Error::Store`] if the store is
/// closed or cannot be read, [`Error::Invalid`] if the directory has backups of another store, [`Error::Device`] if
/// another process changes it, [`Error::Io`] if it cannot be written to. Files copied by a failed backup are removed by
/// the next [`prune`](crate::prune).
pub fn backup(
    store: &Store,
    directory: &Path,
    bytes_per_s: u64,
    mut progress: impl FnMut(Copied),
) -> Result<Report> {
    let began = Instant::now();
    let directory = Directory::open_or_make(directory)?;
    let known = Known::of(&directory)?;
    let mut checkpoint = block_on(store.checkpoint())?;
    let stood_still = began.elapsed();
    known.check_store(&directory.path, &checkpoint)?;
    let id = known.next_id();
    let mut copied = Copied { bytes: 0, of_bytes: checkpoint.bytes_left() };
    let header =
        Header::new(id, checkpoint.taken_at_ms(), checkpoint.keys(), checkpoint.superblocks().to_vec());
    let mut manifest = directory.begin(&header)?;
    let (mut copied_bytes, mut copied_segments) = (0, 0);
    let mut reader = Reader::new(copied.of_bytes);
    while let Some(next) = checkpoint.next() {
        let mark = mark(&checkpoint, &next)?;
        let same = mark.and_then(|mark| known.same(&next, mark));
        let segment = match same.filter(|segment| is_there(&directory, segment)) {
            Some(segment) => Segment { slot: next.slot, ..segment.clone() },
            None => {
                let copy = copy(&checkpoint, &next, &mut reader, &directory, |bytes| {
                    copied_bytes += bytes;
                    copied.bytes += bytes;
                    progress(copied);
                    keep_to(bytes_per_s, copied_bytes, began, &checkpoint);
                })?;
                copied_segments += 1;
                let named_in = match same {
                    // Identical to the earlier copy, whose file it replaces. That heals the earlier backups too.
                    Some(same) if same.check == copy.check => same.named_in,
                    // The earlier backup's file under that name has other content.
                    Some(_) => Some(id),
                    None => Known::named_in(&directory, &next, id),
                };
                let path = directory.segment_path(&file_name(next.tier, next.number, named_in));
                fs::rename(&copy.staged, &path).map_err(Error::io(&path))?;
                let CheckpointSegment { tier, slot, number, bytes, .. } = next;
                let (check, unread) = (copy.check, copy.unread.into());
                Segment { tier, slot, number, named_in, bytes: bytes.into(), check, mark, unread }
            }
        };
        manifest.add(&segment)?;
        checkpoint.let_go(&next);
        copied.bytes = copied.of_bytes - checkpoint.bytes_left();
        progress(copied);
    }
    checkpoint.check()?;
    let summary = Error::unless_whole(directory.add(manifest)?)?;
    Ok(Report { summary, copied_bytes, copied_segments, stood_still, took: began.elapsed() })
}

/// Returns a checksum that distinguishes a sealed segment from another one of its number: of its footer and of some of its
/// pages. The footer's checksums cover keys, offsets and sequence numbers; if a store was rolled back and the same keys got
/// other values of the same lengths, only pages differ. `None` for an open segment, or if these bytes are unreadable.
fn mark(checkpoint: &Checkpoint, segment: &CheckpointSegment) -> Result<Option<u64>> {
    if !segment.is_sealed {
        return Ok(None);
    }
    let at = segment.bytes - FOOTER_BYTES as u32;
    let Some(footer) = read_or_none(checkpoint, segment, at..segment.bytes)? else { return Ok(None) };
    let mut check = XxHash3_64::new();
    check.write(&footer);
    let secret = checkpoint.superblocks().first().map(Superblock::secret);
    let footer = secret.and_then(|secret| Footer::parse(&footer, &secret, segment.bytes));
    // With a damaged summary, all of the segment may be frames.
    let end = footer.map_or(segment.bytes, |footer| footer.tail);
    for sample in 0..SAMPLES {
        let from =
            (u64::from(end.saturating_sub(SAMPLE_BYTES)) * u64::from(sample) / u64::from(SAMPLES - 1)) as u32;
        let sample = from..from + SAMPLE_BYTES.min(end - from);
        let Some(sample) = read_or_none(checkpoint, segment, sample)? else { return Ok(None) };
        check.write(&sample);
    }
    Ok(Some(check.finish()))
}

fn is_there(directory: &Directory, segment: &Segment) -> bool {
    fs::metadata(directory.segment_path(&segment.file())).is_ok_and(|file| file.len() == segment.bytes)
}

/// A segment in a temporary file.
struct Copy {
    staged: PathBuf,
    check: u64,
    /// Unreadable ranges. They are zeros, with a footer at the end of a sealed segment that states the loss.
    unread: Vec<Range<u32>>,
}

/// Copies a segment into a file, durably.
fn copy(
    checkpoint: &Checkpoint,
    segment: &CheckpointSegment,
    reader: &mut Reader,
    directory: &Directory,
    mut copied: impl FnMut(u64),
) -> Result<Copy> {
    let staged = directory.segment_path("copying.tmp");
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&staged);
    let file = file.map_err(Error::io(&staged))?;
    let (mut check, mut unread) = (XxHash3_64::new(), Vec::new());
    for at in (0..segment.bytes).step_by(PIECE_BYTES) {
        let bytes = (PIECE_BYTES as u32).min(segment.bytes - at);
        let mut piece = reader.read(checkpoint, segment, at..at + bytes, &mut unread)?;
        // Without a footer, a completely lost segment would look like a free slot.
        if segment.is_sealed && unread.last().is_some_and(|range| range.end == segment.bytes) {
            let footer = checkpoint.footer_in_place_of_lost(segment);
            let end = piece.len() - footer.len();
            piece[end..].copy_from_slice(&footer);
        }
        check.write(&piece);
        for (number, part) in piece.chunks(HOLE_BYTES).enumerate() {
            if part.iter().any(|byte| *byte != 0) {
                let offset = u64::from(at) + (number * HOLE_BYTES) as u64;
                file.write_all_at(part, offset).map_err(Error::io(&staged))?;
            }
        }
        copied(bytes.into());
    }
    file.set_len(segment.bytes.into()).and_then(|()| file.sync_all()).map_err(Error::io(&staged))?;
    Ok(Copy { staged, check: check.finish(), unread })
}

/// Sleeps to keep `bytes` within the rate since `began`. Does not sleep while the store waits for the space of a
/// segment that is still to be read, because that would delay writers.
fn keep_to(bytes_per_s: u64, bytes: u64, began: Instant, checkpoint: &Checkpoint) {
    if bytes_per_s == 0 {
        return;
    }
    let due = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
    while !checkpoint.is_waited_for() && checkpoint.check().is_ok() {
        let left = due.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LIMIT_LOOK_EVERY));
    }
}
