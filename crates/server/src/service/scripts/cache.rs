//! Scripts by their digests. A new script evicts the least recently used script of EVAL; if there is none, that of
//! the user whose loaded scripts take most memory.

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
    /// True if its first line declares flags.
    pub(crate) has_flags: bool,
    /// True if it may not write.
    pub(crate) is_read_only: bool,
    /// True if its last run was long.
    pub(crate) is_long: AtomicBool,
}

struct CachedScript {
    script: Arc<Script>,
    /// Time of the last use, by the clock of the cache.
    used: u64,
    /// User that loaded the script; `None` if it came with EVAL.
    owner: Option<Arc<str>>,
}

/// Scripts of one owner, by time of last use.
#[derive(Default)]
struct Owned {
    scripts: BTreeMap<u64, Sha>,
    bytes: usize,
}

impl Owned {
    fn insert(&mut self, used: u64, sha: Sha, bytes: usize) {
        self.scripts.insert(used, sha);
        self.bytes += bytes;
    }

    fn remove(&mut self, used: u64, bytes: usize) {
        if self.scripts.remove(&used).is_some() {
            self.bytes -= bytes;
        }
    }
}

/// Maximum number of scripts.
const COUNT_MAX: usize = 4096;

/// Memory of a script beyond its text, in bytes.
const PLACE_BYTES: usize = 384;

/// See the module.
pub(crate) struct Cache {
    places: HashMap<Sha, CachedScript>,
    /// Scripts of EVAL (key `None`) and of each user. Users without a script have no entry.
    owned: HashMap<Option<Arc<str>>, Owned>,
    clock: u64,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache { places: HashMap::new(), owned: HashMap::new(), clock: 0, bytes: 0, bytes_max }
    }

    /// Returns the number of scripts and their memory in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.places.len(), self.bytes)
    }

    /// Returns the script of a digest, and counts as a use.
    pub(crate) fn get(&mut self, sha: &Sha) -> Option<Arc<Script>> {
        let place = self.places.get_mut(sha)?;
        self.clock += 1;
        if let Some(owned) = self.owned.get_mut(&place.owner) {
            owned.scripts.remove(&place.used);
            owned.scripts.insert(self.clock, *sha);
        }
        place.used = self.clock;
        Some(place.script.clone())
    }

    pub(crate) fn has(&self, sha: &Sha) -> bool {
        self.places.contains_key(sha)
    }

    /// Caches a script. With `owner`, it belongs to that user, unless another user loaded it before. Makes room by evicting the
    /// least recently used script: first those of EVAL, then those of the user whose scripts take most memory, so that no user
    /// can fill the cache for others. Returns false if the script is larger than the cache.
    pub(crate) fn keep(&mut self, script: Arc<Script>, owner: Option<&str>) -> bool {
        let (sha, bytes) = (script.sha, script.body.len() + PLACE_BYTES);
        if bytes > self.bytes_max {
            return false;
        }
        let before = self.remove(&sha).and_then(|place| place.owner);
        let owner = before.or_else(|| owner.map(Arc::from));
        while self.bytes + bytes > self.bytes_max || self.places.len() >= COUNT_MAX {
            let Some(oldest) = self.next_to_leave() else { return false };
            self.remove(&oldest);
        }
        self.clock += 1;
        self.owned.entry(owner.clone()).or_default().insert(self.clock, sha, bytes);
        self.bytes += bytes;
        self.places.insert(sha, CachedScript { script, used: self.clock, owner });
        true
    }

    fn next_to_leave(&self) -> Option<Sha> {
        let of_eval = self.owned.get(&None);
        let largest = || self.owned.values().max_by_key(|owned| owned.bytes);
        of_eval.or_else(largest)?.scripts.first_key_value().map(|(_, sha)| *sha)
    }

    fn remove(&mut self, sha: &Sha) -> Option<CachedScript> {
        let place = self.places.remove(sha)?;
        let bytes = place.script.body.len() + PLACE_BYTES;
        self.bytes -= bytes;
        if let Some(owned) = self.owned.get_mut(&place.owner) {
            owned.remove(place.used, bytes);
            if owned.scripts.is_empty() {
                self.owned.remove(&place.owner);
            }
        }
        Some(place)
    }

    pub(crate) fn clear(&mut self) {
        (self.places, self.owned, self.bytes) = (HashMap::new(), HashMap::new(), 0);
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

    fn kept(cache: &Cache, numbers: std::ops::Range<u8>) -> Vec<u8> {
        numbers.filter(|number| cache.has(&[*number; 40])).collect()
    }

    #[test]
    fn scripts_of_eval_leave_first_in_order_of_use() {
        let mut cache = Cache::new(3 * (1000 + PLACE_BYTES));
        for number in 0..3 {
            assert!(cache.keep(script(number, 1000), (number == 1).then_some("ann")));
        }
        assert!(cache.get(&[0; 40]).is_some());
        assert!(cache.keep(script(3, 1000), None));
        assert_eq!(kept(&cache, 0..4), [0, 1, 3]);
        assert!(cache.keep(script(4, 1000), Some("bob")) && cache.keep(script(5, 1000), Some("bob")));
        assert_eq!(kept(&cache, 0..6), [1, 4, 5]);
        assert!(!cache.keep(script(6, 5000), None), "it is larger than the cache");
        cache.clear();
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn a_user_who_loads_many_scripts_pushes_out_only_their_own() {
        let mut cache = Cache::new(4 * (1000 + PLACE_BYTES));
        assert!(cache.keep(script(0, 1000), Some("ann")));
        for number in 1..20 {
            assert!(cache.keep(script(number, 1000), Some("eve")));
        }
        assert_eq!(kept(&cache, 0..20), [0, 17, 18, 19]);
        // A script that another user loads again keeps its owner.
        assert!(cache.keep(script(0, 1000), Some("eve")));
        for number in 20..30 {
            assert!(cache.keep(script(number, 1000), Some("eve")));
        }
        assert!(cache.has(&[0; 40]));
        // Another user makes room at the cost of the largest owner.
        assert!(cache.keep(script(30, 1000), Some("bob")));
        assert_eq!(kept(&cache, 0..31), [0, 28, 29, 30]);
        assert_eq!(cache.size(), (4, 4 * (1000 + PLACE_BYTES)));
    }
}
