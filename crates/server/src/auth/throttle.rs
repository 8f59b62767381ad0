//! Addresses that guess passwords: each has ten wrong ones to spend and gets one back every ten seconds. Who has none
//! left is refused without a look, the right password too, or else guessing would go on at full speed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::address::Origin;

/// Wrong passwords in a row.
const BURST: f64 = 10.0;

/// How long until one is forgiven.
const FORGIVEN: Duration = Duration::from_secs(10);

/// Addresses that are remembered; more share one entry.
const ADDRESSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    spent: f64,
    at: Instant,
}

impl Bucket {
    fn spent_at(&self, now: Instant) -> f64 {
        (self.spent - now.duration_since(self.at).as_secs_f64() / FORGIVEN.as_secs_f64()).max(0.0)
    }
}

/// Wrong passwords by address.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<Option<Origin>, Bucket>>);

impl Throttle {
    pub(super) fn is_blocked(&self, from: IpAddr) -> bool {
        self.is_blocked_at(from, Instant::now())
    }

    /// Notes a wrong password; true if the address has spent its last.
    pub(super) fn failed(&self, from: IpAddr) -> bool {
        self.failed_at(from, Instant::now())
    }

    fn is_blocked_at(&self, from: IpAddr, now: Instant) -> bool {
        let buckets = self.0.lock().expect("nobody panics with it");
        let bucket = match buckets.get(&Some(Origin::of(from))) {
            None if buckets.len() >= ADDRESSES_MAX => buckets.get(&None),
            found => found,
        };
        bucket.is_some_and(|bucket| bucket.spent_at(now) > BURST - 1.0)
    }

    fn failed_at(&self, from: IpAddr, now: Instant) -> bool {
        let mut buckets = self.0.lock().expect("nobody panics with it");
        let mut key = Some(Origin::of(from));
        if buckets.len() >= ADDRESSES_MAX && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| bucket.spent_at(now) > 0.0);
            if buckets.len() >= ADDRESSES_MAX {
                key = None;
            }
        }
        let bucket = buckets.entry(key).or_insert(Bucket { spent: 0.0, at: now });
        let before = bucket.spent_at(now);
        *bucket = Bucket { spent: (before + 1.0).min(BURST), at: now };
        before <= BURST - 1.0 && bucket.spent > BURST - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_wrong_ones_block_an_address_for_a_while() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for turn in 1..=10 {
            assert!(!throttle.is_blocked_at(one, now), "after {turn} failures");
            assert_eq!(throttle.failed_at(one, now), turn == 10);
        }
        assert!(throttle.is_blocked_at(one, now) && !throttle.is_blocked_at(other, now));
        assert!(throttle.is_blocked_at(one, now + FORGIVEN / 2));
        assert!(!throttle.is_blocked_at(one, now + FORGIVEN));
    }

    #[test]
    fn many_addresses_take_little_memory_and_are_still_bounded() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..20_000u32 {
            throttle.failed_at(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        assert!(
            throttle.is_blocked_at(IpAddr::from([200, 0, 0, 1]), now),
            "an address beyond those remembered"
        );
        assert!(!throttle.is_blocked_at(IpAddr::from([0, 0, 0, 1]), now));
        let later = now + 2 * FORGIVEN * BURST as u32;
        throttle.failed_at(IpAddr::from([200, 0, 0, 1]), later);
        assert_eq!(throttle.0.lock().unwrap().len(), 1, "those that are forgiven go");
    }
}
