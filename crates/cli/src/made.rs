//! Changes the owner of files and directories that a verb makes for a store.
//!
//! Root may run a verb in a directory of a service. Files owned by root would keep the service from
//! opening its store.

use std::path::{Path, PathBuf};

use esker_engine::StagingLook;
use esker_inspect::give_to_owner_of_directory;

use crate::terminal::Failure;

/// Name of the staging file in a store's directory.
const STAGING_FILE: &str = "staging.esker";

/// Paths that did not exist before a verb made them.
#[derive(Debug)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Records the missing paths among these, and their missing parent directories.
    pub(crate) fn before<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Made {
        let mut made: Vec<PathBuf> = Vec::new();
        for path in paths.into_iter().flat_map(missing) {
            if !made.iter().any(|known| known == path) {
                made.push(path.to_owned());
            }
        }
        Made(made)
    }

    /// As `before`, for all files of the stores at these paths: directories, or files of tiers.
    pub(crate) fn before_store<'p>(places: impl IntoIterator<Item = &'p Path>) -> Made {
        let files = |place: &Path| {
            let of_directory = [place.join("data.esker"), place.join(STAGING_FILE)];
            let of_tier = [place.to_owned(), StagingLook::beside_file(place)];
            // A missing path becomes a directory or a file later; the paths of the other kind stay
            // missing.
            if place.is_dir() { of_directory.to_vec() } else { [of_tier, of_directory].concat() }
        };
        let all: Vec<PathBuf> = places.into_iter().flat_map(files).collect();
        Made::before(all.iter().map(PathBuf::as_path))
    }

    /// Gives the new files and directories to the owners of their directories if the process runs as
    /// root.
    ///
    /// # Errors
    /// If the file system refuses.
    pub(crate) fn give(&self) -> Result<(), Failure> {
        // Directories come first, so that files in them get the new owner of the directory.
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
