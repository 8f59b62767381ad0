//! Keys that only one caller may write for a while.

use std::sync::Arc;

use super::Lane;
use crate::engine::Engine;
use crate::error::Result;
use crate::gate::Gate;
use crate::reserve::{Reservation, Reservations};

impl Lane {
    /// Reserves keys. When it returns, everything that was appended before is published, and no one else can write the
    /// keys until the reservation is dropped.
    pub(crate) async fn reserve(&self, engine: &Engine, keys: Vec<u64>) -> Result<Reservation> {
        self.reserve_by(engine, |reservations| reservations.take(keys.clone())).await
    }

    /// Reserves keys, if nobody else has one of them and without waiting for what was appended before.
    pub(crate) fn try_reserve(&self, keys: Vec<u64>) -> Option<Reservation> {
        self.state.lock().reservations.take(keys).ok()
    }

    /// Reserves every key.
    pub(crate) async fn reserve_all(&self, engine: &Engine) -> Result<Reservation> {
        self.reserve_by(engine, Reservations::take_all).await
    }

    async fn reserve_by(
        &self,
        engine: &Engine,
        take: impl Fn(&Reservations) -> std::result::Result<Reservation, Arc<Gate>>,
    ) -> Result<Reservation> {
        loop {
            let (taken, earlier) = {
                let state = self.state.lock();
                engine.check_writable()?;
                (take(&state.reservations), state.newest_unpublished.clone())
            };
            match taken {
                Ok(reservation) => {
                    if let Some(earlier) = earlier {
                        earlier.wait().await?;
                    }
                    return Ok(reservation);
                }
                Err(gate) => gate.wait().await?,
            }
        }
    }
}
