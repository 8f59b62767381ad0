//! Contents of the earlier backups in a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_engine::{Checkpoint, CheckpointSegment};
use esker_log::Tier;
use esker_seeded_bugs::{Bug, planted};

use crate::error::{Error, Result};
use crate::manifest::{Manifest, Segment, file_name};

/// Contents of earlier backups. A segment that many of them share is listed once.
#[derive(Default)]
pub(crate) struct Known {
    /// Segments that a new backup may share, or whose name it must not reuse, by tier and number: `true` is the fast
    /// tier.
    segments: BTreeMap<(bool, u64), Vec<Segment>>,
    stores: BTreeSet<Option<u128>>,
    newest: u64,
}

impl Known {
    /// Adds the contents of a manifest. Manifests are added in the order of their numbers.
    pub(crate) fn add(&mut self, manifest: Manifest) {
        self.newest = manifest.id;
        self.stores.insert(manifest.store_id());
        for segment in manifest.segments {
            if segment.footer.is_none() && segment.file != file_name(segment.tier(), segment.number, None) {
                continue;
            }
            let all = self.segments.entry((segment.fast, segment.number)).or_default();
            all.retain(|earlier| earlier.file != segment.file);
            // Nearly all numbers have a single segment.
            all.reserve_exact(1);
            all.push(segment);
        }
    }

    /// Returns the number of the next backup.
    pub(crate) fn next_id(&self) -> u64 {
        self.newest + 1
    }

    /// Refuses backups of another store: segments are shared by their numbers, which other stores use too.
    pub(crate) fn check_store(&self, directory: &Path, checkpoint: &Checkpoint) -> Result<()> {
        let this = checkpoint.superblocks().first().map(|superblock| superblock.store_id);
        if self.stores.iter().all(|store| *store == this) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} has backups of another store; give each store a directory of its own",
            directory.display()
        )))
    }

    /// Returns the segment of an earlier backup, if it is identical and was read completely.
    pub(crate) fn same(&self, segment: &CheckpointSegment, footer: &str) -> Option<&Segment> {
        let is_same = |it: &&Segment| {
            it.footer.as_deref() == Some(footer)
                && (it.unread.is_empty() || planted(Bug::UnreadSegmentShared))
        };
        self.of(segment).iter().rev().find(is_same)
    }

    /// Returns the file name for a segment. If an earlier backup has a different segment of the same number, its file
    /// stays and the new one gets another name. They differ if the summary rotted and was rebuilt, if not all of it
    /// could be read, or if the store was rolled back to an older image and reuses numbers.
    pub(crate) fn file_for(&self, segment: &CheckpointSegment, id: u64) -> String {
        let shared = file_name(segment.tier, segment.number, None);
        let is_taken = self.of(segment).iter().any(|it| it.file == shared);
        match segment.is_sealed && !is_taken {
            true => shared,
            false => file_name(segment.tier, segment.number, Some(id)),
        }
    }

    fn of(&self, segment: &CheckpointSegment) -> &[Segment] {
        let key = (segment.tier == Tier::Fast, segment.number);
        self.segments.get(&key).map_or(&[], Vec::as_slice)
    }
}
