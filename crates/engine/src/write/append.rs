//! Appending to a lane, and waiting for the acknowledgement.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::Kind;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::write::Writer;
use crate::write::lane::{Append, Lane};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Number of attempts of a delete to get room before it is refused.
const DELETE_ATTEMPTS: u32 = 500;

impl Writer {
    /// Appends to a lane and waits for the acknowledgement. Returns the last sequence number.
    pub(crate) async fn append(
        &self,
        lane: &Lane,
        records: &mut [Prepared],
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<u64> {
        if let Some(replicator) = self.catalog.replicator() {
            return Box::pin(self.propose(replicator, records, reservation)).await;
        }
        records.iter().for_each(|record| record.count(&self.space.counters));
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(lane.shape)).sum();
        self.admission.wait(&self.space, &self.catalog.index, records.len(), bytes).await;
        let mut refused = 0;
        loop {
            match lane.append(records, durability, &mut reservation)? {
                Append::Done(sequence) => return Ok(sequence),
                Append::Wait(sequence, completion) => {
                    // Ends a turn of plain puts, and a reservation that ends early.
                    drop(reservation);
                    completion.wait().await?;
                    return Ok(sequence);
                }
                Append::Reserved => {
                    let since = self.space.runtime.now();
                    reservation = Some(self.turn(records).await?);
                    self.space.counters.count_stall(self.space.runtime.now() - since);
                }
                Append::Blocked(completion) => {
                    // A turn is not held while there is no room.
                    reservation.take_if(|reservation| reservation.is_shared());
                    let only_deletes = records.iter().all(|r| r.kind == Kind::Tombstone);
                    let since = self.space.runtime.now();
                    if only_deletes && self.space.full.load(Ordering::Acquire) {
                        // Deletes make room, so a slot is lent to them; that may take a moment.
                        refused += 1;
                        if refused > DELETE_ATTEMPTS {
                            return Err(self.note_refusal(0, self.space.full_error(self.used_bytes())));
                        }
                        self.space.reclaim.notify_one();
                        self.space.runtime.sleep(Duration::from_millis(10)).await;
                    } else if let Err(error) = completion.wait().await
                        && !(only_deletes
                            && matches!(error, Error::Full { .. } | Error::FileSystemFull { .. }))
                    {
                        let is_full = matches!(error, Error::Full { .. } | Error::FileSystemFull { .. });
                        return Err(if is_full { self.note_refusal(0, error) } else { error });
                    }
                    self.space.counters.count_stall(self.space.runtime.now() - since);
                }
            }
        }
    }
}
