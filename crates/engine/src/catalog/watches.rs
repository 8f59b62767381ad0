//! Watched keys: detects whether a put of a key became visible since the watch began.
//!
//! A version detects a change of a key that exists, but not of one that is absent at both reads: it may have been put
//! and deleted between them, even within one batch. The publisher makes a put visible first and checks for watches
//! then; the watching caller registers first and reads the key then. So at least one of the two sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_index::{KeyHash, Keyspace};
use esker_seeded_bugs::{Bug, planted};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::base::fixed_hash::FixedState;
use crate::base::word::Word;

/// The watched keys.
#[derive(Default)]
pub(crate) struct Watches<W: Word = AtomicU64> {
    /// Number of watched keys, readable by publishers without the lock.
    keys: W,
    /// By key, the flag that is set when a put of the key is published. The key is then removed from the list: a later
    /// watch of it gets another flag.
    watched: Mutex<HashMap<KeyHash, Arc<AtomicBool>, FixedState>>,
}

/// A watch of a key; dropping it ends the watch. Made by [`Store::watch`](crate::Store::watch).
pub struct KeyWatch(Watch);

/// One watch.
pub(crate) struct Watch<W: Word = AtomicU64> {
    watches: Arc<Watches<W>>,
    hash: KeyHash,
    written: Arc<AtomicBool>,
}

impl<W: Word> Watches<W> {
    /// Starts a watch of a key.
    pub(crate) fn watch(self: &Arc<Self>, hash: KeyHash) -> Watch<W> {
        let written = {
            let mut watched = self.watched.lock();
            let written = watched.entry(hash).or_default().clone();
            self.keys.store(watched.len() as u64, Ordering::Relaxed);
            written
        };
        W::fence(Ordering::SeqCst);
        Watch { watches: self.clone(), hash, written }
    }

    /// Notifies the watches of a key: a put of it is visible, or a batch that put and deleted it.
    pub(crate) fn published(&self, hash: &KeyHash) {
        W::fence(Ordering::SeqCst);
        if self.keys.load(Ordering::Relaxed) == 0 || planted(Bug::WatchNotTold) {
            return;
        }
        let mut watched = self.watched.lock();
        if let Some(written) = watched.remove(hash) {
            written.store(true, Ordering::Release);
            self.keys.store(watched.len() as u64, Ordering::Relaxed);
        }
    }

    /// Two databases exchange their keyspaces, by `swap`. For a key that exists in either of them, the swap counts as a
    /// put. Watches of other keys move to the keyspace that their database has then.
    ///
    /// The list is locked during the swap. A caller that read its database's keyspace before the swap is therefore
    /// listed already and moves along, or finds another keyspace when it checks again; a caller that read it after the
    /// swap is not moved back.
    pub(crate) fn swapped(
        &self,
        keyspaces: [Keyspace; 2],
        swap: impl FnOnce(),
        is_there: impl Fn(&KeyHash) -> bool,
    ) {
        let mut watched = self.watched.lock();
        swap();
        let moved: Vec<_> = watched.extract_if(|hash, _| keyspaces.contains(&hash.keyspace())).collect();
        for (hash, written) in moved {
            if keyspaces.iter().any(|keyspace| is_there(&hash.in_keyspace(*keyspace))) {
                written.store(true, Ordering::Release);
                continue;
            }
            let stays = planted(Bug::SwapLeavesWatches);
            let [first, second] = if stays { [hash.keyspace(); 2] } else { keyspaces };
            watched.insert(hash.in_keyspace(if hash.keyspace() == first { second } else { first }), written);
        }
        self.keys.store(watched.len() as u64, Ordering::Relaxed);
    }
}

impl<W: Word> Watch<W> {
    fn was_put(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

impl<W: Word> Drop for Watch<W> {
    fn drop(&mut self) {
        let mut watched = self.watches.watched.lock();
        // Two references: the list's and this watch's.
        let is_last = |written: &Arc<AtomicBool>| {
            Arc::ptr_eq(written, &self.written)
                && (Arc::strong_count(written) == 2 || planted(Bug::WatchEndsWithFirst))
        };
        if self.was_put() {
            return;
        }
        // If the database has exchanged its keyspace since, the key is listed under the other one.
        let elsewhere = Keyspace::all().map(|keyspace| self.hash.in_keyspace(keyspace));
        let mut hashes = std::iter::once(self.hash).chain(elsewhere);
        if let Some(hash) = hashes.find(|hash| watched.get(hash).is_some_and(is_last)) {
            watched.remove(&hash);
            self.watches.keys.store(watched.len() as u64, Ordering::Relaxed);
        }
    }
}

impl KeyWatch {
    pub(crate) fn new(watch: Watch) -> KeyWatch {
        KeyWatch(watch)
    }

    /// Returns true if a put of the key became visible since the watch began, or a batch that put the key and then deleted it.
    /// Deletes and expiry alone do not count.
    pub fn was_put(&self) -> bool {
        self.0.was_put()
    }
}

impl std::fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyWatch").field("was_put", &self.was_put()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::base::word::{ModelWord, check_interleavings};

    const KEY: KeyHash = KeyHash { slot: 1, check: 2 };
    const OTHER: KeyHash = KeyHash { slot: 1, check: 3 };

    #[test]
    fn a_watch_is_told_of_puts_of_its_key_while_it_lasts() {
        let watches = Arc::new(Watches::<AtomicU64>::default());
        let (first, other) = (watches.watch(KEY), watches.watch(OTHER));
        let again = watches.watch(KEY);
        watches.published(&KEY);
        let later = watches.watch(KEY);
        assert!(first.was_put() && again.was_put(), "all who watched are told");
        assert!(!other.was_put() && !later.was_put(), "nobody else is");
        drop((first, again));
        watches.published(&KEY);
        assert!(later.was_put(), "the end of other watches does not end this one");
        drop((other, later));
        assert!(watches.watched.lock().is_empty(), "what nobody watches takes no memory");
    }

    #[test]
    fn a_key_is_watched_until_the_last_watch_ends() {
        let watches = Arc::new(Watches::<AtomicU64>::default());
        let (first, second) = (watches.watch(KEY), watches.watch(KEY));
        drop(first);
        watches.published(&KEY);
        assert!(second.was_put());
    }

    #[test]
    fn a_swap_counts_as_a_put_of_what_is_there_and_takes_the_other_watches_along() {
        let [two, three] = [2, 3].map(|number| Keyspace::new(number).expect("one of sixteen"));
        let [there, absent] = [0x1000, 0x2000].map(|check| KeyHash { slot: 1, check });
        let watches = Arc::new(Watches::<AtomicU64>::default());
        let watch = |hash: KeyHash, keyspace| watches.watch(hash.in_keyspace(keyspace));
        let (of_two, of_three) = (watch(there, two), watch(there, three));
        let (moves, stays, other) =
            (watch(absent, two), watch(absent, Keyspace::FIRST), watch(absent, three));
        let swap = || {
            assert!(watches.watched.is_locked(), "somebody could get on the list before it is gone through")
        };
        watches.swapped([two, three], swap, |hash| *hash == there.in_keyspace(three));
        assert!(of_two.was_put() && of_three.was_put(), "one of both databases has it");
        assert!(!moves.was_put() && !stays.was_put() && !other.was_put());
        watches.published(&absent.in_keyspace(three));
        assert!(moves.was_put() && !other.was_put(), "its database has that keyspace now");
        drop((moves, stays, other, of_two, of_three));
        assert!(watches.watched.lock().is_empty(), "what nobody watches takes no memory");
    }

    /// In every interleaving that the memory model allows: a reader that finds a key absent is notified of a put of it.
    #[test]
    fn in_every_interleaving_a_put_is_seen_by_the_look_or_by_the_watch() {
        check_interleavings(|| {
            let watches = Arc::new(Watches::<ModelWord>::default());
            let key = Arc::new(ModelWord::default());
            let (publishing, index) = (watches.clone(), key.clone());
            let writer = loom::thread::spawn(move || {
                index.store(1, Ordering::Release);
                publishing.published(&KEY);
            });
            let watch = watches.watch(KEY);
            let is_there = key.load(Ordering::Acquire) == 1;
            writer.join().expect("it does not panic");
            assert!(is_there || watch.was_put(), "a put was missed by both");
        });
    }
}
