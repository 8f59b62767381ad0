//! Sampling of keys, to estimate the number with an expiry; see [`expiring`](super::expiring).

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use esker_engine::{Cursor, KeyEntry, Store};

use super::Service;
use super::expiring::Sample;

/// Number of keys in a sample.
const KEYS: usize = 256;

/// Maximum bytes of a page of keys, unless a single key is longer; and the memory per key beyond its bytes.
const KEY_BYTES: usize = 64 << 10;
const ENTRY_BYTES: usize = 256;

/// Maximum number of pages read for a sample, because keys may be long, or none may be left.
const PAGES_MAX: usize = 2 * KEYS;

/// Validity of a sample of many keys.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Samples each database, unless its last sample is still valid. Without memory or after an error, the last sample stays. `hold`
/// takes memory, and returns false if there is none.
pub(crate) async fn refresh(service: &Service, mut hold: impl FnMut(usize) -> bool) {
    for (database, store) in service.databases().iter().enumerate().filter(|(_, store)| !store.is_empty()) {
        refresh_one(database, store, service, &mut hold).await;
    }
}

async fn refresh_one(
    database: usize,
    store: &Store,
    service: &Service,
    hold: &mut impl FnMut(usize) -> bool,
) {
    let all = store.len() <= KEYS as u64;
    // A sample of few keys does not represent many keys added since.
    let is_good = |last: Sample| last.keys >= KEYS as u64 / 2 && last.taken.elapsed() < GOOD_FOR;
    if !all && service.expiring.last(database).is_some_and(is_good) {
        return;
    }
    let random = store.random_cursor(RandomState::new().hash_one(0));
    let mut cursor = Some(if all { Cursor::START } else { random });
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let Some(at) = cursor.filter(|_| all || found.len() < KEYS) else { break };
        let bytes = service.step_of_keys(store, at, KEYS, KEY_BYTES) + KEYS * ENTRY_BYTES;
        if !hold(bytes) {
            return;
        }
        let Ok(page) = store.scan_keys(at, KEYS, KEY_BYTES).await else { return };
        found.extend(page.keys.iter().map(|entry: &KeyEntry| entry.expires_at_ms));
        // Beyond the end, sampling continues at the beginning.
        cursor = page.next.or((!all).then_some(Cursor::START));
    }
    let now_ms = service.store.now_ms();
    let left = found.iter().flatten().map(|at| u128::from(at.saturating_sub(now_ms)));
    let (expiring, left) = (left.clone().count() as u64, left.sum::<u128>());
    let ttl_ms = left.checked_div(expiring.into()).unwrap_or(0) as u64;
    let sample = Sample { taken: Instant::now(), keys: found.len() as u64, expiring, ttl_ms };
    service.expiring.set(database, sample);
}
