//! Inspection of a staging file from outside: it takes no lock and changes nothing.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker_log::{Entry, SegmentShape, Superblock};

use crate::base::error::{Error, Result};
use crate::open::staging_file::{beside, in_directory};
use crate::segments::staging::{Reading, boot_id, last_process};

/// The staging file of a store that was not closed.
#[derive(Debug)]
#[non_exhaustive]
pub struct StagingLook {
    /// Path of the file, existing or not.
    pub path: PathBuf,
    /// Content of the file.
    pub content: StagingContent,
}

/// Content of a staging file.
#[derive(Debug)]
#[non_exhaustive]
pub enum StagingContent {
    /// The file does not exist, and no content is expected.
    Missing,
    /// The file does not exist, although the process was killed since the machine was started: opening requires that
    /// the loss is accepted.
    Lost,
    /// The file was written before the machine was restarted: it may be incomplete, and is ignored.
    OfAnotherStart,
    /// The records that the last process left in the file.
    Left {
        /// Verified records, by the number of the segment that was being built in memory.
        segments: Vec<(u64, Vec<Entry>)>,
        /// Descriptions of damage: acknowledged records may be lost.
        damage: Vec<String>,
    },
}

impl StagingLook {
    /// Returns the path of the staging file of a store whose first tier is a file.
    pub fn beside_file(file: &Path) -> PathBuf {
        beside(file, 0)
    }

    /// Completes a superblock of the first tier that was rebuilt without knowing the staging file: if the last process of the
    /// store was killed since the machine was started, and left records in the file, the next opening takes them. `place` and
    /// `shape` as for [`of`](Self::of).
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn expect(place: &Path, first: &mut Superblock, shape: SegmentShape) -> Result<()> {
        let path = path_of(place, first.store_id);
        let failed = |error| Error::invalid(format!("staging file {}: {error}", path.display()));
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        let Some(boot) = boot_id() else { return Ok(()) };
        if let Some(last) = last_process(&file, &first.secret(), shape, boot)? {
            first.staging_epoch = last.epoch;
            (first.staging_boot, first.staging_bytes) = (boot.number(), last.bytes);
        }
        Ok(())
    }

    /// Reads the staging file of a store. `place` is the store's directory, or the file or device of its first tier;
    /// `first` and `shape` are that tier's superblock and segment shape.
    ///
    /// The file exists and cannot be read.
    pub fn of(place: &Path, first: &Superblock, shape: SegmentShape) -> Result<StagingLook> {
        let path = path_of(place, first.store_id);
        let is_of_this_start = boot_id().is_some_and(|boot| boot.number() == first.staging_boot);
        let missing = || match is_of_this_start && first.staging_bytes > 0 {
            true => StagingContent::Lost,
            false => StagingContent::Missing,
        };
        let failed = |error| Error::invalid(format!("staging file {}: {error}", path.display()));
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(StagingLook { path, content: missing() });
            }
            opened => opened.map_err(failed)?,
        };
        // An empty file counts as missing.
        if file.metadata().map_err(failed)?.size() == 0 {
            return Ok(StagingLook { path, content: missing() });
        }
        let content = match boot_id().filter(|boot| boot.number() == first.staging_boot) {
            None => StagingContent::OfAnotherStart,
            Some(boot) => {
                let expected_bytes = Some(first.staging_bytes);
                let left = Reading { expected_bytes, ..Reading::of(first, shape, boot) }.read(&file)?;
                let segments = left.staged.into_iter().map(|staged| (staged.segment, staged.entries));
                StagingContent::Left { segments: segments.collect(), damage: left.damage }
            }
        };
        Ok(StagingLook { path, content })
    }
}

fn path_of(place: &Path, store_id: u128) -> PathBuf {
    if place.is_dir() { in_directory(place, store_id) } else { beside(place, store_id) }
}
