//! What a client knows of its keys, so that it can tell a right answer from a wrong one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A key, as its only writer knows it.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The last write that was begun.
    stamp: u32,
    /// Writes of it that are under way.
    busy: bool,
    present: bool,
    /// When it expires, in wall-clock milliseconds.
    expires_at_ms: u64,
}

/// The keys of one client, numbered from 0.
pub(crate) struct Keys {
    states: Vec<State>,
    /// Keys that are not there, which the next puts bring back.
    absent: Vec<u32>,
    expiring: BinaryHeap<Reverse<(u64, u32)>>,
}

/// What was known when a get was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    stamp: u32,
    busy: bool,
}

impl Keys {
    /// So many keys, all there, by their first write.
    pub(crate) fn new(count: u64) -> Keys {
        let there = State { stamp: 1, busy: false, present: true, expires_at_ms: u64::MAX };
        Keys { states: vec![there; count as usize], absent: Vec::new(), expiring: BinaryHeap::new() }
    }

    /// A key for a put: one that is not there, else `wanted`. None if that is being written.
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

    /// Whether a key can be deleted now.
    pub(crate) fn for_delete(&self, number: u64) -> bool {
        let state = self.states[number as usize];
        state.present && !state.busy
    }

    /// A write begins; its stamp.
    pub(crate) fn begin(&mut self, number: u64) -> u64 {
        let state = &mut self.states[number as usize];
        state.busy = true;
        state.stamp = state.stamp.wrapping_add(1);
        u64::from(state.stamp)
    }

    /// A write is acknowledged: a put that expires at some time or never, or a delete.
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

    /// What a get that begins now may expect.
    pub(crate) fn expected(&self, number: u64) -> Expected {
        let state = self.states[number as usize];
        Expected { stamp: state.stamp, busy: state.busy }
    }

    /// Whether an answer is right: the stamp that was found, between the times at which the get began and ended.
    pub(crate) fn judge(
        &self,
        number: u64,
        expected: Expected,
        found: Option<u64>,
        (began_ms, ended_ms): (u64, u64),
    ) -> Result<(), String> {
        let state = self.states[number as usize];
        if expected.busy || state.stamp != expected.stamp {
            // Somebody wrote it meanwhile: any of its writes up to the last may have been found, or none.
            return match found {
                Some(stamp) if stamp > u64::from(state.stamp) => {
                    Err(format!("a write {stamp} that was not made"))
                }
                _ => Ok(()),
            };
        }
        // A clock's reading is some milliseconds old when the store looks at its own.
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
    fn wrong_answers_are_told_from_right_ones() {
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
    fn what_is_gone_is_put_back_first() {
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
