//! Files and directories that a verb makes for a store, and their owner.
//!
//! Root may run a verb in a directory of a service. Files of root's would keep the service from opening its store.

use std::path::{Path, PathBuf};

use esker_engine::StagingLook;
use esker_inspect::give_to_owner_of_directory;

use crate::terminal::Failure;

/// The file of a staging area in a store's directory.
const STAGING_FILE: &str = "staging.esker";

/// Paths that were missing before a verb made them.
#[derive(Debug)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Notes which of these paths, and of the directories that lead to them, are missing.
    pub(crate) fn before<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Made {
        let mut made: Vec<PathBuf> = Vec::new();
        for path in paths.into_iter().flat_map(missing) {
            if !made.iter().any(|known| known == path) {
                made.push(path.to_owned());
            }
        }
        Made(made)
    }

    /// The same of all files of the stores that lie at these paths: directories, or files of tiers.
    pub(crate) fn before_store<'p>(places: impl IntoIterator<Item = &'p Path>) -> Made {
        let files = |place: &Path| {
            let of_directory = [place.join("data.esker"), place.join(STAGING_FILE)];
            let of_tier = [place.to_owned(), StagingLook::beside_file(place)];
            // A place that is missing is a directory or a file later on: of the other kind nothing is made.
            if place.is_dir() { of_directory.to_vec() } else { [of_tier, of_directory].concat() }
        };
        let all: Vec<PathBuf> = places.into_iter().flat_map(files).collect();
        Made::before(all.iter().map(PathBuf::as_path))
    }

    /// Gives the new files and directories to the owners of their directories if the process runs as root.
    ///
    /// # Errors
    /// If the file system refuses.
    pub(crate) fn give(&self) -> Result<(), Failure> {
        // A directory before the files in it, which go to its owner then.
        self.0.iter().filter(|path| path.exists()).try_for_each(|path| {
            give_to_owner_of_directory(path).map_err(|error| {
                let shown = path.display();
                Failure::Failed(format!("{shown} cannot be given to the owner of its directory: {error}"))
            })
        })
    }
}

/// Returns the missing directories of a path and the path itself, outermost first.
fn missing(path: &Path) -> impl Iterator<Item = &Path> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    missing.into_iter().rev()
}
