//! Keys that one writer has to itself for a moment.
//!
//! Deletes, conditional writes and large values look at what is there before they write, or are written by another way
//! than the lane. While they do, other writers of the key wait. Reservations are made under the lane's lock, all of a
//! batch or none, so they cannot deadlock; they are keyed by what the index tells keys apart by, so that two keys that
//! share a slot are not changed at the same time either.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::gate::Gate;

/// The reservations that are held. Taken only under the lane's lock.
#[derive(Default)]
pub(crate) struct Reservations {
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    keys: HashMap<u64, Arc<Gate>, FixedState>,
    /// All keys are reserved.
    all: Option<Arc<Gate>>,
}

/// A hasher for numbers that are hashes already; the same in every process, so that runs can be replayed.
pub(crate) type FixedState = std::hash::BuildHasherDefault<NumberHasher>;

/// See [`FixedState`].
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl std::hash::Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

/// Keys reserved; given back when dropped.
pub(crate) struct Reservation {
    held: Arc<Mutex<Held>>,
    /// `None`: all of them.
    keys: Option<Vec<u64>>,
    gate: Arc<Gate>,
}

impl Reservations {
    /// Whether someone else has one of the keys: what to wait for.
    pub(crate) fn conflict(&self, keys: impl IntoIterator<Item = u64>) -> Option<Arc<Gate>> {
        let held = self.held.lock();
        if held.keys.is_empty() {
            return held.all.clone();
        }
        held.all.clone().or_else(|| keys.into_iter().find_map(|key| held.keys.get(&key).cloned()))
    }

    /// Reserves all the keys given, or says what to wait for.
    pub(crate) fn take(&self, mut keys: Vec<u64>) -> Result<Reservation, Arc<Gate>> {
        keys.sort_unstable();
        keys.dedup();
        if let Some(gate) = self.conflict(keys.iter().copied()) {
            return Err(gate);
        }
        let gate = Gate::new();
        self.held.lock().keys.extend(keys.iter().map(|&key| (key, gate.clone())));
        Ok(Reservation { held: self.held.clone(), keys: Some(keys), gate })
    }

    /// Reserves every key, or says what to wait for.
    pub(crate) fn take_all(&self) -> Result<Reservation, Arc<Gate>> {
        let mut held = self.held.lock();
        if let Some(gate) = held.all.as_ref().or_else(|| held.keys.values().next()) {
            return Err(gate.clone());
        }
        let gate = Gate::new();
        held.all = Some(gate.clone());
        Ok(Reservation { held: self.held.clone(), keys: None, gate })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        match &self.keys {
            Some(keys) => keys.iter().for_each(|key| drop(held.keys.remove(key))),
            None => held.all = None,
        }
        drop(held);
        self.gate.open(Ok(()));
    }
}
