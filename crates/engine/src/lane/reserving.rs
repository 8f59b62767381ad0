//! Keys that only one caller may write for a while.

use super::Lane;
use crate::engine::Engine;
use crate::error::Result;
use crate::reserve::{Reservation, Reservations, Reserved};

impl Lane {
    /// Reserves keys. When it returns, everything that was appended before is published, and no one else can write the
    /// keys until the reservation is dropped.
    pub(crate) async fn reserve(&self, engine: &Engine, keys: Vec<u64>) -> Result<Reservation> {
        self.reserve_by(engine, |reservations| reservations.take(keys)).await
    }

    /// Reserves every key.
    pub(crate) async fn reserve_all(&self, engine: &Engine) -> Result<Reservation> {
        self.reserve_by(engine, Reservations::take_all).await
    }

    /// Reserves keys, if nobody else has or wants one of them and without waiting for what was appended before.
    pub(crate) fn try_reserve(&self, keys: Vec<u64>) -> Option<Reservation> {
        self.state.lock().reservations.try_take(keys)
    }

    /// Waits for the turn of a plain put of some keys. It is to be given back as soon as the put is appended, since whoever has
    /// the next turn waits for what was appended anyway.
    pub(crate) async fn turn(&self, engine: &Engine, keys: Vec<u64>) -> Result<Reservation> {
        let (turn, granted) = {
            let state = self.state.lock();
            engine.check_writable()?;
            state.reservations.share(keys)
        };
        if let Some(granted) = granted {
            granted.wait().await?;
        }
        Ok(turn)
    }

    async fn reserve_by(
        &self,
        engine: &Engine,
        take: impl FnOnce(&Reservations) -> Reserved,
    ) -> Result<Reservation> {
        let (reservation, granted) = {
            let state = self.state.lock();
            engine.check_writable()?;
            take(&state.reservations)
        };
        if let Some(granted) = granted {
            granted.wait().await?;
        }
        let earlier = {
            // Must come after the keys are ours: under the lock there is nobody who has found them free and not yet appended.
            let state = self.state.lock();
            engine.check_writable()?;
            state.newest_unpublished.clone()
        };
        if let Some(earlier) = earlier {
            earlier.wait().await?;
        }
        Ok(reservation)
    }
}
