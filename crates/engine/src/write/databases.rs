//! Operations on whole databases: clearing them, swapping two, and how writers handle a swap.
//!
//! A record is prepared with the keyspace that its database has at that time. A swap reserves all keys. Therefore:
//!
//! 1. A writer that reserves keys checks the keyspaces again when the keys are granted: from then on no swap can happen.
//! 2. A writer without a reservation learns under the lane's lock that its keyspace has changed, and takes a turn.
//!
//! See `docs/decisions/0024-keyspaces.md`.

use std::ops::Range;
use std::sync::atomic::Ordering;

use esker_log::{Databases, Keyspace};
use esker_seeded_bugs::{Bug, planted};
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::segments::space::Space;
use crate::write::Writer;
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

impl Catalog {
    /// Step 2: returns true if the keyspace of a record's database has changed since the record was prepared.
    pub(super) fn has_moved(&self, record: &Prepared) -> bool {
        let now = |database| self.keyspace(database) != record.hash.keyspace();
        record.database.is_some_and(now) && !planted(Bug::SwapOvertaken)
    }
}

/// Changes the superblocks. A failure latches the store, because the result of the next opening would be unknown.
pub(super) async fn write_superblocks(
    space: &Space,
    change: impl FnMut(&mut esker_log::Superblock),
) -> Result<()> {
    let mut change = change;
    let written = space.update_superblocks(|_, superblock| change(superblock)).await;
    if let Err(error) = &written {
        space.latch(error);
    }
    written
}

impl Writer {
    /// Gives records the current keyspaces of their databases. Returns true if any has changed.
    fn follow_swaps(&self, records: &mut [Prepared]) -> bool {
        let mut any = false;
        for record in records.iter_mut().filter(|record| self.catalog.has_moved(record)) {
            let keyspace =
                self.catalog.keyspace(record.database.expect("only a record with a database can move"));
            record.hash = record.hash.in_keyspace(keyspace);
            any = true;
        }
        any
    }

    fn stored_hashes(&self, records: &[Prepared]) -> Vec<u64> {
        records.iter().map(|record| self.catalog.index.stored_hash(&record.hash)).collect()
    }

    /// Step 1: reserves the keys of records.
    pub(super) async fn reserve(&self, records: &mut [Prepared]) -> Result<Reservation> {
        loop {
            let mut reservation = self.lane.reserve(self.stored_hashes(records)).await?;
            self.begin_term(&mut reservation, records.iter().map(|record| &record.hash))?;
            if !self.follow_swaps(records) || planted(Bug::ReservedElsewhere) {
                return Ok(reservation);
            }
        }
    }

    /// Step 2: waits for the turn of plain puts.
    pub(super) async fn turn(&self, records: &mut [Prepared]) -> Result<Reservation> {
        loop {
            self.follow_swaps(records);
            let mut turn = self.lane.turn(self.stored_hashes(records)).await?;
            self.begin_term(&mut turn, records.iter().map(|record| &record.hash))?;
            if !self.follow_swaps(records) || planted(Bug::TurnElsewhere) {
                return Ok(turn);
            }
        }
    }

    /// Deletes every key of some databases: the superblock records that everything written to them so far is void.
    pub(crate) async fn clear(&self, databases: Range<u8>) -> Result<()> {
        let space = &self.space;
        space.health.check_writable()?;
        // Leaves little for the flush below, which all writers wait for.
        self.flush().await?;
        let _all = self.lane.reserve_all().await?;
        // No writer is active now, and every appended record is published.
        self.flush().await?;
        let keyspaces: SmallVec<[Keyspace; Keyspace::COUNT]> =
            databases.map(|database| self.catalog.keyspace(database)).collect();
        let through = space.sequence.load(Ordering::Acquire);
        let durably = if planted(Bug::ClearNotWritten) { 0 } else { through };
        let durably = durably - u64::from(planted(Bug::NewestNotCleared));
        let is_cleared =
            |keyspace: &Keyspace| keyspaces.contains(keyspace) || planted(Bug::ClearTakesAnother);
        let clear = |superblock: &mut esker_log::Superblock| {
            let cleared = Keyspace::all().filter(is_cleared);
            cleared.for_each(|keyspace| superblock.cleared.clear(keyspace, durably));
        };
        write_superblocks(space, clear).await?;
        self.catalog.clear(&keyspaces, through);
        space.is_no_longer_full();
        space.reclaim.notify_one();
        Ok(())
    }

    /// Exchanges the keys of two databases, durably.
    pub(crate) async fn swap_databases(&self, first: u8, second: u8) -> Result<()> {
        self.space.health.check_writable()?;
        if self.catalog.replicator().is_some() {
            return Err(Error::invalid(
                "a replicated store has one database for users, so none are exchanged",
            ));
        }
        if first == second {
            return Ok(());
        }
        let _all = self.lane.reserve_all().await?;
        let [one, other] = [first, second].map(|database| self.catalog.keyspace(database));
        let mut now = Databases::default();
        let swap = |superblock: &mut esker_log::Superblock| {
            now = superblock.databases.swapped(first, second);
            if !planted(Bug::SwapNotWritten) {
                superblock.databases = now;
            }
        };
        write_superblocks(&self.space, swap).await?;
        self.catalog.swap_databases(&now, one, other);
        Ok(())
    }
}

/// Returns the number of a database, or an error if it does not exist.
pub(crate) fn check_database(database: u8) -> Result<u8> {
    if database >= Databases::COUNT {
        let last = Databases::COUNT - 1;
        return Err(Error::invalid(format!("there is no database {database}; databases are 0 to {last}")));
    }
    Ok(database)
}

#[cfg(test)]
#[path = "databases_tests.rs"]
mod tests;
