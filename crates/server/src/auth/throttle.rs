//! Throttle for wrong passwords. A user has a budget of ten wrong passwords per address, and regains one every ten seconds; all
//! users of an address together have a hundred, and regain one every second. When a budget is used up, logins are refused without
//! a check, even with the right password, because otherwise guessing would continue at full speed.
//!
//! Measures against locking out honest clients:
//! - A refused login is not counted, so that a block ends even if a client keeps trying.
//! - Repeating the same wrong password gains a guesser nothing, and is typical of a client with an old password, which may do so
//!   for hours. It is refused without a check, and is not counted.
//! - A user whose budget is used up is blocked at that address only, and the other users there are not, unless the budget of the
//!   address is used up too.
//! - The number of entries is limited. The entry with the fewest wrong passwords is dropped first, and no other client is blocked
//!   in its place.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::base::address::Origin;
use crate::base::pool::Source;

/// Maximum number of entries: users at addresses, and addresses.
const ENTRIES_MAX: usize = 8192;

/// A login, with user and password identified by keyed marks of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) from: Origin,
    pub(super) user: u64,
    /// Mark of the password and of the hashes it is checked against, so that a wrong password can become right.
    pub(super) password: u64,
}

/// Decision on a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Check the password.
    Check,
    /// The password is known to be wrong.
    KnownWrong,
    /// There were too many wrong passwords.
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    origin: Origin,
    /// `None`: all users together.
    user: Option<u64>,
}

impl Key {
    fn of(attempt: Attempt) -> [Key; 2] {
        [Some(attempt.user), None].map(|user| Key { origin: attempt.from, user })
    }

    /// Returns the number of wrong passwords allowed in a row.
    fn burst(&self) -> f64 {
        if self.user.is_some() { 10.0 } else { 100.0 }
    }

    /// Returns the time to regain one wrong password.
    fn forgiven(&self) -> Duration {
        Duration::from_secs(if self.user.is_some() { 10 } else { 1 })
    }
}

#[derive(Debug)]
struct Bucket {
    spent: f64,
    at: Instant,
    /// Marks of the last wrong passwords.
    wrong: Vec<u64>,
}

impl Bucket {
    fn spent_at(&self, key: &Key, now: Instant) -> f64 {
        (self.spent - now.duration_since(self.at).as_secs_f64() / key.forgiven().as_secs_f64()).max(0.0)
    }

    fn is_spent_at(&self, key: &Key, now: Instant) -> bool {
        self.spent_at(key, now) > key.burst() - 1.0
    }
}

/// Time for which a block stays under suspicion after a wrong password.
const SUSPECT_FOR: Duration = Duration::from_secs(600);

/// Address blocks by the time of their last wrong password that was checked. Their logins come after those of other blocks.
#[derive(Debug, Default)]
pub(super) struct Suspects(Mutex<HashMap<Source, Instant>>);

impl Suspects {
    /// Returns the source for a block's logins.
    pub(super) fn source(&self, block: Source, now: Instant) -> Source {
        let suspects = self.0.lock().expect("the lock is never poisoned: no code panics while holding it");
        let is_suspect = suspects.get(&block).is_some_and(|at| now.duration_since(*at) < SUSPECT_FOR);
        if is_suspect { block.suspect() } else { block }
    }

    /// Records a wrong password.
    pub(super) fn failed(&self, block: Source, now: Instant) {
        let mut suspects =
            self.0.lock().expect("the lock is never poisoned: no code panics while holding it");
        if suspects.len() >= ENTRIES_MAX && !suspects.contains_key(&block) {
            suspects.retain(|_, at| now.duration_since(*at) < SUSPECT_FOR);
        }
        // Beyond the limit some blocks are dropped: suspicion only delays a block's turn.
        if suspects.len() >= ENTRIES_MAX && !suspects.contains_key(&block) {
            let forgotten: Vec<_> = suspects.keys().take(ENTRIES_MAX / 16).copied().collect();
            for block in forgotten {
                suspects.remove(&block);
            }
        }
        suspects.insert(block, now);
    }
}

/// Wrong passwords by address and user.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<Key, Bucket>>);

impl Throttle {
    /// Decides whether to check a password.
    pub(super) fn look(&self, attempt: Attempt) -> Verdict {
        self.look_at(attempt, Instant::now())
    }

    /// Records a wrong password that was checked. Returns true if it used up the budget.
    pub(super) fn failed(&self, attempt: Attempt) -> bool {
        self.failed_at(attempt, Instant::now())
    }

    fn look_at(&self, attempt: Attempt, now: Instant) -> Verdict {
        let buckets = self.0.lock().expect("the lock is never poisoned: no code panics while holding it");
        let found = Key::of(attempt).map(|key| buckets.get(&key).map(|bucket| (key, bucket)));
        if found[0].is_some_and(|(_, bucket)| bucket.wrong.contains(&attempt.password)) {
            return Verdict::KnownWrong;
        }
        let blocked = found.into_iter().flatten().any(|(key, bucket)| bucket.is_spent_at(&key, now));
        if blocked { Verdict::Blocked } else { Verdict::Check }
    }

    fn failed_at(&self, attempt: Attempt, now: Instant) -> bool {
        let mut buckets = self.0.lock().expect("the lock is never poisoned: no code panics while holding it");
        let mut spent_last = false;
        for key in Key::of(attempt) {
            make_room(&mut buckets, &key, now);
            let fresh = || Bucket { spent: 0.0, at: now, wrong: Vec::new() };
            let bucket = buckets.entry(key).or_insert_with(fresh);
            // The same password may have been checked twice concurrently.
            if bucket.wrong.contains(&attempt.password) {
                return false;
            }
            let was_spent = bucket.is_spent_at(&key, now);
            bucket.spent = (bucket.spent_at(&key, now) + 1.0).min(key.burst());
            bucket.at = now;
            spent_last |= !was_spent && bucket.is_spent_at(&key, now);
            if key.user.is_some() {
                if bucket.wrong.len() >= key.burst() as usize {
                    bucket.wrong.remove(0);
                }
                bucket.wrong.push(attempt.password);
            }
        }
        spent_last
    }
}

/// Makes room for an entry: removes those with nothing spent, and if necessary those with the least spent.
fn make_room(buckets: &mut HashMap<Key, Bucket>, key: &Key, now: Instant) {
    if buckets.len() < ENTRIES_MAX || buckets.contains_key(key) {
        return;
    }
    buckets.retain(|key, bucket| bucket.spent_at(key, now) > 0.0);
    if buckets.len() < ENTRIES_MAX {
        return;
    }
    // Several at once, so that not every new entry costs a scan of all.
    let share = |key: &Key, bucket: &Bucket| bucket.spent_at(key, now) / key.burst();
    let mut shares: Vec<_> = buckets.iter().map(|(key, bucket)| (share(key, bucket), *key)).collect();
    let (least, ..) = shares.select_nth_unstable_by(ENTRIES_MAX / 16, |one, other| one.0.total_cmp(&other.0));
    for (_, key) in least {
        buckets.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn attempt(from: [u8; 4], user: u64, password: u64) -> Attempt {
        Attempt { from: Origin::of(from.into()), user, password }
    }

    /// Ten wrong passwords of one user.
    fn guess(throttle: &Throttle, from: [u8; 4], user: u64, now: Instant) {
        for password in 1..=10 {
            let one = attempt(from, user, password);
            assert_eq!(throttle.look_at(one, now), Verdict::Check, "after {password} failures");
            assert_eq!(throttle.failed_at(one, now), password == 10);
        }
    }

    #[test]
    fn ten_wrong_ones_block_a_user_at_an_address_for_a_while() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        guess(&throttle, here, 1, now);
        let look = |from, user, now| throttle.look_at(attempt(from, user, 99), now);
        assert_eq!(look(here, 1, now), Verdict::Blocked);
        assert_eq!(look(there, 1, now), Verdict::Check, "the user at another address");
        assert_eq!(look(here, 2, now), Verdict::Check, "another user at the address");
        assert_eq!(look(here, 1, now + 5 * SECOND), Verdict::Blocked);
        assert_eq!(look(here, 1, now + 10 * SECOND), Verdict::Check);
    }

    #[test]
    fn a_refused_login_does_not_make_the_block_longer() {
        let throttle = Throttle::default();
        let now = Instant::now();
        guess(&throttle, [10, 0, 0, 1], 1, now);
        // However often it is tried meanwhile.
        for tenth in 0..100 {
            let one = attempt([10, 0, 0, 1], 1, 100 + tenth);
            assert_eq!(throttle.look_at(one, now + SECOND / 10 * tenth as u32), Verdict::Blocked);
        }
        assert_eq!(throttle.look_at(attempt([10, 0, 0, 1], 1, 99), now + 10 * SECOND), Verdict::Check);
    }

    #[test]
    fn a_wrong_password_is_counted_once() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let old = attempt([10, 0, 0, 1], 1, 7);
        assert_eq!(throttle.look_at(old, now), Verdict::Check);
        for _ in 0..100 {
            // Several logins with it may have been checked before the first one failed.
            assert!(!throttle.failed_at(old, now));
            assert_eq!(throttle.look_at(old, now), Verdict::KnownWrong);
        }
        assert_eq!(throttle.look_at(attempt([10, 0, 0, 1], 1, 8), now), Verdict::Check);
    }

    #[test]
    fn guessing_users_too_blocks_the_address() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for user in 0..100 {
            let one = attempt([10, 0, 0, 1], user, user);
            assert_eq!(throttle.look_at(one, now), Verdict::Check);
            assert_eq!(throttle.failed_at(one, now), user == 99);
        }
        assert_eq!(throttle.look_at(attempt([10, 0, 0, 1], 500, 1), now), Verdict::Blocked);
        assert_eq!(throttle.look_at(attempt([10, 0, 0, 1], 500, 1), now + SECOND), Verdict::Check);
        assert_eq!(throttle.look_at(attempt([10, 0, 0, 2], 500, 1), now), Verdict::Check);
    }

    #[test]
    fn many_addresses_take_little_memory_and_block_nobody_else() {
        let throttle = Throttle::default();
        let now = Instant::now();
        guess(&throttle, [200, 0, 0, 1], 1, now);
        for n in 0..20_000u32 {
            throttle.failed_at(attempt(n.to_be_bytes(), 1, 1), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ENTRIES_MAX);
        assert_eq!(throttle.look_at(attempt([200, 0, 0, 2], 1, 9), now), Verdict::Check);
        assert_eq!(
            throttle.look_at(attempt([200, 0, 0, 1], 1, 99), now),
            Verdict::Blocked,
            "it was forgotten"
        );
        for n in 0..1000u32 {
            throttle.failed_at(attempt(n.to_be_bytes(), 1, 1), now + 1000 * SECOND);
        }
        assert!(throttle.0.lock().unwrap().len() <= 2000, "those that are forgiven stay");
    }
}
