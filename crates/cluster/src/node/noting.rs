//! Writes the sightings of other nodes to the log, so that a disk that was rolled back is recognized after a restart of this node,
//! too.

use esker_engine::GroupLog;

use super::core::Node;
use super::identity::{note_sightings, sightings};
use crate::sightings::Sighting;

/// Rounds between two notes of positions.
const POSITION_ROUNDS: u64 = 20;

/// A durable note of a node.
pub(super) struct Noted {
    sightings: Vec<Sighting>,
    /// Sum of the indexes that the groups had applied.
    applied: u64,
}

impl Noted {
    /// Returns the note in a log.
    pub(super) fn new(log: &GroupLog) -> Noted {
        Noted { sightings: sightings(log), applied: 0 }
    }
}

/// Returns the starts without the positions.
fn starts(seen: &[Sighting]) -> impl Iterator<Item = (u64, u64, u64)> {
    seen.iter().map(|sighting| (sighting.node, sighting.starts, sighting.instance))
}

impl Node {
    /// Notes starts of other nodes when they change, and positions from time to time while groups apply entries: a note is a
    /// record itself, which moves the position that others see, so that notes of an idle cluster would never end.
    pub(super) async fn save_sightings(&self, round: u64) {
        let seen = self.peers.sightings();
        let is_new_start = !starts(&seen).eq(starts(&self.noted.lock().sightings));
        if !is_new_start && !round.is_multiple_of(POSITION_ROUNDS) {
            return;
        }
        let applied = self.replicas.values().map(|replica| replica.status().applied).sum();
        let has_moved = {
            let noted = self.noted.lock();
            applied != noted.applied && seen != noted.sightings
        };
        if !is_new_start && !has_moved {
            return;
        }
        match note_sightings(&self.log, &seen).await {
            Ok(()) => *self.noted.lock() = Noted { sightings: seen, applied },
            Err(error) => tracing::warn!("the starts of other nodes cannot be noted: {error}"),
        }
    }
}
