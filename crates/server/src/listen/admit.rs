//! Admission: limits connections in total, per origin, and by the memory for their floors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::base::address::Origin;
use crate::budget::{Budget, Share};
use crate::service::connection_limits::ConnectionLimits;

/// Floor of every connection, in bytes: a small read buffer, its state, a few replies.
const FLOOR_BYTES: usize = 16 << 10;

/// Additional floor of a TLS connection, in bytes: the session's state, and buffers for records of 16 KiB in both directions.
pub(crate) const TLS_BYTES: usize = 48 << 10;

/// Counts open connections and enforces the limits.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    budget: Arc<Budget>,
    limits: Arc<ConnectionLimits>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    by_origin: HashMap<Origin, usize>,
}

/// The limit that refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("max number of clients reached")]
    InAll,
    #[error("max number of clients from this address reached")]
    FromAddress,
    #[error("max number of clients reached: their memory is used up, or this address has its part of it")]
    Memory,
}

/// Resources of an admitted connection.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// Its slot in the connection counts.
    pub(crate) place: Admission,
    /// Its share of the memory for clients.
    pub(crate) share: Share,
}

/// A slot in the connection counts, released on drop.
#[derive(Debug)]
pub(crate) struct Admission {
    gatekeeper: Arc<Gatekeeper>,
    origin: Origin,
}

impl Gatekeeper {
    pub(crate) fn new(budget: Arc<Budget>, limits: Arc<ConnectionLimits>) -> Arc<Gatekeeper> {
        Arc::new(Gatekeeper { budget, limits, open: Mutex::default() })
    }

    /// Admits a connection, or returns the limit that it exceeds. `beyond` is the floor of its protocols in addition to
    /// [`FLOOR_BYTES`].
    pub(crate) fn admit(self: &Arc<Gatekeeper>, origin: Origin, beyond: usize) -> Result<Ticket, TooMany> {
        let mut open = self.open.lock().expect("the lock is never poisoned: no code panics while holding it");
        if open.connections >= self.limits.connections() {
            return Err(TooMany::InAll);
        }
        if open.by_origin.get(&origin).is_some_and(|&count| count >= self.limits.per_address()) {
            return Err(TooMany::FromAddress);
        }
        let floor = FLOOR_BYTES + beyond;
        let share = self.budget.share(origin, floor).ok_or(TooMany::Memory)?;
        open.connections += 1;
        *open.by_origin.entry(origin).or_default() += 1;
        Ok(Ticket { place: Admission { gatekeeper: self.clone(), origin }, share })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open =
            self.gatekeeper.open.lock().expect("the lock is never poisoned: no code panics while holding it");
        open.connections -= 1;
        if let Some(count) = open.by_origin.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                open.by_origin.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_free_again() {
        let budget = Budget::new(400 << 10, 100 << 10, std::time::Duration::ZERO);
        let gatekeeper = Gatekeeper::new(budget.clone(), ConnectionLimits::new(3, 2));
        let admit = |last| gatekeeper.admit(Origin::of([10, 0, 0, last].into()), 0);
        let (one, two) = (admit(1).unwrap(), admit(1).unwrap());
        assert_eq!(admit(1).unwrap_err(), TooMany::FromAddress);
        let three = admit(2).unwrap();
        assert_eq!(admit(3).unwrap_err(), TooMany::InAll);
        drop(one);
        let four = admit(1).unwrap();
        assert_eq!(budget.used_bytes(), 3 * FLOOR_BYTES);
        drop((two, three, four));
        assert_eq!(budget.used_bytes(), 0);
        assert!(gatekeeper.open.lock().unwrap().by_origin.is_empty());
        let tight = Gatekeeper::new(
            Budget::new(20 << 10, 20 << 10, std::time::Duration::ZERO),
            ConnectionLimits::new(3, 3),
        );
        assert_eq!(tight.admit(Origin::of([1, 1, 1, 1].into()), 0).unwrap_err(), TooMany::Memory);
    }
}
