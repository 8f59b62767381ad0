//! Redis' words for what becomes of a put when there is no room for it: `maxmemory-policy`.
//!
//! The store tells apart whether anything may be dropped, or only keys that expire, and drops what was not asked for of late.
//! So several words mean the same; the one that was set is the one that is answered.

use std::sync::atomic::{AtomicUsize, Ordering};

use esker_engine::WhenFull;

/// The words, in the order in which Redis lists them.
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

/// The words of a setting for what becomes of puts when the store is full: the store's own, and Redis'.
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

/// What one of [`WHEN_FULL_WORDS`] means; case does not matter. `None`: it is no such word.
pub fn when_full_of(word: &str) -> Option<WhenFull> {
    find(word).map(|at| POLICIES[at].1).or_else(|| word.parse().ok())
}

fn find(word: &str) -> Option<usize> {
    POLICIES.iter().position(|(known, _)| known.eq_ignore_ascii_case(word))
}

/// Whether it is one of Redis' words.
pub(crate) fn is_word(word: &str) -> bool {
    find(word).is_some()
}

/// The words, for a message.
pub(crate) fn words() -> String {
    POLICIES.map(|(word, _)| word).join(", ")
}

/// Which of the words was set last.
#[derive(Debug)]
pub(crate) struct Policy(AtomicUsize);

impl Policy {
    /// As somebody who started the server said it.
    pub(crate) fn new(word: Option<&str>) -> Policy {
        Policy(AtomicUsize::new(word.and_then(find).unwrap_or(usize::MAX)))
    }

    /// What a word means, which is the one to answer with from now on; `None`: it is none of Redis'.
    pub(crate) fn set(&self, word: &str) -> Option<WhenFull> {
        let at = find(word)?;
        self.0.store(at, Ordering::Relaxed);
        Some(POLICIES[at].1)
    }

    /// The word for what the store does.
    pub(crate) fn word(&self, when_full: WhenFull) -> &'static str {
        let set = POLICIES.get(self.0.load(Ordering::Relaxed));
        let usual = || POLICIES.iter().find(|(_, means)| *means == when_full);
        let (word, _) = set.filter(|(_, means)| *means == when_full).or_else(usual).expect("each has a word");
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_something_and_is_answered_with_while_it_does() {
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
