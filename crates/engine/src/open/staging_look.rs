//! What a staging file holds, looked at from outside: without its lock, and nothing is made or changed.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker_log::{Entry, SegmentShape, Superblock};

use crate::base::error::{Error, Result};
use crate::open::staging_file::{beside, in_directory};
use crate::segments::staging::{Reading, boot_id};

/// The staging file of a store that was not closed.
#[derive(Debug)]
#[non_exhaustive]
pub struct StagingLook {
    /// Where it lies, or should lie.
    pub path: PathBuf,
    /// What is in it.
    pub content: StagingContent,
}

/// What is in a staging file.
#[derive(Debug)]
#[non_exhaustive]
pub enum StagingContent {
    /// There is no file, and none is expected.
    Missing,
    /// There is no file, although the process was killed since the machine was started: opening needs the loss to be accepted.
    Lost,
    /// It was written before the machine was started anew: nobody can tell whether it is whole, and nobody believes it.
    OfAnotherStart,
    /// What the last process left in it.
    Left {
        /// Records that verify, by the number of the segment that was built in memory.
        segments: Vec<(u64, Vec<Entry>)>,
        /// What does not verify, in words: records that were acknowledged may be lost.
        damage: Vec<String>,
    },
}

impl StagingLook {
    /// Where the staging file of a store lies whose first tier is a file.
    pub fn beside_file(file: &Path) -> PathBuf {
        beside(file, 0)
    }

    /// Looks into the staging file of a store. `place` is its directory, or the file or device of its first tier, whose
    /// superblock and shape are given.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn of(place: &Path, first: &Superblock, shape: SegmentShape) -> Result<StagingLook> {
        let path =
            if place.is_dir() { in_directory(place, first.store_id) } else { beside(place, first.store_id) };
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
        // One that nothing was ever written to is one that is missing.
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
