//! Recognizes a disk that was rolled back to an earlier state: a copy or a snapshot of it was started again, or its drive
//! lost writes that it had reported as durable. Such a node has forgotten votes and entries that others count on.
//!
//! A node says in each hello how often it has started, and of each of its last starts a random number, the *instance*, and the
//! *position*: the number of records of its log that it found. Each answer to another node has the number of records that are
//! durable by then, which covers the promise in the answer. Every other node remembers the last start and the highest position.
//! It refuses a node
//!
//! 1. that has started less often,
//! 2. one of whose starts had another instance than the one that was seen,
//! 3. that found fewer records after the start that was seen than were durable before, or
//! 4. that continues a start which was refused.
//!
//! See `docs/decisions/0051-groups.md` for the rollbacks that this cannot recognize.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, BufMut};
use esker_seeded_bugs::{Bug, planted};

use crate::peers::NodeIdentity;

/// Number of starts that a node remembers of itself.
pub const STARTS_KEPT: usize = 8;
/// Bytes of a history.
pub(crate) const HISTORY_BYTES: usize = STARTS_KEPT * 16;
/// Number of refused starts that are remembered.
const REFUSED_KEPT: usize = 64;

/// A start of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Random number of the start; 0 if it is not known.
    pub instance: u64,
    /// Number of records in the log that it found.
    pub position: u64,
}

/// The last starts of a node, the latest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartHistory([Start; STARTS_KEPT]);

impl StartHistory {
    /// Returns the history with another start. The oldest one is forgotten.
    pub fn with(mut self, start: Start) -> StartHistory {
        self.0.rotate_right(1);
        self.0[0] = start;
        self
    }

    /// Returns the start with this many starts after it, if it is known.
    fn get(&self, back: u64) -> Option<Start> {
        let start = self.0.get(usize::try_from(back).ok()?)?;
        (start.instance != 0).then_some(*start)
    }

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        for Start { instance, position } in self.0 {
            to.put_u64_le(instance);
            to.put_u64_le(position);
        }
    }

    pub(crate) fn take(from: &mut impl Buf) -> Option<StartHistory> {
        let mut history = StartHistory::default();
        for start in &mut history.0 {
            let instance = from.try_get_u64_le().ok()?;
            *start = Start { instance, position: from.try_get_u64_le().ok()? };
        }
        Some(history)
    }
}

/// Record that a node keeps of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Number of the node.
    pub node: u64,
    /// Its number of starts.
    pub starts: u64,
    /// Instance of its last start; 0 if it is not known.
    pub instance: u64,
    /// Highest number of durable records of its log that it reported.
    pub position: u64,
}

impl Sighting {
    /// Checks that a node continues this sighting of it.
    ///
    /// # Errors
    /// A text that follows the name of the node.
    fn check(&self, said: &NodeIdentity) -> Result<(), String> {
        let Some(since) = said.starts.checked_sub(self.starts) else {
            let why = format!("has started {} times, and was seen after {}", said.starts, self.starts);
            return if planted(Bug::OldStartsAdmitted) { Ok(()) } else { Err(why) };
        };
        let continued = said.history.get(since).filter(|_| self.instance != 0);
        if continued.is_some_and(|start| start.instance != self.instance) && !planted(Bug::OtherStartAdmitted)
        {
            return Err(format!("was seen in another process after start {}", self.starts));
        }
        // Of the starts after the one that was seen, the first that is known found the fewest records.
        let next = (0..since.min(STARTS_KEPT as u64)).rev().find_map(|back| said.history.get(back));
        match next.filter(|next| next.position < self.position && !planted(Bug::LostLogAdmitted)) {
            Some(next) => Err(format!(
                "found {} records in its log, of which it had reported {} as durable",
                next.position, self.position
            )),
            None => Ok(()),
        }
    }
}

/// Records that a node keeps of all others.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    /// With the starts that an accepted node said of itself.
    nodes: BTreeMap<u64, (Sighting, StartHistory)>,
    /// Instances of starts that were refused.
    refused: VecDeque<u64>,
}

impl Sightings {
    /// Checks that a node continues its sighting.
    ///
    /// # Errors
    /// A text that follows the name of the node, and has the remedy.
    pub fn check(&self, said: &NodeIdentity) -> Result<(), String> {
        let is_refused = |start: &Start| start.instance != 0 && self.refused.contains(&start.instance);
        let continues = match said.history.0.iter().any(is_refused) {
            true => Err("continues a start that was refused".to_owned()),
            false => self.nodes.get(&said.node).map_or(Ok(()), |(sighting, _)| sighting.check(said)),
        };
        continues.map_err(|why| {
            format!(
                "{why}: its disk was rolled back to an earlier state, is a copy, or lost writes; remove the node, and let it \
                 join with an empty directory"
            )
        })
    }

    /// Notes a node that was refused by [`check`](Self::check): later starts of the same disk are refused, too. The last hello
    /// of an earlier process may come after the first one of its successor, and is not noted.
    pub fn note_refused(&mut self, said: &NodeIdentity) {
        let Some(Start { instance, .. }) = said.history.get(0) else { return };
        let of_successor =
            self.nodes.get(&said.node).map_or(StartHistory::default(), |(_, history)| *history);
        if of_successor.0.iter().any(|start| start.instance == instance) {
            return;
        }
        if !self.refused.contains(&instance) {
            self.refused.push_back(instance);
        }
        if self.refused.len() > REFUSED_KEPT {
            self.refused.pop_front();
        }
    }

    /// Notes a start of a node that was accepted.
    pub fn note_start(&mut self, said: &NodeIdentity) {
        let start = said.history.get(0).unwrap_or_default();
        let Start { instance, position } = start;
        self.note(Sighting { node: said.node, starts: said.starts, instance, position }, said.history);
    }

    /// Notes the number of records that a node reported as durable.
    pub fn note_position(&mut self, node: u64, position: u64) {
        if let Some((known, _)) = self.nodes.get_mut(&node) {
            known.position = known.position.max(position);
        }
    }

    /// Takes over the sightings of an earlier process.
    pub fn remember(&mut self, seen: &[Sighting]) {
        seen.iter().for_each(|sighting| self.note(*sighting, StartHistory::default()));
    }

    fn note(&mut self, sighting: Sighting, history: StartHistory) {
        let (known, known_history) = self.nodes.entry(sighting.node).or_default();
        let position = known.position.max(sighting.position);
        if sighting.starts >= known.starts {
            (*known, *known_history) = (sighting, history);
        }
        known.position = position;
    }

    /// Returns the sighting of each node.
    pub fn all(&self) -> Vec<Sighting> {
        self.nodes.values().map(|(sighting, _)| *sighting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(history: &[(u64, u64)]) -> NodeIdentity {
        let started = |history: StartHistory, (instance, position): &(u64, u64)| {
            history.with(Start { instance: *instance, position: *position })
        };
        let starts = history.len() as u64;
        let history = history.iter().fold(StartHistory::default(), started);
        NodeIdentity { cluster: 1, node: 2, store: 3, starts, history }
    }

    /// Returns the sightings of a node with these starts, which reported a position in the last one.
    fn seen(history: &[(u64, u64)], position: u64) -> Sightings {
        let mut sightings = Sightings::default();
        sightings.note_start(&identity(history));
        sightings.note_position(2, position);
        sightings
    }

    #[test]
    fn starts_that_continue_are_accepted() {
        let sightings = seen(&[(11, 0), (12, 50)], 90);
        for history in [
            &[(11, 0), (12, 50)][..],
            &[(11, 0), (12, 50), (13, 90)],
            &[(11, 0), (12, 50), (13, 97), (14, 99), (15, 99)],
        ] {
            assert_eq!(sightings.check(&identity(history)), Ok(()), "{history:?}");
        }
        // The start that was seen is no longer in the history.
        let long: Vec<_> = (0..20).map(|start| (11 + start, 100 + start)).collect();
        assert_eq!(sightings.check(&identity(&long)), Ok(()));
        // A node of which nothing is known, and one whose starts had no instance yet.
        assert_eq!(Sightings::default().check(&identity(&[(7, 0)])), Ok(()));
        let old = NodeIdentity { history: StartHistory::default(), ..identity(&[(1, 0)]) };
        let mut sightings = Sightings::default();
        sightings.note_start(&old);
        assert_eq!(sightings.check(&identity(&[(1, 0), (2, 9)])), Ok(()));
    }

    #[test]
    fn rolled_back_disk_is_refused_after_any_number_of_starts() {
        let mut sightings = seen(&[(11, 0), (12, 50)], 90);
        // Back before its last start: started less often, as often, and more often.
        let mut history = vec![(11, 0)];
        assert!(sightings.check(&identity(&history)).unwrap_err().contains("was seen after 2"));
        for start in 0..30 {
            // The log grows past the position that was seen.
            history.push((100 + start, 40 + 10 * start));
            let why = sightings.check(&identity(&history)).expect_err("it is refused");
            let is_named =
                why.contains("another process") || why.contains("continues a start that was refused");
            assert!(is_named && why.contains("rolled back") && why.contains("remove the node"), "{why}");
            sightings.note_refused(&identity(&history));
        }
        assert_eq!(sightings.check(&identity(&[(11, 0), (12, 50), (13, 90)])), Ok(()), "the disk itself");
    }

    #[test]
    fn late_hello_of_earlier_process_spares_its_successor() {
        let mut sightings = seen(&[(11, 0), (12, 50)], 60);
        let late = identity(&[(11, 0)]);
        assert!(sightings.check(&late).is_err());
        sightings.note_refused(&late);
        assert_eq!(sightings.check(&identity(&[(11, 0), (12, 50)])), Ok(()));
        assert_eq!(sightings.check(&identity(&[(11, 0), (12, 50), (13, 60)])), Ok(()));
    }

    #[test]
    fn disk_that_lost_durable_records_is_refused() {
        let sightings = seen(&[(11, 0), (12, 50)], 90);
        let why = sightings.check(&identity(&[(11, 0), (12, 50), (13, 89)])).expect_err("it is refused");
        assert!(why.contains("found 89 records") && why.contains("reported 90"), "{why}");
        // Its log has grown since.
        let grown = identity(&[(11, 0), (12, 50), (13, 89), (14, 120)]);
        assert!(sightings.check(&grown).unwrap_err().contains("found 89 records"));
    }

    #[test]
    fn memory_of_an_earlier_process_is_not_lowered() {
        let mut sightings = seen(&[(11, 0)], 90);
        sightings.remember(&[Sighting { node: 2, starts: 1, instance: 11, position: 70 }]);
        assert_eq!(sightings.all(), [Sighting { node: 2, starts: 1, instance: 11, position: 90 }]);
        sightings.remember(&[Sighting { node: 2, starts: 3, instance: 13, position: 80 }]);
        assert_eq!(sightings.all(), [Sighting { node: 2, starts: 3, instance: 13, position: 90 }]);
    }
}
