//! Databases as a whole: clearing them, swapping two, and what writers do about a swap.
//!
//! A record is prepared with the keyspace that its database has at that moment. A swap reserves all keys. So:
//!
//! 1. Who reserves keys looks again when they are granted: from then on no swap can happen.
//! 2. Who reserves none is told under the lane's lock that the keyspace is another one, and takes a turn.
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
    /// 2. Whether the database of a record has another keyspace than when it was prepared.
    pub(super) fn has_moved(&self, record: &Prepared) -> bool {
        let now = |database| self.keyspace(database) != record.hash.keyspace();
        record.database.is_some_and(now) && !planted(Bug::SwapOvertaken)
    }
}

/// Changes the superblocks. If that fails, nobody knows what the next opening finds.
async fn write_superblocks(space: &Space, change: impl FnMut(&mut esker_log::Superblock)) -> Result<()> {
    let mut change = change;
    let written = space.update_superblocks(|_, superblock| change(superblock)).await;
    if let Err(error) = &written {
        space.health.latch(error);
    }
    written
}

impl Writer {
    /// Gives records the keyspaces that their databases have now; says whether that changed any.
    fn follow_swaps(&self, records: &mut [Prepared]) -> bool {
        let mut any = false;
        for record in records.iter_mut().filter(|record| self.catalog.has_moved(record)) {
            let keyspace = self.catalog.keyspace(record.database.expect("it has moved"));
            record.hash = record.hash.in_keyspace(keyspace);
            any = true;
        }
        any
    }

    fn stored_hashes(&self, records: &[Prepared]) -> Vec<u64> {
        records.iter().map(|record| self.catalog.index.stored_hash(&record.hash)).collect()
    }

    /// 1. Reserves the keys of records.
    pub(super) async fn reserve(&self, records: &mut [Prepared]) -> Result<Reservation> {
        loop {
            let reservation = self.lane.reserve(self.stored_hashes(records)).await?;
            if !self.follow_swaps(records) || planted(Bug::ReservedElsewhere) {
                return Ok(reservation);
            }
        }
    }

    /// 2. Waits for the turn of plain puts.
    pub(super) async fn turn(&self, records: &mut [Prepared]) -> Result<Reservation> {
        loop {
            self.follow_swaps(records);
            let turn = self.lane.turn(self.stored_hashes(records)).await?;
            if !self.follow_swaps(records) || planted(Bug::TurnElsewhere) {
                return Ok(turn);
            }
        }
    }

    /// Deletes every key of some databases: what was written to them up to now is void, and the superblock says so.
    pub(crate) async fn clear(&self, databases: Range<u8>) -> Result<()> {
        let space = &self.space;
        space.health.check_writable()?;
        // So that little is left for the flush that everybody waits for.
        self.flush().await?;
        let _all = self.lane.reserve_all().await?;
        // Nobody writes now, and everything that was appended is published.
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

    /// Gives each of two databases the keys of the other, durably.
    pub(crate) async fn swap_databases(&self, first: u8, second: u8) -> Result<()> {
        self.space.health.check_writable()?;
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

/// Whether there is such a database.
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
