//! Verifying unverified overwrites: was the record that a put displaced without looking really an older one of the same key?
//!
//! See `docs/decisions/0002-index-slot-and-unverified-overwrites.md`.

use esker_index::{KeyHash, Pointer};
use esker_log::{Entry, Kind, Tier as TierName};

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::segments::slot::SlotState;

/// Keys that are looked up together.
pub(crate) const ROW: usize = 16;

/// What has to be known of a record to tell whether it is hidden.
struct Known {
    hash: KeyHash,
    sequence: u64,
    padded_bytes: u32,
}

impl Catalog {
    /// Verifies all unverified overwrites of a hash by reading the records: afterwards every key that shares its slot is found. Where a record is
    /// damaged, its segment's summary still tells whose it is, so that those of other keys can be verified.
    pub(crate) async fn verify(&self, hash: &KeyHash) -> Result<()> {
        'again: loop {
            let seen = self.index.suspects(hash);
            if seen.unverified.is_empty() {
                return Ok(());
            }
            let mut occupant_record = None;
            let mut displaced = Vec::new();
            for pointer in seen.occupant.into_iter().chain(seen.unverified.iter().map(|c| c.displaced)) {
                match self.identify(&self.unchecked_place(pointer)).await? {
                    Ok(record) if seen.occupant == Some(pointer) => occupant_record = Some(record),
                    Ok(record) => displaced.push((pointer, record)),
                    // Either somebody verified the unverified overwrites and the segment is gone, or it is damage.
                    Err(_) if self.index.suspects(hash) != seen => continue 'again,
                    Err(damaged) => return Err(damaged.into_error(None)),
                }
            }
            let newest_of = |hash: KeyHash| -> Option<u64> {
                displaced.iter().filter(|(_, r)| r.hash == hash).map(|(_, r)| r.sequence).max()
            };
            let is_hidden = |record: &Known| {
                occupant_record.as_ref().map(|occupant: &Known| occupant.hash) != Some(record.hash)
                    && !seen.exact.iter().any(|(exact, _)| *exact == record.hash)
                    && newest_of(record.hash) == Some(record.sequence)
            };
            let hidden: Vec<(Pointer, &Known)> =
                displaced.iter().filter(|(_, r)| is_hidden(r)).map(|(p, r)| (*p, r)).collect();
            let entries: Vec<_> = hidden.iter().map(|(pointer, r)| (r.hash, *pointer)).collect();
            if !self.index.note_verified(hash, &seen, &entries) {
                continue;
            }
            self.space.counters.count_verified(displaced.len() as u64, hidden.len() as u64);
            for (pointer, record) in &displaced {
                // The estimate that was subtracted is put right: all of it, if the record is current after all.
                let dead = if is_hidden(record) { 0 } else { i64::from(record.padded_bytes) };
                self.space.add_live(self.packing.unpack(pointer.get()), self.estimate(*pointer) - dead);
            }
            return Ok(());
        }
    }

    /// Whose record is at a place: the record tells, or, where it cannot be read, the summary of its segment.
    async fn identify(&self, place: &Place) -> Result<std::result::Result<Known, Damaged>> {
        let read = self.read_record(place).await;
        let is_unreadable = match &read {
            Ok(record) => record.is_err(),
            Err(error) => error.is_of_reading(),
        };
        if is_unreadable && let Some(entry) = self.entry_at(place).await {
            let padded_bytes =
                self.space.tier(place.location.tier).shape().padded(entry.bytes as usize) as u32;
            return Ok(Ok(Known { hash: entry.key_hash, sequence: entry.sequence, padded_bytes }));
        }
        Ok(read?.map(|record| Known {
            hash: self.hash(record.keyspace(), record.key()),
            sequence: record.sequence,
            padded_bytes: record.padded_bytes,
        }))
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
        entries: &[Entry],
    ) -> Result<Vec<Entry>> {
        let shape = self.space.tier(tier).shape();
        let (mut count, mut corrections, mut other) = (0, 0, Vec::new());
        let mut needed = Vec::with_capacity(entries.len() / 2);
        for row in entries.chunks(ROW) {
            // Their buckets are mostly not in the processor's cache: so they are waited for together.
            for entry in row {
                std::hint::black_box(self.index.get(&entry.key_hash));
            }
            for entry in row {
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
                needed.extend(may_be_needed.then_some(*entry));
            }
        }
        self.space.counters.count_verified(count, 0);
        self.space.tier(tier).add_live(slot, corrections);
        for hash in other {
            self.verify(&hash).await?;
        }
        Ok(needed)
    }
}
