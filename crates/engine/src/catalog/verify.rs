//! Verifies unverified overwrites: compares the keys of records that a put displaced without reading them.
//!
//! See `docs/decisions/0002-index-slot-and-unverified-overwrites.md`.

use std::collections::BTreeMap;

use esker_index::{KeyHash, Keyspace, Pointer, Suspects, UnverifiedOverwrite};
use esker_log::{Entry, EntryList, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::catalog::record_heads::Beginning;
use crate::catalog::records::Damaged;
use crate::segments::slot::SlotState;

/// Number of keys that are looked up together.
pub(crate) const ROW: usize = 16;

/// Facts about a record, without its value.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) hash: KeyHash,
    pub(crate) sequence: u64,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) padded_bytes: u32,
}

/// Identified records, by pointer and segment number. An entry stays valid, because a segment number is never reused.
type Identified = BTreeMap<(Pointer, u64), Known>;

impl Catalog {
    /// Verifies all unverified overwrites of a hash by reading the heads of the records. Afterwards every key that
    /// shares the index slot can be found. The key of a damaged record is taken from its segment's summary, so that
    /// overwrites of other keys can still be verified.
    ///
    /// # Errors
    /// A read error if the key of a record cannot be determined. Nothing has changed then.
    pub(crate) async fn verify(&self, hash: &KeyHash) -> Result<()> {
        let mut identified = Identified::new();
        loop {
            let seen = self.index.suspects(hash);
            if seen.unverified.is_empty() {
                return Ok(());
            }
            match self.identify_all(hash.keyspace(), &seen, &mut identified).await {
                Ok(records) if self.note_verified(hash, &seen, &records) => return Ok(()),
                Ok(_) => {}
                // If the index has changed, another task verified them and the segment may be gone: retry. Otherwise it
                // is damage.
                Err(_) if self.index.suspects(hash) != seen => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`verify`](Self::verify), for a caller that removes a key that was found. Unreadable records are not an
    /// error: their overwrites stay unverified, so damage in one record does not prevent the removal of other keys.
    pub(crate) async fn verify_to_remove(&self, hash: &KeyHash) -> Result<()> {
        match self.verify(hash).await {
            Err(error) if error.is_of_reading() => Ok(()),
            verified => verified,
        }
    }

    /// Verifies the unverified overwrites of an unreadable record by the summary of its segment. Returns false if the summary
    /// is unreadable, too.
    pub(crate) async fn verify_unreadable(&self, keyspace: Keyspace, place: &Place) -> bool {
        match self.identify(keyspace, place).await {
            Ok(known) => self.verify(&known.hash).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Identifies the records that share an index slot: the occupant and all displaced records.
    async fn identify_all(
        &self,
        keyspace: Keyspace,
        seen: &Suspects,
        identified: &mut Identified,
    ) -> Result<Vec<(Pointer, Known)>> {
        let mut displaced: Vec<Pointer> = seen.unverified.iter().map(|known| known.displaced).collect();
        displaced.dedup();
        let pointers = seen.occupant.into_iter().chain(displaced);
        let places: Vec<Place> = pointers.map(|pointer| self.unchecked_place(pointer)).collect();
        let is_new = |place: &&Place| !identified.contains_key(&(place.pointer, place.segment));
        let unknown: Vec<Place> = places.iter().filter(is_new).copied().collect();
        for row in unknown.chunks(ROW) {
            let known = join_all(row.iter().map(|place| self.identify(keyspace, place))).await;
            for (place, known) in row.iter().zip(known) {
                identified.insert((place.pointer, place.segment), known?);
            }
        }
        Ok(places.iter().map(|place| (place.pointer, identified[&(place.pointer, place.segment)])).collect())
    }

    /// Records the keys of the displaced records in the index. Returns false if the index has changed since `seen`.
    fn note_verified(&self, hash: &KeyHash, seen: &Suspects, records: &[(Pointer, Known)]) -> bool {
        let is_occupant = |pointer: Pointer| seen.occupant == Some(pointer);
        let occupant = records.iter().find(|(pointer, _)| is_occupant(*pointer)).map(|(_, r)| r.hash);
        let displaced = records.iter().filter(|(pointer, _)| !is_occupant(*pointer));
        let mut newest: BTreeMap<KeyHash, u64> = BTreeMap::new();
        for (_, record) in displaced.clone() {
            let sequence = newest.entry(record.hash).or_default();
            *sequence = record.sequence.max(*sequence);
        }
        let is_hidden = |pointer: Pointer, record: &Known| {
            let own = UnverifiedOverwrite { displaced: pointer, check: record.hash.check };
            occupant != Some(record.hash)
                && !seen.exact.iter().any(|(exact, _)| *exact == record.hash)
                && newest[&record.hash] == record.sequence
                && (!seen.unverified.contains(&own) || planted(Bug::OwnVersionVerified))
        };
        let hidden: Vec<(KeyHash, Pointer)> =
            displaced.clone().filter(|(p, r)| is_hidden(*p, r)).map(|(p, r)| (r.hash, *p)).collect();
        if !self.index.note_verified(hash, seen, &hidden) {
            return false;
        }
        self.space.counters.count_verified(displaced.clone().count() as u64, hidden.len() as u64);
        for (pointer, record) in displaced {
            // Corrects the estimate that was subtracted: adds all of it back if the record is still current.
            let dead = if is_hidden(*pointer, record) { 0 } else { i64::from(record.padded_bytes) };
            self.space.add_live(self.packing.unpack(pointer.get()), self.estimate(*pointer) - dead);
        }
        true
    }

    /// Identifies the record at a place: by its head or, if that is unreadable, by its segment's summary.
    pub(crate) async fn identify(&self, keyspace: Keyspace, place: &Place) -> Result<Known> {
        let read = self.beginning(place).await;
        let is_unreadable = match &read {
            Ok(record) => record.is_err(),
            Err(error) => error.is_of_reading(),
        };
        if is_unreadable && let Some(entry) = self.entry_at(place).await {
            let padded_bytes =
                self.space.tier(place.location.tier).shape().padded(entry.bytes as usize) as u32;
            let Entry { key_hash: hash, sequence, expires_at_ms, .. } = entry;
            return Ok(Known { hash, sequence, expires_at_ms, padded_bytes });
        }
        let Beginning { entry, padded_bytes } = read?.map_err(|damaged| damaged.into_error(None))?;
        let hash = self.hash(keyspace, &entry.key);
        Ok(Known { hash, sequence: entry.version, expires_at_ms: entry.expires_at_ms, padded_bytes })
    }

    /// Returns the summary entry of the put at a place, if the segment has a readable summary.
    pub(crate) async fn entry_at(&self, place: &Place) -> Option<Entry> {
        let Place { location, segment, .. } = *place;
        let tier = self.space.tier(location.tier);
        let slot = tier.slot(location.slot);
        if matches!(slot.state(), SlotState::Free | SlotState::Open) {
            return None;
        }
        let entries = self.space.read_entries(tier, location.slot).await.ok()??;
        // The entries were read under the number that the slot had then; it may have changed since.
        let entry = entries.into_iter().find(|e| e.offset == location.offset && e.kind == Kind::Put);
        entry.filter(|_| slot.segment() == segment)
    }

    /// Returns the key that a damaged record claims, if its segment's summary confirms it.
    pub(crate) async fn key_of(&self, place: &Place, damaged: &Damaged) -> Option<Vec<u8>> {
        let claimed = damaged.claimed_key.as_ref()?;
        let entry = self.entry_at(place).await?;
        (self.space.secret.key_hash(entry.key_hash.keyspace(), claimed) == entry.key_hash)
            .then(|| claimed.clone())
    }

    /// Verifies the unverified overwrites of one segment with the entries of its summary. `entries`: the summary's
    /// entries, without any known to be unneeded. Returns the entries still possibly needed: the index or an unverified
    /// overwrite leads to them, or they may hide older versions of their key (tombstones and puts with an expiry).
    pub(crate) async fn verify_segment(
        &self,
        tier: TierName,
        slot: u32,
        entries: &EntryList,
    ) -> Result<EntryList> {
        let shape = self.space.tier(tier).shape();
        let (mut count, mut corrections, mut other) = (0, 0, Vec::new());
        let (mut needed, mut entries, mut row) = (EntryList::new(), entries.iter(), Vec::with_capacity(ROW));
        while entries.len() > 0 {
            row.clear();
            row.extend(entries.by_ref().take(ROW));
            // The index buckets are mostly not in the processor's cache, so the loads of a row overlap.
            for entry in &row {
                std::hint::black_box(self.index.get(&entry.key_hash));
            }
            for entry in &row {
                let mut may_be_needed = entry.kind == Kind::Tombstone || entry.expires_at_ms.is_some();
                if entry.kind == Kind::Put {
                    let (hash, pointer) =
                        (entry.key_hash, self.pointer(self.space.location(tier, slot, entry)));
                    let verified = self.index.verify(&hash, pointer);
                    if verified.same > 0 {
                        let bytes = shape.padded(entry.bytes as usize) as i64;
                        corrections += verified.same as i64 * (self.estimate(pointer) - bytes);
                        count += verified.same as u64;
                    }
                    other.extend((verified.other > 0).then_some(hash));
                    may_be_needed |= verified.is_known;
                }
                if may_be_needed {
                    needed.push(*entry);
                }
            }
        }
        self.space.counters.count_verified(count, 0);
        if !planted(Bug::EstimateNotCorrected) {
            self.space.tier(tier).add_live(slot, corrections);
        }
        for hash in other {
            self.verify(&hash).await?;
        }
        Ok(needed)
    }
}
