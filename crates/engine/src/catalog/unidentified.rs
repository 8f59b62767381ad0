//! Damage of records whose keys are unknown: which keyspaces have records there, and which keys may be concerned.
//!
//! A record whose head is unreadable, or a segment whose summary and frames are, does not tell its keys. The index has no keys
//! either, but it knows the location of the record of any key that another node names: see
//! `docs/decisions/0054-repair-from-peers.md`.

use std::collections::{BTreeMap, BTreeSet};

use esker_index::{Cursor, KeyHash, Keyspace, Standing, Suspects};
use esker_log::Tier as TierName;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::waiting::yield_now;
use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::segments::unidentified::{Extent, LostSegments};

/// Number of pointers that one step of a walk over an index looks at.
const STEP_ENTRIES: usize = 1 << 14;

impl Catalog {
    /// Reports segments of which neither the summary nor the frames tell the keys, to the keyspaces that have current records in
    /// them. Returns the errors of those segments: one without a current record has lost nothing.
    pub(crate) async fn report_unreadable(
        &self,
        unreadable: BTreeMap<(TierName, u32), Option<Error>>,
    ) -> Vec<Error> {
        if unreadable.is_empty() {
            return Vec::new();
        }
        let holders = self.keyspaces_in(|at| unreadable.contains_key(&at)).await;
        let mut found = Vec::new();
        for (at, error) in unreadable {
            let Some(keyspaces) = holders.get(&at) else { continue };
            self.space.note_unidentified(at, Extent::Segment);
            found.extend(error);
            for keyspace in keyspaces.iter().filter(|_| !planted(Bug::LostSegmentNotReported)) {
                self.space.report_damage(*keyspace, None, at);
            }
        }
        found
    }

    /// Returns the keyspaces that have current records in some slots, by slot. Reads the whole index.
    async fn keyspaces_in(
        &self,
        is_wanted: impl Fn((TierName, u32)) -> bool,
    ) -> BTreeMap<(TierName, u32), BTreeSet<Keyspace>> {
        let mut found: BTreeMap<_, BTreeSet<Keyspace>> = BTreeMap::new();
        for keyspace in Keyspace::all().filter(|keyspace| self.index.len_of(*keyspace) > 0) {
            let mut cursor = Some(Cursor::START);
            while let Some(at) = cursor {
                let step = self.index.scan(keyspace, at, STEP_ENTRIES);
                for pointer in step.current {
                    let location = self.packing.unpack(pointer.get());
                    let at = (location.tier, location.slot);
                    if is_wanted(at) {
                        found.entry(at).or_default().insert(keyspace);
                    }
                }
                cursor = step.next;
                yield_now().await;
            }
        }
        found
    }

    /// Returns the extent of the damage of unknown keys where the record of a key is, or may be.
    fn extent_at(&self, hash: &KeyHash) -> Option<Extent> {
        let Suspects { occupant, exact, unverified } = self.index.suspects(hash);
        let exact = exact.into_iter().map(|(_, pointer)| pointer);
        let displaced = unverified.into_iter().map(|known| known.displaced);
        let locations = occupant.into_iter().chain(exact).chain(displaced);
        let at = locations.map(|pointer| self.packing.unpack(pointer.get()));
        at.filter_map(|location| self.space.unidentified((location.tier, location.slot))).max()
    }

    /// Returns true if the record of a key is, or may be, in damage that did not tell its key: in a segment that is lost, unless
    /// another record is the key's, or in a damaged segment and cannot be read.
    ///
    /// # Errors
    /// `Closed`; a failed read is damage.
    pub(crate) async fn is_in_damage(&self, key: &[u8], hash: &KeyHash) -> Result<bool> {
        match self.extent_at(hash) {
            None => Ok(false),
            Some(Extent::Segment) => Ok(!self.has_other_record(hash).await),
            Some(Extent::Records) => match self.look_up(key, hash).await {
                Err(error) if error.is_of_reading() => Ok(true),
                found => found.map(|_| false),
            },
        }
    }

    /// Returns true if a record outside of lost segments is, or may be, the current one of a key.
    async fn has_other_record(&self, hash: &KeyHash) -> bool {
        let Suspects { occupant, exact, unverified } = self.index.suspects(hash);
        let exact = exact.into_iter().filter(|(other, _)| other == hash).map(|(_, pointer)| pointer);
        let displaced = unverified.into_iter().map(|known| known.displaced);
        for pointer in exact.chain(occupant).chain(displaced) {
            let place = self.unchecked_place(pointer);
            let at = (place.location.tier, place.location.slot);
            if self.space.unidentified(at) == Some(Extent::Segment) {
                continue;
            }
            let is_own = self.identify(hash.keyspace(), &place).await.is_ok_and(|known| known.hash == *hash);
            if is_own && self.index.standing(hash, pointer) != Standing::Dead {
                return true;
            }
        }
        false
    }

    /// Forgets the records of a keyspace in lost segments, after each of their keys was written again or removed: scans and
    /// look-ups would otherwise report those records as damaged. Returns false and changes nothing if one of them is current.
    pub(crate) async fn forget_lost(&self, keyspace: Keyspace, lost: &LostSegments) -> bool {
        let holders = self.keyspaces_in(|at| lost.0.contains(&at)).await;
        if holders.values().any(|holders| holders.contains(&keyspace)) {
            return false;
        }
        self.index.drop_dead(keyspace, |pointer| {
            let location = self.packing.unpack(pointer.get());
            lost.0.contains(&(location.tier, location.slot))
        });
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
