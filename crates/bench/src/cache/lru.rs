//! The interface of an eviction rule, and exact LRU.

/// A cache of records of equal size.
pub(super) trait Cache {
    /// Requests a key, and puts it if it is absent. Returns true if it was present.
    fn ask(&mut self, key: u32) -> bool;

    /// Returns the number of records copied to keep them.
    fn copies(&self) -> u64 {
        0
    }
}

const NOBODY: u32 = u32::MAX;

/// A list of keys with removal at any position, which is an exact LRU.
pub(super) struct Lru {
    /// For each key the next more recent one, and the next less recent one.
    later: Vec<u32>,
    earlier: Vec<u32>,
    is_there: Vec<bool>,
    newest: u32,
    oldest: u32,
    len: usize,
    capacity: usize,
}

impl Lru {
    pub(super) fn new(keys: usize, capacity: usize) -> Lru {
        Lru {
            later: vec![NOBODY; keys],
            earlier: vec![NOBODY; keys],
            is_there: vec![false; keys],
            newest: NOBODY,
            oldest: NOBODY,
            len: 0,
            capacity,
        }
    }

    pub(super) fn has(&self, key: u32) -> bool {
        self.is_there[key as usize]
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Returns the oldest key, or the next one after `key`.
    pub(super) fn next(&self, key: Option<u32>) -> Option<u32> {
        let next = key.map_or(self.oldest, |key| self.later[key as usize]);
        (next != NOBODY).then_some(next)
    }

    pub(super) fn take_out(&mut self, key: u32) {
        let (later, earlier) = (self.later[key as usize], self.earlier[key as usize]);
        match later {
            NOBODY => self.newest = earlier,
            later => self.earlier[later as usize] = earlier,
        }
        match earlier {
            NOBODY => self.oldest = later,
            earlier => self.later[earlier as usize] = later,
        }
        self.is_there[key as usize] = false;
        self.len -= 1;
    }

    pub(super) fn put_in(&mut self, key: u32) {
        (self.later[key as usize], self.earlier[key as usize]) = (NOBODY, self.newest);
        match self.newest {
            NOBODY => self.oldest = key,
            newest => self.later[newest as usize] = key,
        }
        self.newest = key;
        self.is_there[key as usize] = true;
        self.len += 1;
    }
}

impl Cache for Lru {
    fn ask(&mut self, key: u32) -> bool {
        let is_there = self.has(key);
        if is_there {
            self.take_out(key);
        } else if self.is_full() {
            self.take_out(self.oldest);
        }
        self.put_in(key);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_asked_for_longest_ago_goes() {
        let mut lru = Lru::new(10, 3);
        let asked = [1, 2, 3, 1, 4, 2, 1, 3];
        let hits: Vec<bool> = asked.into_iter().map(|key| lru.ask(key)).collect();
        assert_eq!(hits, [false, false, false, true, false, false, true, false]);
        assert!(lru.is_full() && [1, 2, 3].into_iter().all(|key| lru.has(key)));
        assert_eq!((lru.next(None), lru.next(Some(2)), lru.next(Some(3))), (Some(2), Some(1), None));
    }
}
