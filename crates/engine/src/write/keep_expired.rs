//! Makes an expiry final that is based on the wall clock only. See `catalog::clock`.

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::Kind;
use esker_seeded_bugs::{Bug, planted};

use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::catalog::appended::Replaced;
use crate::catalog::clock::{Life, ReportedRecord};
use crate::write::Writer;
use crate::write::reserve::Reservation;

impl Writer {
    /// Returns true if a record may be shown. If it has expired, a caller that gets `false` will never see it again.
    ///
    /// # Errors
    /// If the key's current record cannot be read, so that its expiry cannot be reported.
    pub(crate) async fn may_show(
        &self,
        key: &[u8],
        hash: &KeyHash,
        sequence: u64,
        expires_at_ms: Option<u64>,
    ) -> Result<bool> {
        let life = self.catalog.life(sequence, expires_at_ms);
        if life == Life::Unconfirmed {
            // Boxed, because it is rare, and otherwise every read would reserve space for it.
            Box::pin(self.keep_expired(key, hash, sequence, expires_at_ms)).await?;
        }
        Ok(life == Life::Alive)
    }

    /// Deletes a record that is about to be reported as expired although only the wall clock says so. The caller must hold no
    /// reservation of the key.
    ///
    /// # Errors
    /// If the key's current record cannot be read, or no tombstone can be written and there is no memory to note the record in.
    /// The caller must not report the expiry then.
    pub(crate) async fn keep_expired(
        &self,
        key: &[u8],
        hash: &KeyHash,
        sequence: u64,
        expires_at_ms: Option<u64>,
    ) -> Result<()> {
        let deleted = match self.lane.reserve(vec![self.catalog.index.stored_hash(hash)]).await {
            Ok(reservation) => self.delete_expired(key, hash, sequence, reservation).await,
            Err(error) => Err(error),
        };
        match deleted {
            // Another node may have another clock, so the key must not be reported as absent.
            deleted if self.catalog.replicator().is_some() => deleted,
            // Nothing can be written: the tombstone follows when there is room.
            Err(error) if !error.is_of_reading() => {
                let expires_at_ms = expires_at_ms.unwrap_or(0);
                if planted(Bug::ReportedCoversOthers) {
                    self.catalog.expire_for_good(expires_at_ms);
                    return Ok(());
                }
                let record = ReportedRecord { key: Bytes::copy_from_slice(key), hash: *hash, expires_at_ms };
                if !self.catalog.clock.reported().add(sequence, record, false) {
                    return Err(error);
                }
                self.space.reported.notify_one();
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// Deletes a record that was reported as expired, if it is still current.
    ///
    /// # Errors
    /// If it cannot be read, or no tombstone can be written.
    pub(crate) async fn delete_reported(&self, sequence: u64, record: &ReportedRecord) -> Result<()> {
        let reservation = self.lane.reserve(vec![self.catalog.index.stored_hash(&record.hash)]).await?;
        self.delete_expired(&record.key, &record.hash, sequence, reservation).await
    }

    /// Deletes an expired record under a reservation of its key, if it is still current.
    pub(crate) async fn delete_expired(
        &self,
        key: &[u8],
        hash: &KeyHash,
        sequence: u64,
        mut reservation: Reservation,
    ) -> Result<()> {
        self.begin_term(&mut reservation, std::iter::once(hash))?;
        let key = Bytes::copy_from_slice(key);
        let mut tombstone = self.prepare(Kind::Tombstone, None, key, Bytes::new(), None)?;
        tombstone.hash = *hash;
        // A slot is emptied only when no other key can be hidden behind it.
        self.catalog.verify_to_remove(hash).await?;
        let found = self.catalog.look_up(&tombstone.key, hash).await?;
        let Some(found) = found.filter(|found| found.record.sequence == sequence) else { return Ok(()) };
        tombstone.replaces = Some(Replaced { expired: true, ..self.catalog.replaced(&found) });
        // Durable within a second, like watermarks.
        self.append(&self.lane, std::slice::from_mut(&mut tombstone), Durability::None, Some(reservation))
            .await?;
        self.space.counters.count_expired();
        Ok(())
    }
}
