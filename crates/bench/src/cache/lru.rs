//! An exact LRU of keys, to compare the store with.

const NOBODY: u32 = u32::MAX;

/// A doubly linked list of keys, newest to oldest, with constant-time look-up and removal.
pub(super) struct Lru {
    /// Of each key the one that was asked for later, and the one that was asked for earlier.
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

    /// Requests a key, and puts it if it is absent, in place of the oldest key of a full cache. Returns true if it was present.
    pub(super) fn ask(&mut self, key: u32) -> bool {
        let is_there = self.is_there[key as usize];
        if is_there {
            self.take_out(key);
        } else if self.len == self.capacity {
            self.take_out(self.oldest);
        }
        self.put_in(key);
        is_there
    }

    fn take_out(&mut self, key: u32) {
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

    fn put_in(&mut self, key: u32) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_read_key_is_evicted() {
        let mut lru = Lru::new(10, 3);
        let asked = [1, 2, 3, 1, 4, 2, 1, 3];
        let hits: Vec<bool> = asked.into_iter().map(|key| lru.ask(key)).collect();
        assert_eq!(hits, [false, false, false, true, false, false, true, false]);
        assert!(lru.len == 3 && [1, 2, 3].into_iter().all(|key| lru.is_there[key]));
        assert_eq!((lru.oldest, lru.newest), (2, 3));
    }
}
