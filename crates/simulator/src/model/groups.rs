//! What happens to several slots at once: a batch over them, or a clear. After a crash it has happened to all or to none.

use std::collections::BTreeMap;

use super::recovery::Survivor;
use super::{Model, Part};

impl Model {
    /// These states of slots become one group; its number.
    pub(crate) fn join(&mut self, issued: &[(usize, usize)]) -> u64 {
        self.groups += 1;
        for (slot, at) in issued {
            self.slots[*slot].history[*at].group = self.groups;
        }
        self.groups
    }

    /// Each group has happened or not. A member of which something later is left, or which was evicted, does not tell.
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
    /// Whether the state at this place happened, if that can be told.
    fn tells(&self, at: usize) -> Option<bool> {
        match &self.may_be[..] {
            [only] if *only == at => Some(true),
            [.., newest] if *newest < at => Some(false),
            _ => None,
        }
    }
}
