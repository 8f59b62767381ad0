//! Contents of the newest backup in a directory, which the next one shares.

use std::path::Path;

use esker_engine::{Checkpoint, CheckpointSegment};
use esker_log::Tier;
use esker_seeded_bugs::{Bug, planted};

use crate::directory::{Directory, newest};
use crate::error::{Error, Result};
use crate::manifest::{Segment, file_name};

/// Contents of the newest backup. A segment that a still older one has, and not this one, was freed in between, so it can
/// be needed again only after a rollback of the store; then it is copied again.
#[derive(Default)]
pub(crate) struct Known {
    /// Its segments, by tier and number.
    segments: Vec<Segment>,
    store: Option<Option<u128>>,
    id: u64,
}

impl Known {
    /// Reads the newest manifest of a directory.
    pub(crate) fn of(directory: &Directory) -> Result<Known> {
        let Some(manifest) = newest(&directory.path)? else { return Ok(Known::default()) };
        let mut segments = Vec::with_capacity(manifest.summary.segments);
        manifest.each_segment(|segment| {
            segments.push(segment);
            Ok(())
        })?;
        segments.sort_unstable_by_key(key);
        Ok(Known { segments, store: Some(manifest.header.store_id()), id: manifest.header.id })
    }

    /// Returns the number of the next backup.
    pub(crate) fn next_id(&self) -> u64 {
        self.id + 1
    }

    /// Refuses backups of another store: segments are shared by their numbers, which other stores use too.
    pub(crate) fn check_store(&self, directory: &Path, checkpoint: &Checkpoint) -> Result<()> {
        let this = checkpoint.superblocks().first().map(|superblock| superblock.store_id);
        if self.store.is_none_or(|store| store == this) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} has backups of another store; give each store a directory of its own",
            directory.display()
        )))
    }

    /// Returns the segment of the newest backup, if it is identical and was read completely.
    pub(crate) fn same(&self, segment: &CheckpointSegment, mark: u64) -> Option<&Segment> {
        let is_same = |it: &&Segment| {
            it.mark == Some(mark) && (it.unread.is_empty() || planted(Bug::UnreadSegmentShared))
        };
        let at = self.segments.binary_search_by_key(&(segment.tier, segment.number), key).ok()?;
        Some(&self.segments[at]).filter(is_same)
    }

    /// Returns the backup that names the file of a new segment: `id` if the segment is open, or if an earlier backup has a
    /// file of that name. Its segment differs if the summary rotted and was rebuilt, if not all of it could be read, or if
    /// the store was rolled back to an older image and reuses numbers.
    pub(crate) fn named_in(directory: &Directory, segment: &CheckpointSegment, id: u64) -> Option<u64> {
        let shared = directory.segment_path(&file_name(segment.tier, segment.number, None));
        (!segment.is_sealed || shared.exists() && !planted(Bug::SharedNameReused)).then_some(id)
    }
}

fn key(segment: &Segment) -> (Tier, u64) {
    (segment.tier, segment.number)
}
