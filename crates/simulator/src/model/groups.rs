//! Operations over several slots: a batch or a clear. After a crash, all of it has happened or nothing.

use std::collections::BTreeMap;

use super::recovery::Survivor;
use super::{Model, Part};

impl Model {
    /// Makes these states of slots one group. Returns its number.
    pub(crate) fn join(&mut self, issued: &[(usize, usize)]) -> u64 {
        self.groups += 1;
        for (slot, at) in issued {
            self.slots[*slot].history[*at].group = self.groups;
        }
        self.groups
    }

    /// Asserts that each group happened as a whole or not at all. A member with a later survivor, or one that was
    /// evicted, proves nothing.
    pub(super) fn check_groups(&mut self, survivors: &[Survivor]) {
        let mut told: BTreeMap<u64, (bool, String)> = BTreeMap::new();
        let mut tell = |part: Part, who: String| {
            let (happened, first) = told.entry(part.group).or_insert_with(|| (part.happened, who.clone()));
            assert!(
                *happened == part.happened,
                "half of a batch or clear: it happened to {first}: {happened}, and to {who}: {}",
                part.happened
            );
        };
        for (number, (slot, survivor)) in self.slots.iter().zip(survivors).enumerate() {
            for (at, state) in slot.history.iter().enumerate().filter(|(_, state)| state.group != 0) {
                if let Some(happened) = survivor.tells(at) {
                    tell(
                        Part { group: state.group, happened },
                        format!("slot {number} ({survivor:?}, {at})"),
                    );
                }
            }
        }
        for counter in &mut self.counters {
            counter.says.take().into_iter().for_each(|part| tell(part, format!("{:?}", counter.key)));
        }
    }
}

impl Survivor {
    /// Returns whether the state at this position happened; `None` if the survivor does not prove either.
    fn tells(&self, at: usize) -> Option<bool> {
        match &self.may_be[..] {
            [only] if *only == at => Some(true),
            [.., newest] if *newest < at => Some(false),
            _ => None,
        }
    }
}
