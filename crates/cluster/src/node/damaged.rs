//! The damage of a node that waits to be healed, and the figures about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of keys that wait. Others are found again by a read or the next pass of the scrub.
pub(super) const KEYS_MAX: usize = 10_000;
/// Pauses of a group between two searches: the first, and the longest. So damage that is found again and again is not searched
/// without end.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));

/// Longest pause after a search that was not complete, or found keys: it has work left.
const UNFINISHED: Duration = Duration::from_secs(40);
/// Shortest pause after a search, as a multiple of its duration: another node reads the beginnings of all records for it, again and
/// again while the damage of a group cannot be healed.
const PAUSE_TIMES: u32 = 9;

/// The search for the damaged keys of a group.
#[derive(Default)]
struct Search {
    /// Number of reports of damage without a key, and their number when the last complete search began.
    reports: u64,
    done: u64,
    not_before: Duration,
    pause: Duration,
}

/// Damaged records, and the figures about them.
#[derive(Default)]
pub(super) struct Healing {
    /// Groups and keys of the records.
    pub(super) waiting: Mutex<BTreeSet<(u8, Bytes)>>,
    pub(super) added: Notify,
    pub(super) healed: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Damages of records whose keys are not known.
    pub(super) unknown: AtomicU64,
    searches: Mutex<BTreeMap<u8, Search>>,
    pub(super) search_wanted: Notify,
    /// Complete searches.
    pub(super) searched: AtomicU64,
    /// Held while a leadership is handed over.
    pub(super) handing_over: tokio::sync::Mutex<()>,
}

impl Healing {
    pub(super) fn count(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Adds a record, unless it waits already. Returns false if too many wait.
    pub(super) fn add(&self, group: u8, key: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= KEYS_MAX {
            return false;
        }
        if waiting.insert((group, Bytes::copy_from_slice(key))) {
            self.added.notify_one();
        }
        true
    }

    /// Notes damage of a group that did not tell its key.
    pub(super) fn want_search(&self, group: u8) {
        self.searches.lock().entry(group).or_default().reports += 1;
        self.search_wanted.notify_one();
    }

    /// Returns a group whose damaged keys are to be searched now, and the number of reports that the search covers.
    pub(super) fn next_search(&self, now: Duration) -> Option<(u8, u64)> {
        let searches = self.searches.lock();
        let mut due =
            searches.iter().filter(|(_, search)| search.reports > search.done && search.not_before <= now);
        due.next().map(|(group, search)| (*group, search.reports))
    }

    /// Notes beginning and end of a search, which found all damaged keys if `covers` is given.
    pub(super) fn end_search(&self, group: u8, covers: Option<u64>, (began, now): (Duration, Duration)) {
        let mut searches = self.searches.lock();
        let search = searches.entry(group).or_default();
        search.done = covers.unwrap_or(search.done);
        let is_recent = now < search.not_before + PAUSES.1;
        search.pause = if is_recent { (search.pause * 2).clamp(PAUSES.0, PAUSES.1) } else { PAUSES.0 };
        if covers.is_none() {
            search.pause = search.pause.min(UNFINISHED);
        }
        search.not_before = now + search.pause.max((now - began) * PAUSE_TIMES);
    }

    /// Returns the groups whose damaged keys are not all known.
    pub(super) fn searched_groups(&self) -> BTreeSet<u8> {
        let searches = self.searches.lock();
        searches.iter().filter(|(_, search)| search.reports > search.done).map(|(group, _)| *group).collect()
    }

    /// Returns the groups that have damage which is not healed: bit *n* is group *n*.
    pub(super) fn damaged_groups(&self) -> u16 {
        let waiting = self.waiting.lock();
        let mut groups = self.searched_groups();
        groups.extend(waiting.iter().map(|(group, _)| *group));
        groups.into_iter().fold(0, |groups, group| groups | 1 << group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_that_returns_is_searched_ever_more_rarely() {
        let (healing, mut now, mut waits) = (Healing::default(), Duration::ZERO, Vec::new());
        for _ in 0..12 {
            healing.want_search(3);
            let began = now;
            while healing.next_search(now).is_none() {
                now += Duration::from_secs(1);
            }
            waits.push((now - began).as_secs());
            let (group, covers) = healing.next_search(now).unwrap();
            assert_eq!((group, healing.damaged_groups()), (3, 1 << 3));
            healing.end_search(group, Some(covers), (now, now));
            assert_eq!(healing.next_search(now + PAUSES.1), None, "it was found complete");
            assert_eq!(healing.damaged_groups(), 0);
        }
        assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
        // Damage that was reported during a search is searched again, and so is that of a search that failed.
        now += PAUSES.1 * 3;
        healing.want_search(3);
        let (_, covers) = healing.next_search(now).unwrap();
        healing.want_search(3);
        healing.end_search(3, Some(covers), (now, now));
        assert_eq!(healing.next_search(now), None);
        now += PAUSES.0;
        let (_, covers) = healing.next_search(now).expect("the pause begins anew after a long time");
        healing.end_search(3, None, (now, now));
        assert_eq!(healing.next_search(now + PAUSES.0 * 2), Some((3, covers)));
    }
    #[test]
    fn search_of_unhealed_group_takes_tenth_of_time() {
        let (healing, mut now, mut searched) = (Healing::default(), Duration::ZERO, Duration::ZERO);
        healing.want_search(3);
        for _ in 0..20 {
            while healing.next_search(now).is_none() {
                now += Duration::from_secs(1);
            }
            let took = Duration::from_secs(100);
            healing.end_search(3, None, (now, now + took));
            (now, searched) = (now + took, searched + took);
            assert_eq!(healing.damaged_groups(), 1 << 3);
        }
        while healing.next_search(now).is_none() {
            now += Duration::from_secs(1);
        }
        assert_eq!(searched * 10, now);
    }
}
