//! A densely filled hash table of entries of a few bytes, several of which may have the same key.
//!
//! Entries are stored in the order of their keys' spread bits, each at its home slot or behind it, with gaps between (linear
//! probing with ordered runs). A search therefore ends at the first entry beyond the wanted key, and a rebuild is one pass from
//! front to back. The table grows by an eighth when seven eighths are occupied: an entry of 19 bytes takes 21.7 to 24.5, while
//! a table that doubles takes 24 to 46.

/// An entry, distinguished from a gap by its key.
pub(crate) trait Entry: Copy {
    /// Key by which the entry is found. Never `u32::MAX`.
    fn key(&self) -> u32;

    /// Content of a gap: its key is `u32::MAX`.
    const GAP: Self;
}

/// Minimum number of home slots in a table that is not empty.
const HOMES_MIN: usize = 16;

#[derive(Debug)]
pub(crate) struct DenseTable<T> {
    /// Home slots, followed by entries that overflowed the last home slot.
    slots: Vec<T>,
    homes: usize,
    len: usize,
}

impl<T> Default for DenseTable<T> {
    fn default() -> DenseTable<T> {
        DenseTable { slots: Vec::new(), homes: 0, len: 0 }
    }
}

/// Spreads neighbouring keys over all 32 bits. Different keys have different results.
fn spread(key: u32) -> u32 {
    key.wrapping_mul(0x9E37_79B9)
}

impl<T: Entry> DenseTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory of the table in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<T>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter(|entry| !is_gap(*entry))
    }

    /// Iterates over the entries of a key.
    pub(crate) fn of(&self, key: u32) -> impl Iterator<Item = &T> {
        let first = self.first_from(key);
        self.slots[first..].iter().take_while(move |entry| entry.key() == key)
    }

    /// Adds an entry, in addition to others of its key.
    pub(crate) fn insert(&mut self, entry: T) {
        if (self.len + 1) * 8 > self.homes * 7 {
            self.rebuild((self.homes + self.homes / 8).max(HOMES_MIN));
        }
        let at = self.first_from(entry.key());
        // Moves the run from `at` to the next gap up by one.
        match self.slots[at..].iter().position(is_gap) {
            Some(gap) => self.slots.copy_within(at..at + gap, at + 1),
            None => {
                self.slots.reserve_exact(HOMES_MIN);
                self.slots.push(T::GAP);
                let end = self.slots.len();
                self.slots.copy_within(at..end - 1, at + 1);
            }
        }
        self.slots[at] = entry;
        self.len += 1;
    }

    /// Removes those entries of a key for which `is_one` returns true. Returns their number.
    pub(crate) fn remove(&mut self, key: u32, is_one: impl Fn(&T) -> bool) -> usize {
        let before = self.len;
        let mut at = self.first_from(key);
        while self.slots.get(at).is_some_and(|entry| entry.key() == key) {
            if is_one(&self.slots[at]) {
                self.take_out(at);
            } else {
                at += 1;
            }
        }
        if self.len * 2 < self.homes && self.homes > HOMES_MIN {
            self.rebuild((self.len + self.len / 4).max(HOMES_MIN));
        }
        before - self.len
    }

    /// Replaces an entry by a gap, and moves the following entries that are not in their home slot down by one.
    fn take_out(&mut self, at: usize) {
        let stays = |(slot, entry): (usize, &T)| is_gap(entry) || self.home(entry.key()) == slot;
        let behind = self.slots.iter().enumerate().skip(at + 1).position(stays);
        let end = behind.map_or(self.slots.len(), |moved| at + 1 + moved);
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = T::GAP;
        self.len -= 1;
    }

    /// Returns the position of the first entry of this key or, if there is none, the position for inserting one.
    fn first_from(&self, key: u32) -> usize {
        if self.homes == 0 {
            return 0;
        }
        let (home, wanted) = (self.home(key), spread(key));
        let is_before = |entry: &T| !is_gap(entry) && spread(entry.key()) < wanted;
        home + self.slots[home..].iter().take_while(|entry| is_before(entry)).count()
    }

    fn home(&self, key: u32) -> usize {
        ((u64::from(spread(key)) * self.homes as u64) >> 32) as usize
    }

    /// Rebuilds the table with this number of home slots.
    fn rebuild(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        self.homes = homes;
        self.slots = vec![T::GAP; homes];
        let mut next = 0;
        for entry in old.into_iter().filter(|entry| !is_gap(entry)) {
            let at = self.home(entry.key()).max(next);
            if at == self.slots.len() {
                self.slots.push(T::GAP);
            }
            self.slots[at] = entry;
            next = at + 1;
        }
        self.slots.shrink_to(homes);
    }
}

fn is_gap<T: Entry>(entry: &T) -> bool {
    entry.key() == u32::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Pair(u32, u8);

    impl Entry for Pair {
        const GAP: Pair = Pair(u32::MAX, 0);

        fn key(&self) -> u32 {
            self.0
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, u8),
        Remove(u32, u8),
        RemoveAll(u32),
    }

    /// Generates keys of which many are equal, adjacent, or at the upper end of the range.
    fn keys() -> impl Strategy<Value = u32> {
        prop_oneof![0u32..40, (0u32..40).prop_map(|key| u32::MAX - 1 - key), 0..u32::MAX]
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (keys(), 0u8..4).prop_map(|(key, value)| Step::Insert(key, value)),
            3 => (keys(), 0u8..4).prop_map(|(key, value)| Step::Remove(key, value)),
            1 => keys().prop_map(Step::RemoveAll),
        ];
        prop::collection::vec(step, 0..600)
    }

    fn check(table: &DenseTable<Pair>) {
        let spreads: Vec<u32> = table.iter().map(|entry| spread(entry.0)).collect();
        assert!(spreads.is_sorted(), "entries lie in order");
        assert_eq!(spreads.len(), table.len());
        for (slot, entry) in table.slots.iter().enumerate().filter(|(_, entry)| !is_gap(*entry)) {
            let home = table.home(entry.0);
            assert!(home <= slot && !table.slots[home..slot].iter().any(is_gap), "a gap before an entry");
        }
        assert!(table.len() * 8 <= table.homes * 7);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_list_holds(steps in steps()) {
            let mut table = DenseTable::default();
            let mut list: Vec<Pair> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        table.insert(Pair(key, value));
                        list.push(Pair(key, value));
                    }
                    Step::Remove(key, value) => {
                        let before = list.len();
                        list.retain(|pair| *pair != Pair(key, value));
                        assert_eq!(table.remove(key, |pair| pair.1 == value), before - list.len());
                    }
                    Step::RemoveAll(key) => {
                        let before = list.len();
                        list.retain(|pair| pair.0 != key);
                        assert_eq!(table.remove(key, |_| true), before - list.len());
                    }
                }
                check(&table);
            }
            for key in list.iter().map(|pair| pair.0).chain([7, 1 << 31]) {
                let mut found: Vec<Pair> = table.of(key).copied().collect();
                let mut known: Vec<Pair> = list.iter().copied().filter(|pair| pair.0 == key).collect();
                found.sort_unstable();
                known.sort_unstable();
                assert_eq!(found, known);
            }
        }
    }

    #[test]
    fn dense_table_stays_full_while_growing_and_shrinks_later() {
        let mut table = DenseTable::default();
        for key in 0..100_000u32 {
            table.insert(Pair(key, 0));
            if key > 1_000 {
                let per_entry = table.memory_bytes() as f64 / table.len() as f64 / size_of::<Pair>() as f64;
                assert!(per_entry < 1.31, "{per_entry} slots an entry with {key} of them");
            }
        }
        (0..90_000).for_each(|key| assert_eq!(table.remove(key, |_| true), 1));
        check(&table);
        assert!(table.memory_bytes() < 10_000 * size_of::<Pair>() * 9 / 4);
    }
}
