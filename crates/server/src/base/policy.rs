//! Redis' names for the behaviour of puts on a full store: `maxmemory-policy`.
//!
//! The store distinguishes evicting any key from evicting keys with an expiry, and evicts keys that were not read recently.
//! Several names therefore have the same effect, and `CONFIG GET` returns the name that was set.

use std::sync::atomic::{AtomicUsize, Ordering};

use esker_engine::WhenFull;

/// Policy names, in the order in which Redis lists them.
const POLICIES: [(&str, WhenFull); 8] = [
    ("volatile-lru", WhenFull::EvictExpiring),
    ("volatile-lfu", WhenFull::EvictExpiring),
    ("volatile-random", WhenFull::EvictExpiring),
    ("volatile-ttl", WhenFull::EvictExpiring),
    ("allkeys-lru", WhenFull::Evict),
    ("allkeys-lfu", WhenFull::Evict),
    ("allkeys-random", WhenFull::Evict),
    ("noeviction", WhenFull::Refuse),
];

/// Accepted values of the `when-full` setting: the store's own, and Redis' policy names.
pub const WHEN_FULL_WORDS: [&str; 11] = [
    "refuse",
    "evict",
    "evict-expiring",
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Returns the behaviour for one of [`WHEN_FULL_WORDS`], ignoring case; `None` for any other word.
pub fn when_full_of(word: &str) -> Option<WhenFull> {
    find(word).map(|at| POLICIES[at].1).or_else(|| word.parse().ok())
}

fn find(word: &str) -> Option<usize> {
    POLICIES.iter().position(|(known, _)| known.eq_ignore_ascii_case(word))
}

/// Returns true if the word is a Redis policy name.
pub(crate) fn is_word(word: &str) -> bool {
    find(word).is_some()
}

/// Returns the policy names for an error message.
pub(crate) fn words() -> String {
    POLICIES.map(|(word, _)| word).join(", ")
}

/// Index of the policy name that was set last.
#[derive(Debug)]
pub(crate) struct Policy(AtomicUsize);

impl Policy {
    /// Starts with the name from the configuration, if it is a Redis policy name.
    pub(crate) fn new(word: Option<&str>) -> Policy {
        Policy(AtomicUsize::new(word.and_then(find).unwrap_or(usize::MAX)))
    }

    /// Sets the name to report from now on and returns its behaviour; `None` if it is not a Redis policy name.
    pub(crate) fn set(&self, word: &str) -> Option<WhenFull> {
        let at = find(word)?;
        self.0.store(at, Ordering::Relaxed);
        Some(POLICIES[at].1)
    }

    /// Returns the policy name for the store's behaviour: the name that was set if it matches, else the first that does.
    pub(crate) fn word(&self, when_full: WhenFull) -> &'static str {
        let set = POLICIES.get(self.0.load(Ordering::Relaxed));
        let usual = || POLICIES.iter().find(|(_, means)| *means == when_full);
        let (word, _) = set
            .filter(|(_, means)| *means == when_full)
            .or_else(usual)
            .expect("every behaviour has a policy name");
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_words_map_to_when_full_and_back() {
        for word in WHEN_FULL_WORDS {
            let means = when_full_of(&word.to_uppercase()).expect(word);
            let policy = Policy::new(Some(word));
            assert_eq!(when_full_of(policy.word(means)), Some(means));
            if let Some(set) = policy.set(word) {
                assert_eq!((set, policy.word(means)), (means, word));
            }
        }
        let policy = Policy::new(Some("allkeys-lfu"));
        assert_eq!(policy.word(WhenFull::Evict), "allkeys-lfu");
        assert_eq!(policy.word(WhenFull::Refuse), "noeviction", "the store was told otherwise");
        assert_eq!((policy.word(WhenFull::EvictExpiring), when_full_of("lru")), ("volatile-lru", None));
        assert!(POLICIES.iter().all(|(word, _)| WHEN_FULL_WORDS.contains(word)));
    }
}
