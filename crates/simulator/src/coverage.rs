//! States that histories reached.

use std::collections::BTreeMap;

/// States that are rarely reached, or that a change to the engine or to the plans could make unreachable.
pub const RARE: &[&str] = &[
    "a store was closed",
    "a process was killed",
    "the power was cut",
    "a store was left alone",
    "an opening was cut off",
    "two openings in a row were cut off",
    "three openings in a row were cut off",
    "a device failed while the store was opened",
    "a store was opened twice",
    "segments were destaged",
    "records were moved by relocation",
    "segments were freed",
    "space was discarded",
    "records expired",
    "a full store dropped records",
    "a key that was dropped was missed",
    "the clock was moved",
    "a limit was raised",
    "a large value went its own way",
    "a full store refused a write",
    "a write waited for room",
    "a condition did not hold",
    "a clear began",
    "a clear ended",
    "one database was cleared",
    "databases were swapped",
    "a write came before a swap",
    "a write came after a swap",
    "a displaced key was found again",
    "overwrites were verified",
    "records were overwritten in memory",
    "records of the staging file were taken",
    "the scrub came to its end",
    "a call failed with Io",
    "the store stopped after a failure",
    "a late I/O was waited for",
    "a call failed with Corrupt",
    "verification found damage",
    "an opening was refused for damage",
];

/// States that histories reached, with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Number of histories per reached state of [`RARE`].
    pub states: BTreeMap<&'static str, u64>,
    /// Planned client operations, whether or not they began.
    pub operations: u64,
    /// Process ends.
    pub ends: u64,
}

impl Reached {
    pub(crate) fn note(&mut self, state: &'static str) {
        debug_assert!(RARE.contains(&state), "{state}");
        self.states.insert(state, 1);
    }

    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Reached) {
        for (state, count) in &other.states {
            *self.states.entry(state).or_default() += count;
        }
        self.operations += other.operations;
        self.ends += other.ends;
    }

    /// Iterates over the states that no history reached.
    pub fn missed(&self) -> impl Iterator<Item = &'static str> + '_ {
        RARE.iter().copied().filter(|state| !self.states.contains_key(state))
    }
}
