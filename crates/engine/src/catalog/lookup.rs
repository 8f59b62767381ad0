//! Key lookup: the key's pointer, the record there and, if another key has the index slot, the side table and
//! unverified overwrites. The protocol is in `place`.

use esker_index::{KeyHash, Pointer};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::appended::Replaced;
use crate::catalog::cache::Cached;
use crate::catalog::clock::Life;
use crate::catalog::place::Place;
use crate::catalog::verify::Known;

/// The current record of a key, with the pointer that led to it.
pub(crate) struct Found {
    pub(crate) record: Cached,
    pub(crate) pointer: Pointer,
}

/// Result of following a pointer.
pub(crate) enum Fetched {
    Record(Cached),
    /// The pointer is no longer current: retry the lookup.
    Moved,
}

impl Catalog {
    /// Describes the record that a write of this key replaces. The key must be reserved.
    pub(crate) fn replaced(&self, found: &Found) -> Replaced {
        let Cached { sequence, expires_at_ms, padded_bytes, .. } = found.record;
        let expired = self.life(sequence, expires_at_ms) != Life::Alive;
        Replaced { pointer: found.pointer, padded_bytes, expired, is_unread: false }
    }

    /// Returns the current record of a key, expired or not.
    pub(crate) fn look_up<'a>(
        &'a self,
        key: &'a [u8],
        hash: &'a KeyHash,
    ) -> impl Future<Output = Result<Option<Found>>> {
        self.look_up_from(key, hash, None)
    }

    /// As [`look_up`](Self::look_up), with the pointer that an earlier look at the index returned. If that pointer is
    /// still current, the index is not searched again. Futures of rare paths are boxed, to keep the future of a common
    /// read small.
    pub(crate) async fn look_up_from(
        &self,
        key: &[u8],
        hash: &KeyHash,
        mut probed: Option<Pointer>,
    ) -> Result<Option<Found>> {
        loop {
            let place = match probed.take() {
                // The check is made between batches, as a search is: meanwhile the segment may have been freed, and a
                // batch that is being published may have put the key to the same location.
                Some(pointer) => self.between_batches(|| self.place(hash, pointer)),
                None => {
                    let Some(pointer) = self.between_batches(|| self.index.get(hash)) else {
                        if !self.index.may_be_hidden(hash) {
                            return Ok(None);
                        }
                        Box::pin(self.verify(hash)).await?;
                        continue;
                    };
                    self.place(hash, pointer)
                }
            };
            let Some(place) = place else { continue };
            let pointer = place.pointer;
            match self.fetch_at(hash, &place, Some(key)).await {
                Ok(Fetched::Moved) => continue,
                Ok(Fetched::Record(record)) if record.is_of(hash, key) => {
                    return Ok(Some(Found { record, pointer }));
                }
                Ok(Fetched::Record(_)) => {}
                Err(error) if error.is_of_reading() && Box::pin(self.is_anothers(hash, pointer)).await => {}
                Err(error) => return Err(error),
            }
            // Another key has the slot. `suspects` is a consistent snapshot of all that the index knows of this hash.
            let suspects = self.index.suspects(hash);
            if let Some(&(_, exact)) = suspects.exact.iter().find(|(other, _)| other == hash) {
                match self.fetch(hash, exact, Some(key)).await? {
                    Fetched::Moved => continue,
                    Fetched::Record(record) if record.is_of(hash, key) => {
                        return Ok(Some(Found { record, pointer: exact }));
                    }
                    Fetched::Record(_) => return Ok(None),
                }
            }
            if !suspects.unverified.is_empty() {
                Box::pin(self.verify(hash)).await?;
                continue;
            }
            if suspects.occupant == Some(pointer) {
                return Ok(None);
            }
        }
    }

    /// Returns the current record of a key if its value is unreadable, but its head or its segment's summary confirms that
    /// it belongs to the key. The key must be reserved.
    pub(crate) async fn find_unreadable(&self, hash: &KeyHash) -> Option<Replaced> {
        loop {
            let pointer = self.index.get_exact(hash).or_else(|| self.index.get(hash))?;
            let Some(place) = self.place(hash, pointer) else { continue };
            let known = self.identify(hash.keyspace(), &place).await.ok();
            if !self.is_still(hash, &place) {
                continue;
            }
            let Known { sequence, expires_at_ms, padded_bytes, .. } =
                known.filter(|known| known.hash == *hash || planted(Bug::DamagedKeyNotCompared))?;
            let expired = self.life(sequence, expires_at_ms) != Life::Alive;
            return Some(Replaced { pointer, padded_bytes, expired, is_unread: false });
        }
    }

    /// Returns the record of a key's slot or side table entry, for a delete that cannot read it; `None` if there is none, or if the
    /// record is known to be another key's. The key must be reserved.
    pub(crate) async fn find_unread(&self, hash: &KeyHash) -> Option<Replaced> {
        let pointer = match self.index.get_exact(hash) {
            Some(exact) => exact,
            None => {
                let pointer = self.index.get(hash)?;
                if self.is_anothers(hash, pointer).await {
                    return None;
                }
                pointer
            }
        };
        Some(Replaced { pointer, padded_bytes: 0, expired: false, is_unread: true })
    }

    /// Returns true if the head of an unreadable record or its segment's summary shows that it belongs to another key.
    async fn is_anothers(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let known = self.identify(hash.keyspace(), &self.unchecked_place(pointer)).await;
        known.is_ok_and(|known| known.hash != *hash)
    }

    /// Reads the record that a pointer leads to. `key` is for the error message if the record is damaged.
    pub(crate) async fn fetch(
        &self,
        hash: &KeyHash,
        pointer: Pointer,
        key: Option<&[u8]>,
    ) -> Result<Fetched> {
        let Some(place) = self.place(hash, pointer) else { return Ok(Fetched::Moved) };
        self.fetch_at(hash, &place, key).await
    }

    /// Reads the record at a place of a key.
    async fn fetch_at(&self, hash: &KeyHash, place: &Place, key: Option<&[u8]>) -> Result<Fetched> {
        let read = match self.read_record(place).await {
            Err(error) if error.is_of_reading() => {
                self.report_unread(hash, place, key);
                return Err(error);
            }
            read => read?,
        };
        match read {
            Ok(record) => Ok(Fetched::Record(record)),
            Err(_) if !self.is_still(hash, place) => Ok(Fetched::Moved),
            Err(damaged) => {
                self.report_unread(hash, place, key.or(damaged.key.as_deref()));
                Err(damaged.into_error(key))
            }
        }
    }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
