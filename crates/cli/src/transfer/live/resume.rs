//! The file of `--state`: the place in the stream up to which the target has all changes.

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
    id: String,
    offset: u64,
    database: u64,
}

pub(super) struct Resume {
    path: Option<PathBuf>,
    source: String,
    target: String,
    saved: Option<Saved>,
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
                Some(saved)
            }
            _ => None,
        };
        let (source, target) = (source.to_owned(), target.to_owned());
        Ok(Resume { path, source, target, saved, last: Instant::now() })
    }

    /// Returns the place to continue from.
    pub(super) fn place(&self) -> Option<Place> {
        let saved = self.saved.as_ref()?;
        let position = Position { id: saved.id.clone(), offset: saved.offset };
        Some(Place { position, database: saved.database })
    }

    /// Saves a place, at most once in a second.
    pub(super) fn save_sometimes(&mut self, place: Option<Place>) -> Result<(), Failure> {
        if self.last.elapsed() >= SAVE_EVERY { self.save(place) } else { Ok(()) }
    }

    /// Saves a place: a complete file replaces the older one.
    pub(super) fn save(&mut self, place: Option<Place>) -> Result<(), Failure> {
        self.last = Instant::now();
        let (Some(path), Some(place)) = (&self.path, place) else { return Ok(()) };
        let (source, target) = (self.source.clone(), self.target.clone());
        let Position { id, offset } = place.position;
        let saved = Saved { source, target, id, offset, database: place.database };
        let text = serde_json::to_vec(&saved).expect("strings and numbers can be written as JSON");
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        written.map_err(|error| Failure::Failed(format!("cannot write --state {}: {error}", path.display())))
    }
}
