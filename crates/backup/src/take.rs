//! Taking a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::Hasher;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use esker_device::block_on;
use esker_engine::{Checkpoint, CheckpointSegment, Store};
use esker_log::{FOOTER_BYTES, Footer, Superblock, Tier};
use twox_hash::XxHash3_64;

use crate::directory::{Directory, PIECE_BYTES, Summary, manifests};
use crate::error::{Error, Result};
use crate::manifest::{FORMAT, Manifest, Segment, file_name};

/// What is not written where it is zeros.
const HOLE_BYTES: usize = 64 << 10;

/// How many parts of a sealed segment are compared with what an earlier backup has: the first, the last, and some between.
const SAMPLES: u32 = 3;
const SAMPLE_BYTES: u32 = 4096;

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of segments that are in the backup by now.
    pub bytes: u64,
    /// Bytes of all segments.
    pub of_bytes: u64,
}

/// What a backup did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The backup.
    pub summary: Summary,
    /// Bytes that were copied: the others an earlier backup has.
    pub copied_bytes: u64,
    /// How many segments were copied.
    pub copied_segments: usize,
    /// How long writers waited, at most, for the point in time to be fixed.
    pub stood_still: Duration,
    /// How long all of it took.
    pub took: Duration,
}

/// Takes a backup of an open store into a directory, which is made if it is not there. Blocks until it is durable. The store
/// is read and written to meanwhile; space of segments that die is given back when they were copied. `bytes_per_s`: how
/// fast it may read; 0: as fast as it can.
///
/// # Errors
/// `Store` if the store is closed or cannot be read, `Invalid` if the directory has backups of another store, `Device` if
/// somebody else changes it, `Io` if it cannot be written to. What was copied then is removed by the next [`prune`](crate::prune).
pub fn backup(
    store: &Store,
    directory: &Path,
    bytes_per_s: u64,
    mut progress: impl FnMut(Copied),
) -> Result<Report> {
    let began = Instant::now();
    let directory = Directory::open_or_make(directory)?;
    let earlier = manifests(&directory.path)?;
    let mut checkpoint = block_on(store.checkpoint())?;
    let stood_still = began.elapsed();
    check_store(&directory.path, &earlier, &checkpoint)?;
    let id = earlier.last().map_or(1, |newest| newest.id + 1);
    let known = Known::of(&earlier);
    let mut copied = Copied { bytes: 0, of_bytes: checkpoint.bytes_left() };
    let (mut segments, mut copied_bytes, mut copied_segments) = (Vec::new(), 0, 0);
    while let Some(next) = checkpoint.next() {
        let footer = footer(&checkpoint, &next)?;
        let same = footer.as_deref().and_then(|footer| known.same(&next, footer));
        let file = known.file_for(&next, same, id);
        let there = same.filter(|segment| is_there(&directory, segment));
        segments.push(match there {
            Some(segment) => Segment { slot: next.slot, ..segment.clone() },
            None => {
                let check = copy(&checkpoint, &next, &directory.segment_path(&file), |bytes| {
                    copied_bytes += bytes;
                    copied.bytes += bytes;
                    progress(copied);
                    keep_to(bytes_per_s, copied_bytes, began);
                })?;
                copied_segments += 1;
                let (fast, bytes) = (next.tier == Tier::Fast, next.bytes.into());
                Segment { fast, slot: next.slot, number: next.number, file, bytes, check, footer }
            }
        });
        checkpoint.let_go(&next);
        copied.bytes = copied.of_bytes - checkpoint.bytes_left();
        progress(copied);
    }
    let manifest = Manifest {
        format: FORMAT,
        id,
        taken_at_ms: checkpoint.taken_at_ms(),
        keys: checkpoint.keys(),
        superblocks: checkpoint.superblocks().to_vec(),
        segments,
    };
    directory.add(&manifest)?;
    let summary = Summary::of(&manifest);
    Ok(Report { summary, copied_bytes, copied_segments, stood_still, took: began.elapsed() })
}

/// What earlier backups have.
struct Known<'m> {
    /// Sealed segments, by tier, number and footer.
    sealed: BTreeMap<(bool, u64, &'m str), &'m Segment>,
    /// Files that a manifest names.
    files: BTreeSet<&'m str>,
}

impl<'m> Known<'m> {
    fn of(earlier: &'m [Manifest]) -> Known<'m> {
        let all = || earlier.iter().flat_map(|manifest| &manifest.segments);
        let sealed = all().filter_map(|it| Some(((it.fast, it.number, it.footer.as_deref()?), it)));
        Known { sealed: sealed.collect(), files: all().map(|segment| segment.file.as_str()).collect() }
    }

    /// The segment as an earlier backup has it, if it is the same.
    fn same(&self, segment: &CheckpointSegment, footer: &str) -> Option<&'m Segment> {
        self.sealed.get(&(segment.tier == Tier::Fast, segment.number, footer)).copied()
    }

    /// The file that a segment goes to. An earlier backup may have a segment of the same number that is another one: its summary
    /// rotted and was made anew, or the whole store is an older image of itself and gives numbers out again. That file stays.
    fn file_for(&self, segment: &CheckpointSegment, same: Option<&Segment>, id: u64) -> String {
        let shared = file_name(segment.tier, segment.number, None);
        match same {
            Some(same) => same.file.clone(),
            None if segment.is_sealed && !self.files.contains(shared.as_str()) => shared,
            None => file_name(segment.tier, segment.number, Some(id)),
        }
    }
}

/// Backups of one store share segments by their numbers, which other stores use too.
fn check_store(directory: &Path, earlier: &[Manifest], checkpoint: &Checkpoint) -> Result<()> {
    let this = checkpoint.superblocks().first().map(|superblock| superblock.store_id);
    match earlier.iter().find(|manifest| manifest.store_id() != this) {
        None => Ok(()),
        Some(_) => Err(Error::Invalid(format!(
            "{} has backups of another store; give each store a directory of its own",
            directory.display()
        ))),
    }
}

/// What tells a sealed segment from another one of its number, as hexadecimal digits: its footer, and a checksum of some of its
/// pages. The footer's checksums are of keys, places and sequence numbers; where a store was rolled back and the same keys got
/// other values of the same lengths, only pages differ.
fn footer(checkpoint: &Checkpoint, segment: &CheckpointSegment) -> Result<Option<String>> {
    if !segment.is_sealed {
        return Ok(None);
    }
    let at = segment.bytes - FOOTER_BYTES as u32;
    let mut bytes = block_on(checkpoint.read(segment, at, FOOTER_BYTES as u32))?;
    let secret = checkpoint.superblocks().first().map(Superblock::secret);
    let footer = secret.and_then(|secret| Footer::parse(&bytes, &secret, segment.bytes));
    // Of one whose summary is damaged all of it may be frames.
    let end = footer.map_or(segment.bytes, |footer| footer.tail);
    let mut check = XxHash3_64::new();
    for sample in 0..SAMPLES {
        let from =
            (u64::from(end.saturating_sub(SAMPLE_BYTES)) * u64::from(sample) / u64::from(SAMPLES - 1)) as u32;
        check.write(&block_on(checkpoint.read(segment, from, SAMPLE_BYTES.min(end - from)))?);
    }
    bytes.extend(check.finish().to_be_bytes());
    Ok(Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn is_there(directory: &Directory, segment: &Segment) -> bool {
    fs::metadata(directory.segment_path(&segment.file)).is_ok_and(|file| file.len() == segment.bytes)
}

/// Copies a segment into a file, durably, and returns its checksum.
fn copy(
    checkpoint: &Checkpoint,
    segment: &CheckpointSegment,
    path: &Path,
    mut copied: impl FnMut(u64),
) -> Result<u64> {
    let staged = path.with_extension("tmp");
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&staged);
    let file = file.map_err(Error::io(&staged))?;
    let mut check = XxHash3_64::new();
    for at in (0..segment.bytes).step_by(PIECE_BYTES) {
        let bytes = (PIECE_BYTES as u32).min(segment.bytes - at);
        let piece = block_on(checkpoint.read(segment, at, bytes))?;
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
    fs::rename(&staged, path).map_err(Error::io(path))?;
    Ok(check.finish())
}

/// Waits until so many bytes are no more than were allowed since the beginning.
fn keep_to(bytes_per_s: u64, bytes: u64, began: Instant) {
    if bytes_per_s > 0 {
        let due = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
}
