//! Reserving keys for exclusive access by one writer.

use super::Lane;

use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{Either, select};

use crate::base::cluster_error::ClusterError;
use crate::base::completion::Waiter;
use crate::base::error::{Error, Result};
use crate::write::reserve::{Reservation, Reservations, Reserved, Unpublished};

/// Time for which a write of a replicated store waits for its keys. An earlier write keeps them until its entry is applied or
/// void, which takes until a majority answers.
const DOUBT_MAX: Duration = Duration::from_secs(10);
/// Number of writes that gave up while they waited, and stay in the wait queue, above which others are refused at once.
const GIVEN_UP_MAX: usize = 10_000;

impl Lane {
    /// Reserves keys. When it returns, all records appended before are published, and no other writer can write the keys until
    /// the reservation is dropped.
    pub(crate) async fn reserve(&self, keys: Vec<u64>) -> Result<Reservation> {
        self.reserve_by(|reservations| reservations.take(keys)).await
    }

    /// Like [`reserve`](Self::reserve), but if the newest records of all the keys are known and not published yet, returns
    /// these instead of waiting for their publication.
    pub(crate) async fn reserve_early(&self, keys: Vec<u64>) -> Result<(Reservation, Vec<Unpublished>)> {
        let reservation = self.grant(|reservations| reservations.take(keys.clone())).await?;
        let unpublished = {
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            state.reservations.unpublished(&keys).filter(|_| !keys.is_empty())
        };
        if let Some(unpublished) = unpublished {
            return Ok((reservation, unpublished));
        }
        self.wait_for_earlier().await?;
        Ok((reservation, Vec::new()))
    }

    /// Reserves every key.
    pub(crate) async fn reserve_all(&self) -> Result<Reservation> {
        self.reserve_by(Reservations::take_all).await
    }

    /// Reserves keys if no other writer has or awaits one of them, without waiting for earlier appends.
    pub(crate) fn try_reserve(&self, keys: Vec<u64>) -> Option<Reservation> {
        self.state.lock().reservations.try_take(keys)
    }

    /// Returns a reservation of no keys, under which a committed record is numbered before it is appended to another lane.
    pub(crate) fn reserve_none(&self) -> Reservation {
        self.state.lock().reservations.take(Vec::new()).0
    }

    /// Reserves those of the keys that no other writer has or awaits, without waiting for earlier appends. Returns these keys,
    /// in order.
    pub(crate) fn reserve_free(&self, keys: Vec<u64>) -> (Reservation, Vec<u64>) {
        self.state.lock().reservations.take_free(keys)
    }

    /// Waits for the turn of a plain put of some keys. The turn should be released as soon as the put is appended, because the
    /// next holder waits for earlier appends anyway.
    pub(crate) async fn turn(&self, keys: Vec<u64>) -> Result<Reservation> {
        let is_replicated = self.catalog.replicator().is_some();
        let (turn, granted) = {
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            check_given_up(&state.reservations, is_replicated)?;
            state.reservations.share(keys)
        };
        self.wait_granted(granted).await?;
        Ok(turn)
    }

    async fn reserve_by(&self, take: impl FnOnce(&Reservations) -> Reserved) -> Result<Reservation> {
        let reservation = self.grant(take).await?;
        self.wait_for_earlier().await?;
        Ok(reservation)
    }

    async fn grant(&self, take: impl FnOnce(&Reservations) -> Reserved) -> Result<Reservation> {
        let is_replicated = self.catalog.replicator().is_some();
        let (reservation, granted) = {
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            check_given_up(&state.reservations, is_replicated)?;
            take(&state.reservations)
        };
        self.wait_granted(granted).await?;
        Ok(reservation)
    }

    /// Waits for keys, in a replicated store for a limited time: a write that has not got them is certainly not done.
    async fn wait_granted(&self, granted: Option<Waiter>) -> Result<()> {
        let Some(granted) = granted else { return Ok(()) };
        if self.catalog.replicator().is_none() || planted(Bug::DoubtWaitsForever) {
            return granted.wait().await;
        }
        let late = self.catalog.space.runtime.sleep(DOUBT_MAX);
        match select(Box::pin(granted.wait()), late).await {
            Either::Left((granted, _)) => granted,
            Either::Right(_) => Err(Error::Cluster(ClusterError::KeyInDoubt)),
        }
    }

    /// Waits until all records appended before are published. Called by a writer that holds its keys.
    pub(crate) async fn wait_for_earlier(&self) -> Result<()> {
        let earlier = {
            // After the keys are granted: under the lock, no writer can have found them free and not appended yet.
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            state.newest_unpublished.clone()
        };
        if let Some(earlier) = earlier {
            earlier.wait().await?;
        }
        Ok(())
    }
}

/// Refuses a write of a replicated store while too many others gave up: each keeps its place until the writes before it end.
fn check_given_up(reservations: &Reservations, is_replicated: bool) -> Result<()> {
    match is_replicated && reservations.given_up() > GIVEN_UP_MAX {
        true => Err(Error::Cluster(ClusterError::KeyInDoubt)),
        false => Ok(()),
    }
}
