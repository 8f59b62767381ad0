//! Keys that only one caller may write for a while.

use super::Lane;

use crate::base::error::Result;
use crate::write::reserve::{Reservation, Reservations, Reserved, Unpublished};

impl Lane {
    /// Reserves keys. When it returns, everything that was appended before is published, and no one else can write the
    /// keys until the reservation is dropped.
    pub(crate) async fn reserve(&self, keys: Vec<u64>) -> Result<Reservation> {
        self.reserve_by(|reservations| reservations.take(keys)).await
    }

    /// As [`reserve`](Self::reserve), but where the newest records of all the keys are known that are not published yet, it
    /// returns these instead of waiting until they are.
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

    /// Reserves keys, if nobody else has or wants one of them and without waiting for what was appended before.
    pub(crate) fn try_reserve(&self, keys: Vec<u64>) -> Option<Reservation> {
        self.state.lock().reservations.try_take(keys)
    }

    /// Reserves those of the keys that nobody else has or wants, without waiting for what was appended before; which those are, in
    /// their order.
    pub(crate) fn reserve_free(&self, keys: Vec<u64>) -> (Reservation, Vec<u64>) {
        self.state.lock().reservations.take_free(keys)
    }

    /// Waits for the turn of a plain put of some keys. It is to be given back as soon as the put is appended, since whoever has
    /// the next turn waits for what was appended anyway.
    pub(crate) async fn turn(&self, keys: Vec<u64>) -> Result<Reservation> {
        let (turn, granted) = {
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            state.reservations.share(keys)
        };
        if let Some(granted) = granted {
            granted.wait().await?;
        }
        Ok(turn)
    }

    async fn reserve_by(&self, take: impl FnOnce(&Reservations) -> Reserved) -> Result<Reservation> {
        let reservation = self.grant(take).await?;
        self.wait_for_earlier().await?;
        Ok(reservation)
    }

    async fn grant(&self, take: impl FnOnce(&Reservations) -> Reserved) -> Result<Reservation> {
        let (reservation, granted) = {
            let state = self.state.lock();
            self.catalog.space.health.check_writable()?;
            take(&state.reservations)
        };
        if let Some(granted) = granted {
            granted.wait().await?;
        }
        Ok(reservation)
    }

    /// Waits until what was appended before is published. To be called by who has its keys.
    pub(crate) async fn wait_for_earlier(&self) -> Result<()> {
        let earlier = {
            // Must come after the keys are ours: under the lock there is nobody who has found them free and not yet appended.
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
