//! Appending to a lane, and waiting until it is acknowledged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::Kind;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::write::Writer;
use crate::write::lane::{Append, Lane};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// How often a delete asks for room before it is told that there is none.
const DELETE_ATTEMPTS: u32 = 500;

impl Writer {
    /// Appends to a lane and waits until it is acknowledged. Returns the last sequence number.
    pub(crate) async fn append(
        &self,
        lane: &Lane,
        records: &mut [Prepared],
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<u64> {
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(lane.shape)).sum();
        self.admission.wait(&self.space, &self.catalog.index, records.len(), bytes).await;
        let only_deletes = records.iter().all(|r| r.kind == Kind::Tombstone);
        let mut refused = 0;
        loop {
            match lane.append(records, durability, &mut reservation)? {
                Append::Done(sequence) => return Ok(sequence),
                Append::Wait(sequence, completion) => {
                    // A turn of plain puts ends here, and a reservation that ends early.
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
                    // A turn is not kept while there is no room.
                    reservation.take_if(|reservation| reservation.is_shared());
                    let since = self.space.runtime.now();
                    if only_deletes && self.space.full.load(Ordering::Acquire) {
                        // Deletes make room, so they are lent some; it may take a moment to come.
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
