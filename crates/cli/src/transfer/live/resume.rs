//! The file of `--state`: the origin of the target's keys, and the place in the stream up to which the target has all changes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::link::Position;
use crate::terminal::Failure;

/// Interval between two versions of the file.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A place in a stream.
pub(super) struct Place {
    pub(super) position: Position,
    /// Database of the next command.
    pub(super) database: u64,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Saved {
    source: String,
    target: String,
    /// True if the keys of the target come from the source.
    #[serde(default)]
    is_owned: bool,
    /// `None` before the end of the first snapshot, and always if the source is read by passes.
    #[serde(flatten)]
    place: Option<SavedPlace>,
}

#[derive(Serialize, Deserialize)]
struct SavedPlace {
    id: String,
    offset: u64,
    database: u64,
}

pub(super) struct Resume {
    path: Option<PathBuf>,
    saved: Saved,
    last: Instant,
}

impl Resume {
    /// Reads the file if it exists.
    ///
    /// # Errors
    /// If it cannot be read, or is of other servers.
    pub(super) fn open(path: Option<PathBuf>, source: &str, target: &str) -> Result<Resume, Failure> {
        let saved = match &path {
            Some(path) if path.exists() => {
                let wrong = |why: String| Failure::Usage(format!("--state {}: {why}", path.display()));
                let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                let saved: Saved = serde_json::from_str(&text)
                    .map_err(|error| wrong(format!("it is not of an import: {error}")))?;
                if (saved.source.as_str(), saved.target.as_str()) != (source, target) {
                    let (from, to) = (saved.source, saved.target);
                    return Err(wrong(format!("it is of an import from {from} to {to}: give another file")));
                }
                saved
            }
            _ => Saved { source: source.to_owned(), target: target.to_owned(), is_owned: false, place: None },
        };
        Ok(Resume { path, saved, last: Instant::now() })
    }

    /// Returns true if the keys of the target come from the source.
    pub(super) fn is_owned(&self) -> bool {
        self.saved.is_owned
    }

    /// Saves the origin of the target's keys before the first key is copied. A call after a kill finds keys in the target, and
    /// cannot tell by them who wrote them.
    pub(super) fn begin(&mut self, is_owned: bool) -> Result<(), Failure> {
        self.saved.is_owned = is_owned;
        self.write()
    }

    /// Returns the place to continue from.
    pub(super) fn place(&self) -> Option<Place> {
        let SavedPlace { id, offset, database } = self.saved.place.as_ref()?;
        let position = Position { id: id.clone(), offset: *offset };
        Some(Place { position, database: *database })
    }

    /// Saves a place, at most once in a second.
    pub(super) fn save_sometimes(&mut self, place: Option<Place>) -> Result<(), Failure> {
        if self.last.elapsed() >= SAVE_EVERY { self.save(place) } else { Ok(()) }
    }

    /// Saves a place: a complete file replaces the older one.
    pub(super) fn save(&mut self, place: Option<Place>) -> Result<(), Failure> {
        self.last = Instant::now();
        let Some(Place { position: Position { id, offset }, database }) = place else { return Ok(()) };
        self.saved.place = Some(SavedPlace { id, offset, database });
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let text = serde_json::to_vec(&self.saved).expect("strings and numbers can be written as JSON");
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        written.map_err(|error| Failure::Failed(format!("cannot write --state {}: {error}", path.display())))
    }
}
