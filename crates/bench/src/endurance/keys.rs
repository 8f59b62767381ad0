//! The expected state of a client's keys, by which results are verified.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The state of a key, known to its only writer.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Stamp of the last write that was started.
    stamp: u32,
    /// True while a write of it is in flight.
    busy: bool,
    present: bool,
    /// Expiry in wall-clock milliseconds.
    expires_at_ms: u64,
}

/// The keys of one client, numbered from 0.
pub(crate) struct Keys {
    states: Vec<State>,
    /// Absent keys, which the next puts bring back.
    absent: Vec<u32>,
    expiring: BinaryHeap<Reverse<(u64, u32)>>,
}

/// The state of a key when a get started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    stamp: u32,
    busy: bool,
}

impl Keys {
    /// The state after the first write of `count` keys.
    pub(crate) fn new(count: u64) -> Keys {
        let there = State { stamp: 1, busy: false, present: true, expires_at_ms: u64::MAX };
        Keys { states: vec![there; count as usize], absent: Vec::new(), expiring: BinaryHeap::new() }
    }

    /// Returns a key for a put: an absent one, else `wanted`; `None` if that is being written.
    pub(crate) fn for_put(&mut self, wanted: u64, now_ms: u64) -> Option<u64> {
        while let Some(Reverse((at, number))) = self.expiring.peek().copied() {
            if at >= now_ms {
                break;
            }
            self.expiring.pop();
            let state = &mut self.states[number as usize];
            if state.present && !state.busy && state.expires_at_ms == at {
                state.present = false;
                self.absent.push(number);
            }
        }
        let number = self.absent.pop().map_or(wanted, u64::from);
        (!self.states[number as usize].busy).then_some(number)
    }

    /// Returns true if a key can be deleted now.
    pub(crate) fn for_delete(&self, number: u64) -> bool {
        let state = self.states[number as usize];
        state.present && !state.busy
    }

    /// Starts a write. Returns its stamp.
    pub(crate) fn begin(&mut self, number: u64) -> u64 {
        let state = &mut self.states[number as usize];
        state.busy = true;
        state.stamp = state.stamp.wrapping_add(1);
        u64::from(state.stamp)
    }

    /// Completes a write: a put with its expiry, or (`None`) a delete.
    pub(crate) fn end(&mut self, number: u64, put: Option<u64>) {
        let state = &mut self.states[number as usize];
        state.busy = false;
        state.present = put.is_some();
        state.expires_at_ms = put.unwrap_or(u64::MAX);
        match put {
            None => self.absent.push(number as u32),
            Some(u64::MAX) => {}
            Some(at) => self.expiring.push(Reverse((at, number as u32))),
        }
    }

    /// Returns the state of a key at the start of a get.
    pub(crate) fn expected(&self, number: u64) -> Expected {
        let state = self.states[number as usize];
        Expected { stamp: state.stamp, busy: state.busy }
    }

    /// Verifies a result: the stamp found by a get that ran from `began_ms` to `ended_ms`.
    pub(crate) fn judge(
        &self,
        number: u64,
        expected: Expected,
        found: Option<u64>,
        (began_ms, ended_ms): (u64, u64),
    ) -> Result<(), String> {
        let state = self.states[number as usize];
        if expected.busy || state.stamp != expected.stamp {
            // The key was being written: any of its writes up to the last may be found, or none.
            return match found {
                Some(stamp) if stamp > u64::from(state.stamp) => {
                    Err(format!("a write {stamp} that was not made"))
                }
                _ => Ok(()),
            };
        }
        // The client's clock reading is some milliseconds older than the store's.
        match found {
            Some(stamp) if !state.present => Err(format!("write {stamp}, but it is deleted")),
            Some(_) if began_ms > state.expires_at_ms => Err("a value that has expired".into()),
            Some(stamp) if stamp != u64::from(state.stamp) => {
                Err(format!("write {stamp}, but the last is {}", state.stamp))
            }
            None if state.present && ended_ms < state.expires_at_ms => {
                Err(format!("nothing, but write {} is there", state.stamp))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_detected() {
        let mut keys = Keys::new(3);
        let before = keys.expected(0);
        assert!(keys.judge(0, before, Some(1), (0, 0)).is_ok());
        assert!(keys.judge(0, before, None, (0, 0)).is_err());
        let stamp = keys.begin(0);
        assert!(keys.for_put(0, 0).is_none() && !keys.for_delete(0));
        for found in [None, Some(1), Some(stamp)] {
            assert!(keys.judge(0, before, found, (0, 0)).is_ok(), "{found:?} while it is being written");
        }
        assert!(keys.judge(0, before, Some(stamp + 1), (0, 0)).is_err());
        keys.end(0, Some(1000));
        let after = keys.expected(0);
        assert!(keys.judge(0, after, Some(1), (0, 0)).is_err(), "an older version");
        assert!(keys.judge(0, after, Some(stamp), (999, 1001)).is_ok());
        assert!(keys.judge(0, after, None, (999, 1001)).is_ok(), "it expired meanwhile");
        assert!(keys.judge(0, after, None, (0, 999)).is_err());
        assert!(keys.judge(0, after, Some(stamp), (1001, 1002)).is_err(), "it has expired");
    }

    #[test]
    fn missing_keys_are_put_back_first() {
        let mut keys = Keys::new(3);
        keys.begin(1);
        keys.end(1, None);
        let gone = keys.expected(1);
        assert!(keys.judge(1, gone, Some(2), (0, 0)).is_err() && keys.judge(1, gone, None, (0, 0)).is_ok());
        assert_eq!((keys.for_put(0, 0), keys.for_put(0, 0)), (Some(1), Some(0)));
        keys.begin(2);
        keys.end(2, Some(50));
        assert_eq!(
            (keys.for_put(0, 50), keys.for_put(0, 51), keys.for_put(0, 51)),
            (Some(0), Some(2), Some(0))
        );
    }
}
