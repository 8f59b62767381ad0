//! Verifying claims: was the record that a put displaced without looking really an older one of the same key?
//!
//! See `docs/decisions/0002-index-slot-and-claims.md`.

use esker_index::KeyHash;
use esker_log::{Entry, Kind, Tier as TierName};

use crate::cache::Cached;
use crate::engine::Engine;
use crate::error::Result;
use crate::peek::ROW;
use crate::relocate::hash_of;

impl Engine {
    /// Settles all claims of a hash by reading the records: afterwards every key that shares its slot is found.
    pub(crate) async fn settle(&self, hash: &KeyHash) -> Result<()> {
        'again: loop {
            let seen = self.index.suspects(hash);
            if seen.claims.is_empty() {
                return Ok(());
            }
            let mut occupant_record = None;
            let mut displaced = Vec::new();
            for pointer in seen.occupant.into_iter().chain(seen.claims.iter().map(|c| c.displaced)) {
                let location = self.packing.unpack(pointer.get());
                let segment = self.slot(location).segment();
                match self.read_record(location, segment).await? {
                    Ok(record) if seen.occupant == Some(pointer) => occupant_record = Some(record),
                    Ok(record) => displaced.push((pointer, record)),
                    // Either somebody settled the claims and the segment is gone, or it is damage.
                    Err(_) if self.index.suspects(hash) != seen => continue 'again,
                    Err(damaged) => return Err(damaged.into_error(None)),
                }
            }
            let newest_of = |key: &[u8]| -> Option<u64> {
                displaced.iter().filter(|(_, r)| r.key() == key).map(|(_, r)| r.sequence).max()
            };
            let is_hidden = |record: &Cached| {
                let key_hash = self.hash(record.key());
                occupant_record.as_ref().map(Cached::key) != Some(record.key())
                    && !seen.exact.iter().any(|(exact, _)| *exact == key_hash)
                    && newest_of(record.key()) == Some(record.sequence)
            };
            let hidden: Vec<_> = displaced.iter().filter(|(_, r)| is_hidden(r)).collect();
            let entries: Vec<_> = hidden.iter().map(|(p, r)| (self.hash(r.key()), *p)).collect();
            if !self.index.settle(hash, &seen, &entries) {
                continue;
            }
            self.counters.count_settled(displaced.len() as u64, hidden.len() as u64);
            for (pointer, record) in &displaced {
                // The estimate that was subtracted is put right: all of it, if the record is current after all.
                let dead = if is_hidden(record) { 0 } else { i64::from(record.padded_bytes) };
                self.add_live(self.packing.unpack(pointer.get()), self.estimate(*pointer) - dead);
            }
            return Ok(());
        }
    }

    /// Verifies the claims against one segment by means of its summary, of which `entries` are those that may be needed.
    /// Returns those that still may: what anything leads to, and what may go on hiding older versions of its key.
    pub(crate) async fn settle_segment(
        &self,
        tier: TierName,
        slot: u32,
        entries: &[Entry],
    ) -> Result<Vec<Entry>> {
        let shape = self.tier(tier).shape();
        let (mut settled, mut corrections, mut other) = (0, 0, Vec::new());
        let mut needed = Vec::with_capacity(entries.len() / 2);
        for row in entries.chunks(ROW) {
            // Their buckets are mostly not in the processor's cache: so they are waited for together.
            for entry in row {
                std::hint::black_box(self.index.get(&hash_of(entry)));
            }
            for entry in row {
                let mut may_be_needed = entry.kind == Kind::Tombstone || entry.expires_at_ms.is_some();
                if entry.kind == Kind::Put {
                    let (hash, pointer) = (hash_of(entry), self.pointer(self.location(tier, slot, entry)));
                    let verified = self.index.verify(&hash, pointer);
                    if verified.same > 0 {
                        let bytes = shape.padded(entry.bytes as usize) as i64;
                        corrections += verified.same as i64 * (self.estimate(pointer) - bytes);
                        settled += verified.same as u64;
                    }
                    other.extend((verified.other > 0).then_some(hash));
                    may_be_needed |= verified.is_known;
                }
                needed.extend(may_be_needed.then_some(*entry));
            }
        }
        self.counters.count_settled(settled, 0);
        self.tier(tier).add_live(slot, corrections);
        for hash in other {
            self.settle(&hash).await?;
        }
        Ok(needed)
    }
}
