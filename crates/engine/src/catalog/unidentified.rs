//! Damage of records whose keys are unknown: which keyspaces have records there, and which keys may be concerned.
//!
//! A record whose head is unreadable, or a segment whose summary and frames are, does not tell its keys. The index has no keys
//! either, but it knows the location of the record of any key that another node names: see
//! `docs/decisions/0054-repair-from-peers.md`.

use std::collections::{BTreeMap, BTreeSet};

use esker_index::{Cursor, KeyHash, Keyspace, Pointer, Suspects};
use esker_log::{Location, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::waiting::yield_now;
use crate::catalog::Catalog;
use crate::catalog::lookup::Fetched;
use crate::catalog::place::Place;
use crate::segments::unidentified::{Extent, LostSegments};

/// Number of pointers that one step of a walk over an index looks at.
const STEP_ENTRIES: usize = 1 << 14;

/// A segment of which neither the summary nor the frames tell the keys.
pub(crate) struct UnreadableSegment {
    pub(crate) at: (TierName, u32),
    pub(crate) segment: u64,
    /// The error of a verification.
    pub(crate) error: Option<Error>,
}

impl Catalog {
    /// Reports segments of which neither the summary nor the frames tell the keys, to the keyspaces that have records in them.
    /// Returns the errors that are damage: without a cluster all of them, otherwise those of segments to which the index leads.
    pub(crate) async fn report_unreadable(&self, unreadable: Vec<UnreadableSegment>) -> Vec<Error> {
        if unreadable.is_empty() {
            return Vec::new();
        }
        if self.space.damage_watch.get().is_none() {
            return unreadable.into_iter().filter_map(|segment| segment.error).collect();
        }
        let slots: BTreeSet<_> = unreadable.iter().map(|segment| segment.at).collect();
        // A displaced record may be the current one of its key.
        let holders =
            self.keyspaces_in(true, |location| slots.contains(&(location.tier, location.slot))).await;
        let mut found = Vec::new();
        for UnreadableSegment { at, segment, error } in unreadable {
            // Pointers to a slot that was given to another segment meanwhile lead to that one.
            let is_there = self.space.tier(at.0).slot(at.1).segment() == segment;
            // Also without records: the deletes in it are lost.
            self.space.note_unidentified(at, segment, Extent::Segment);
            let Some(keyspaces) = holders.get(&at).filter(|_| is_there) else { continue };
            found.extend(error);
            for keyspace in keyspaces.iter().filter(|_| !planted(Bug::LostSegmentNotReported)) {
                self.space.report_damage(*keyspace, None, at);
            }
        }
        found
    }

    /// Returns the keyspaces that have records at some locations, by slot: current records, and displaced ones if they are
    /// asked for. Reads the whole index.
    async fn keyspaces_in(
        &self,
        with_displaced: bool,
        is_wanted: impl Fn(Location) -> bool,
    ) -> BTreeMap<(TierName, u32), BTreeSet<Keyspace>> {
        let mut found: BTreeMap<_, BTreeSet<Keyspace>> = BTreeMap::new();
        for keyspace in Keyspace::all() {
            let mut cursor = Some(Cursor::START);
            while let Some(at) = cursor {
                let step = self.index.scan(keyspace, at, STEP_ENTRIES);
                let displaced = step.displaced.into_iter().filter(|_| with_displaced);
                for pointer in step.current.into_iter().chain(displaced) {
                    let location = self.packing.unpack(pointer.get());
                    if is_wanted(location) {
                        found.entry((location.tier, location.slot)).or_default().insert(keyspace);
                    }
                }
                cursor = step.next;
                yield_now().await;
            }
        }
        found
    }

    /// Returns true if a record that is, or may be, the one of a key is in a segment with damage of unknown keys.
    fn may_be_in_damage(&self, Suspects { occupant, exact, unverified }: &Suspects) -> bool {
        let exact = exact.iter().map(|(_, pointer)| *pointer);
        let displaced = unverified.iter().map(|known| known.displaced);
        let mut locations = occupant.iter().copied().chain(exact).chain(displaced);
        locations.any(|pointer| self.extent_at(pointer).is_some())
    }

    fn extent_at(&self, pointer: Pointer) -> Option<Extent> {
        let location = self.packing.unpack(pointer.get());
        self.space.unidentified((location.tier, location.slot))
    }

    /// Returns true if the record of a key is, or may be, in damage that did not tell its key: in a segment that is lost, even if
    /// the record itself can be read, or in a damaged segment and cannot be read.
    ///
    /// # Errors
    /// `Closed`; a failed read is damage.
    pub(crate) async fn is_in_damage(&self, key: &[u8], hash: &KeyHash) -> Result<bool> {
        loop {
            let suspects = self.index.suspects(hash);
            if !self.may_be_in_damage(&suspects) {
                return Ok(false);
            }
            // An entry of the side table is the key's, whatever record has the slot.
            let found = match suspects.exact.iter().find(|(other, _)| other == hash) {
                Some((_, pointer)) => match self.fetch(hash, *pointer, Some(key)).await {
                    Ok(Fetched::Moved) => continue,
                    fetched => fetched.map(|_| Some(*pointer)),
                },
                None => self.look_up(key, hash).await.map(|found| found.map(|found| found.pointer)),
            };
            return match found {
                Err(error) if error.is_of_reading() => Ok(true),
                found => Ok(found?.is_some_and(|pointer| self.extent_at(pointer) == Some(Extent::Segment))),
            };
        }
    }

    /// Forgets the records of a keyspace in lost segments, after each of their keys was written again or deleted: scans and
    /// look-ups would otherwise report those records as damaged. Returns false if one of them is still current. Then no displaced
    /// record is forgotten.
    pub(crate) async fn forget_lost(&self, keyspace: Keyspace, lost: &LostSegments) -> bool {
        let is_lost = |pointer: Pointer| self.space.is_in_lost(lost, self.packing.unpack(pointer.get()));
        let holders = self.keyspaces_in(false, |location| self.space.is_in_lost(lost, location)).await;
        if holders.values().any(|holders| holders.contains(&keyspace)) {
            return false;
        }
        self.index.drop_dead(keyspace, is_lost);
        true
    }

    /// Reports a record that a read of a key could not get from the device.
    pub(crate) fn report_unread(&self, hash: &KeyHash, place: &Place, key: Option<&[u8]>) {
        if self.is_still(hash, place) {
            let Place { location, .. } = place;
            self.space.report_damage(hash.keyspace(), key, (location.tier, location.slot));
        }
    }
}

#[cfg(test)]
#[path = "unidentified_tests.rs"]
mod tests;
