//! Verifying unverified overwrites: was the record that a put displaced without looking really an older one of the same key?
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

/// Keys that are looked up together.
pub(crate) const ROW: usize = 16;

/// What has to be known of a record to tell whether it is hidden.
#[derive(Clone, Copy)]
struct Known {
    hash: KeyHash,
    sequence: u64,
    padded_bytes: u32,
}

/// Records by pointer and segment: what is known of one stays true.
type Identified = BTreeMap<(Pointer, u64), Known>;

impl Catalog {
    /// Verifies all unverified overwrites of a hash by reading the beginnings of the records: afterwards every key that shares its slot
    /// is found. Where a record is damaged, its segment's summary still tells whose it is, so that those of other keys can be
    /// verified.
    ///
    /// # Errors
    /// Of reading, if it cannot be told whose a record is. Then nothing has changed.
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
                // Either somebody verified the unverified overwrites and the segment is gone, or it is damage.
                Err(_) if self.index.suspects(hash) != seen => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`verify`](Self::verify), for whoever removes a key that was found. Of what cannot be told whose it is, the index
    /// remembers that the key displaced it: damage in one record keeps no other key from being removed.
    pub(crate) async fn verify_to_remove(&self, hash: &KeyHash) -> Result<()> {
        match self.verify(hash).await {
            Err(error) if error.is_of_reading() => Ok(()),
            verified => verified,
        }
    }

    /// The records that share a slot: of the occupant, and of all that was displaced.
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

    /// Notes whose the displaced records are; false if the index has changed since.
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
            // The estimate that was subtracted is put right: all of it, if the record is current after all.
            let dead = if is_hidden(*pointer, record) { 0 } else { i64::from(record.padded_bytes) };
            self.space.add_live(self.packing.unpack(pointer.get()), self.estimate(*pointer) - dead);
        }
        true
    }

    /// Whose record of a keyspace is at a place: the record tells, or, where it cannot be read, the summary of its segment.
    async fn identify(&self, keyspace: Keyspace, place: &Place) -> Result<Known> {
        let read = self.beginning(place).await;
        let is_unreadable = match &read {
            Ok(record) => record.is_err(),
            Err(error) => error.is_of_reading(),
        };
        if is_unreadable && let Some(entry) = self.entry_at(place).await {
            let padded_bytes =
                self.space.tier(place.location.tier).shape().padded(entry.bytes as usize) as u32;
            return Ok(Known { hash: entry.key_hash, sequence: entry.sequence, padded_bytes });
        }
        let Beginning { entry, padded_bytes } = read?.map_err(|damaged| damaged.into_error(None))?;
        Ok(Known { hash: self.hash(keyspace, &entry.key), sequence: entry.version, padded_bytes })
    }

    /// What the summary of a segment says of a put in it, if it has one that can be read.
    pub(crate) async fn entry_at(&self, place: &Place) -> Option<Entry> {
        let Place { location, segment, .. } = *place;
        let tier = self.space.tier(location.tier);
        let slot = tier.slot(location.slot);
        if matches!(slot.state(), SlotState::Free | SlotState::Open) {
            return None;
        }
        let entries = self.space.read_entries(tier, location.slot).await.ok()??;
        // Read under the number that the slot had, which may be another by now.
        let entry = entries.into_iter().find(|e| e.offset == location.offset && e.kind == Kind::Put);
        entry.filter(|_| slot.segment() == segment)
    }

    /// The key of a damaged record at a place: what it claims, if the summary of its segment says so too.
    pub(crate) async fn key_of(&self, place: &Place, damaged: &Damaged) -> Option<Vec<u8>> {
        let claimed = damaged.claimed_key.as_ref()?;
        let entry = self.entry_at(place).await?;
        (self.space.secret.key_hash(entry.key_hash.keyspace(), claimed) == entry.key_hash)
            .then(|| claimed.clone())
    }

    /// Verifies the unverified overwrites of one segment by means of its summary, of which `entries` are those that may be needed.
    /// Returns those that still may: what anything leads to, and what may go on hiding older versions of its key.
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
            // Their buckets are mostly not in the processor's cache: so they are waited for together.
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
