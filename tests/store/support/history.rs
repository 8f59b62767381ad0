//! The writes of each key, and the values that may be found under it.

use std::collections::BTreeMap;

use crate::support::{VALUE_BYTES_MIN, value};

pub(crate) type Key = Vec<u8>;

/// The stamp of a key's value, or `None` if it is absent.
pub(crate) type Stamp = Option<u64>;

/// A requested state of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) stamp: Stamp,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) acknowledged: bool,
    /// True if the state is on the medium, whatever happens to memory.
    pub(crate) durable: bool,
}

impl State {
    /// Returns the visible state at a given time.
    pub(crate) fn at(&self, now_ms: u64) -> Stamp {
        self.stamp.filter(|_| self.expires_at_ms.is_none_or(|at| at > now_ms))
    }
}

/// The states of every key ever written, the newest last. A key has one writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histories {
    pub(crate) keys: BTreeMap<Key, Vec<State>>,
    stamps: u64,
}

impl Histories {
    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// Must be called before the write is issued, because a kill may leave it done or not.
    pub(crate) fn issue(&mut self, key: &[u8], stamp: Stamp, expires_at_ms: Option<u64>) {
        let state = State { stamp, expires_at_ms, acknowledged: false, durable: false };
        self.keys.entry(key.to_vec()).or_default().push(state);
    }

    /// Records that the last issued write was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: &[u8], durable: bool) {
        let newest = self.keys.get_mut(key).and_then(|states| states.last_mut()).expect("it was issued");
        (newest.acknowledged, newest.durable) = (true, durable);
    }

    /// Records that the last issued write was refused and had no effect.
    pub(crate) fn refuse(&mut self, key: &[u8]) {
        self.keys.get_mut(key).expect("it was issued").pop();
    }

    /// Records that all acknowledged writes are on the medium.
    pub(crate) fn all_durable(&mut self) {
        let states = self.keys.values_mut().flatten();
        states.filter(|state| state.acknowledged).for_each(|state| state.durable = true);
    }

    /// Returns the number of states of each key up to the last acknowledged one.
    pub(crate) fn acknowledged(&self) -> BTreeMap<Key, usize> {
        let count =
            |states: &Vec<State>| states.iter().rposition(|state| state.acknowledged).map(|last| last + 1);
        self.keys.iter().filter_map(|(key, states)| Some((key.clone(), count(states)?))).collect()
    }

    /// Marks these states as durable.
    pub(crate) fn make_durable(&mut self, acknowledged: &BTreeMap<Key, usize>) {
        for (key, count) in acknowledged {
            let states = self.keys.get_mut(key).expect("it is known");
            states[count - 1].durable = true;
        }
    }

    /// Returns true if a key may be found in this state without a loss of durable writes.
    pub(crate) fn allows(&self, key: &[u8], found: Stamp, now_ms: u64) -> bool {
        let states = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        let first = states.iter().rposition(|state| state.durable);
        let never = first.is_none() && found.is_none();
        never || states[first.unwrap_or(0)..].iter().any(|state| state.at(now_ms) == found)
    }

    /// Sets the state of a key found after an opening, which is the expected one from there on.
    pub(crate) fn settle(&mut self, key: &[u8], found: Stamp) {
        let states = self.keys.get_mut(key).expect("it is known");
        let verified = states.iter().rev().find(|state| state.stamp == found);
        let expires_at_ms = verified.and_then(|state| state.expires_at_ms);
        states.push(State { stamp: found, expires_at_ms, acknowledged: true, durable: true });
    }

    /// Returns true if this key ever had this value.
    pub(crate) fn had(&self, key: &[u8], stamp: u64) -> bool {
        self.keys.get(key).is_some_and(|states| states.iter().any(|state| state.stamp == Some(stamp)))
    }
}

/// Returns the stamp of a value, if it was made for this key.
pub(crate) fn stamp_in(key: &[u8], found: &[u8]) -> Option<u64> {
    let stamp = u64::from_le_bytes(found.get(..8)?.try_into().ok()?);
    (found.len() >= VALUE_BYTES_MIN && value(key, stamp, found.len()) == found).then_some(stamp)
}
