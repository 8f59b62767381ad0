//! Scripts by their digests. Those that EVAL ran leave in the order in which they were last used; those that were loaded stay.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;

/// The digest of a script, in hexadecimal.
pub(crate) type Sha = [u8; 40];

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sha: Sha,
    pub(crate) body: Bytes,
    /// Whether it says what it does in its first line.
    pub(crate) has_flags: bool,
    /// Whether it may not write.
    pub(crate) is_read_only: bool,
    /// Whether it took long the last time.
    pub(crate) is_long: AtomicBool,
}

struct Place {
    script: Arc<Script>,
    /// When it was used; none if it stays.
    used: Option<u64>,
}

/// Scripts at most.
const COUNT_MAX: usize = 4096;

/// What a script takes beside its text.
const PLACE_BYTES: usize = 384;

/// See the module.
pub(crate) struct Cache {
    places: HashMap<Sha, Place>,
    /// Those that may leave, by when they were used.
    leaving: BTreeMap<u64, Sha>,
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache { places: HashMap::new(), leaving: BTreeMap::new(), clock: 0, bytes: 0, bytes_max }
    }

    /// How many scripts there are, and what they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.places.len(), self.bytes)
    }

    /// The script of a digest, which counts as a use.
    pub(crate) fn get(&mut self, sha: &Sha) -> Option<Arc<Script>> {
        let place = self.places.get_mut(sha)?;
        if let Some(used) = place.used {
            self.leaving.remove(&used);
            self.clock += 1;
            self.leaving.insert(self.clock, *sha);
            place.used = Some(self.clock);
        }
        Some(place.script.clone())
    }

    pub(crate) fn has(&self, sha: &Sha) -> bool {
        self.places.contains_key(sha)
    }

    /// Keeps a script. False if there is no room, which is never made by scripts that stay.
    pub(crate) fn keep(&mut self, script: Arc<Script>, stays: bool) -> bool {
        let (sha, bytes) = (script.sha, script.body.len() + PLACE_BYTES);
        self.remove(&sha);
        while self.bytes + bytes > self.bytes_max || self.places.len() >= COUNT_MAX {
            let Some((_, oldest)) = self.leaving.pop_first() else { return false };
            self.remove(&oldest);
        }
        self.clock += 1;
        let used = (!stays).then_some(self.clock);
        if let Some(used) = used {
            self.leaving.insert(used, sha);
        }
        self.bytes += bytes;
        self.places.insert(sha, Place { script, used });
        true
    }

    fn remove(&mut self, sha: &Sha) {
        if let Some(Place { script, used }) = self.places.remove(sha) {
            self.bytes -= script.body.len() + PLACE_BYTES;
            if let Some(used) = used {
                self.leaving.remove(&used);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.places, self.leaving, self.bytes) = (HashMap::new(), BTreeMap::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(number: u8, length: usize) -> Arc<Script> {
        Arc::new(Script {
            sha: [number; 40],
            body: vec![0; length].into(),
            has_flags: false,
            is_read_only: false,
            is_long: AtomicBool::new(false),
        })
    }

    #[test]
    fn what_was_used_last_stays_longest_and_what_was_loaded_for_good() {
        let mut cache = Cache::new(3 * (1000 + PLACE_BYTES));
        for number in 0..3 {
            assert!(cache.keep(script(number, 1000), number == 1));
        }
        assert!(cache.get(&[0; 40]).is_some());
        assert!(cache.keep(script(3, 1000), false));
        let there = |cache: &Cache| [0, 1, 2, 3].map(|number| cache.has(&[number; 40]));
        assert_eq!(there(&cache), [true, true, false, true]);
        assert!(!cache.keep(script(4, 3000), false), "one that stays makes no room");
        assert_eq!(there(&cache), [false, true, false, false]);
        assert_eq!(cache.size(), (1, 1000 + PLACE_BYTES));
        cache.clear();
        assert_eq!(cache.size(), (0, 0));
    }
}
