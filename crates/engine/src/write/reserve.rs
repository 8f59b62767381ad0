//! Reservations: exclusive access of one writer to keys.
//!
//! Deletes, conditional writes and large values read existing records before they write, or are written to another lane.
//! Meanwhile other writers of the key wait. Reservations are keyed by the stored hash, by which the index distinguishes keys,
//! so that two keys sharing an index slot are not changed at the same time either.
//!
//! A writer that cannot have its keys at once enters a wait queue, and no later request for one of these keys overtakes it.
//! Therefore every request is granted eventually, including one for all keys, and since each waits only for earlier ones there
//! is no deadlock. Plain puts need no exclusive access, but they queue as well where others wait: they share their turn.
//!
//! 1. A request counts the conflicting earlier requests that have not ended, and each of these records it as a follower.
//! 2. When a request ends, it decrements the count of its followers. A request with count zero is granted, and notified.
//! 3. A request abandoned while waiting keeps its place until its turn comes, and ends then, because its followers rely on it
//!    to be behind the requests before it.

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_index::Pointer;
use esker_seeded_bugs::{Bug, planted};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::base::completion::{Completion, Waiter};
use crate::base::fixed_hash::FixedState;
use crate::catalog::appended::Ephemeral;
use crate::write::append_points::AppendPoint;

/// The reservations that are held and waited for. New requests are made only under the lane's lock.
#[derive(Default)]
pub(crate) struct Reservations {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    /// Requests that have not ended, in order of arrival.
    requests: BTreeMap<u64, Request>,
    /// Newest requests for each key.
    last: HashMap<u64, Last, FixedState>,
    /// Newest request for all keys.
    last_of_all: Option<u64>,
    next: u64,
    /// Number of requests that were given up and still wait.
    given_up: usize,
    /// Newest record of a key, if it was appended under a reservation that has ended and is not published yet.
    unpublished: HashMap<u64, Unpublished, FixedState>,
    /// Sequence numbers drawn under reservations that are still held.
    drawn: BTreeSet<u64>,
}

struct Request {
    what: What,
    /// Number of requests that it waits for.
    waits_for: usize,
    followers: Vec<u64>,
    /// Opened when the request is granted.
    granted: Option<Completion>,
    given_up: bool,
}

enum What {
    Keys(Vec<u64>),
    /// Keys of plain puts.
    Shared(Vec<u64>),
    All,
}

/// The newest requests for a key.
#[derive(Default)]
struct Last {
    exclusive: Option<u64>,
    /// Shared requests since the exclusive one.
    shared: Vec<u64>,
}

/// A record that was appended and is not published yet. A writer that has reserved its key may read it and write records that
/// depend on it, in the same segment or a later one of the same append point, so that they cannot become durable before it.
#[derive(Clone)]
pub(crate) struct Unpublished {
    pub(crate) pointer: Pointer,
    pub(crate) sequence: u64,
    pub(crate) point: AppendPoint,
    /// Opens when the record is published.
    pub(crate) published: Waiter,
}

/// Records noted as unpublished; dropped when they are published.
pub(crate) struct Noted {
    queue: Arc<Mutex<Queue>>,
    records: Vec<(u64, u64)>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        for (key, sequence) in &self.records {
            if queue.unpublished.get(key).is_some_and(|newest| newest.sequence == *sequence) {
                queue.unpublished.remove(key);
            }
        }
    }
}

/// A place in the wait queue and, once granted, the keys. Dropping it releases both.
pub(crate) struct Reservation {
    queue: Arc<Mutex<Queue>>,
    number: u64,
    shared: bool,
    /// Sequence number drawn for the record that is written under it.
    drawn: Option<NonZeroU64>,
    /// True if the reservation ends when the records under it are appended: the keys may be read from there.
    pub(crate) ends_early: bool,
    /// Term of the group that the keys belong to when they were granted, in a replicated store.
    pub(crate) term: Option<u64>,
    /// Newest record read under it that is not published yet, and must be durable before the records written under it.
    /// Boxed: it is rare, and every future of a put has room for it.
    pub(crate) after: Option<Box<Unpublished>>,
    /// Keys that the batch under it creates and deletes. Their watches are notified when the batch is published, while the keys
    /// are still reserved.
    #[expect(clippy::box_collection, reason = "it is rare, and every future of a put has room for it")]
    ephemeral: Option<Box<Vec<Ephemeral>>>,
}

impl Reservation {
    /// Draws the next sequence number for the record that is written under this reservation. Until the reservation is released,
    /// which is when the record is published, [`Reservations::least_drawn`] includes the number.
    pub(crate) fn draw(&mut self, sequence: &AtomicU64) -> u64 {
        // Under the same lock, because otherwise a reader of the counter could find this number neither drawn nor published.
        let mut queue = self.queue.lock();
        let number = sequence.fetch_add(1, Ordering::AcqRel) + 1;
        queue.drawn.insert(number);
        debug_assert!(self.drawn.is_none(), "one record is written under a reservation that draws");
        self.drawn = NonZeroU64::new(number);
        number
    }

    /// Returns the keys that the batch under a reservation creates and deletes; none without a reservation.
    pub(crate) fn ephemeral_of(reservation: Option<&Reservation>) -> &[Ephemeral] {
        reservation.and_then(|reservation| reservation.ephemeral.as_deref()).map_or(&[], |keys| keys)
    }

    /// Adds the key of a record that the batch creates and deletes, if it is one.
    pub(crate) fn note_ephemeral(&mut self, key: Option<Ephemeral>) {
        if let Some(key) = key {
            self.ephemeral.get_or_insert_default().push(key);
        }
    }

    /// Returns true for a turn of plain puts, which others may share.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

/// A reservation, and the waiter for it; `None` if it is granted already.
pub(crate) type Reserved = (Reservation, Option<Waiter>);

impl Reservations {
    /// Returns the lowest sequence number drawn under a reservation that may not be published yet. Must be called after the
    /// counter was read.
    pub(crate) fn least_drawn(&self) -> Option<u64> {
        self.queue.lock().drawn.first().copied()
    }

    /// Returns the number of requests that were given up and still wait for their turn.
    pub(crate) fn given_up(&self) -> usize {
        self.queue.lock().given_up
    }

    /// Returns true if a plain put of one of the keys must wait for its turn.
    pub(crate) fn conflict(&self, keys: impl IntoIterator<Item = u64>) -> bool {
        let queue = self.queue.lock();
        let is_taken = |key: u64| queue.last.get(&key).is_some_and(|last| last.exclusive.is_some());
        !queue.requests.is_empty() && (queue.last_of_all.is_some() || keys.into_iter().any(is_taken))
    }

    /// Reserves all the keys given.
    pub(crate) fn take(&self, keys: Vec<u64>) -> Reserved {
        self.request(What::Keys(sorted(keys)))
    }

    /// Requests a turn for plain puts of the keys, shared with other plain puts.
    pub(crate) fn share(&self, keys: Vec<u64>) -> Reserved {
        self.request(What::Shared(sorted(keys)))
    }

    /// Reserves every key.
    pub(crate) fn take_all(&self) -> Reserved {
        self.request(What::All)
    }

    /// Reserves the keys if no writer has or awaits one of them.
    pub(crate) fn try_take(&self, keys: Vec<u64>) -> Option<Reservation> {
        let is_free = {
            let queue = self.queue.lock();
            queue.last_of_all.is_none() && !keys.iter().any(|key| queue.last.contains_key(key))
        };
        is_free.then(|| self.take(keys).0)
    }

    /// Reserves those of the keys that no writer has or awaits. Returns these keys, in order.
    pub(crate) fn take_free(&self, keys: Vec<u64>) -> (Reservation, Vec<u64>) {
        let mut keys = sorted(keys);
        {
            let queue = self.queue.lock();
            keys.retain(|key| queue.last_of_all.is_none() && !queue.last.contains_key(key));
        }
        (self.take(keys.clone()).0, keys)
    }

    /// Returns the unpublished records of reserved keys; `None` unless every key has one.
    pub(crate) fn unpublished(&self, keys: &[u64]) -> Option<Vec<Unpublished>> {
        let queue = self.queue.lock();
        keys.iter().map(|key| queue.unpublished.get(key).cloned()).collect()
    }

    /// Notes records, by key, that were appended under a reservation of these keys that is about to end.
    pub(crate) fn note(&self, records: impl Iterator<Item = (u64, Unpublished)>) -> Noted {
        let mut queue = self.queue.lock();
        let note = |(key, record): (u64, Unpublished)| {
            let sequence = record.sequence;
            queue.unpublished.insert(key, record);
            (key, sequence)
        };
        Noted { queue: self.queue.clone(), records: records.map(note).collect() }
    }

    /// Drops the notes of keys that are written without a reservation, because those records are not the newest any more.
    pub(crate) fn forget_unpublished(&self, keys: impl IntoIterator<Item = u64>) {
        let mut queue = self.queue.lock();
        if !queue.unpublished.is_empty() && !planted(Bug::UnpublishedNotForgotten) {
            keys.into_iter().for_each(|key| drop(queue.unpublished.remove(&key)));
        }
    }

    fn request(&self, what: What) -> Reserved {
        let shared = matches!(what, What::Shared(_));
        let (number, granted) = self.queue.lock().add(what);
        let queue = self.queue.clone();
        let (ephemeral, ends_early) = (None, false);
        let reservation = Reservation {
            queue,
            number,
            shared,
            drawn: None,
            ends_early,
            term: None,
            after: None,
            ephemeral,
        };
        (reservation, granted)
    }
}

fn sorted(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Queue {
    /// Step 1.
    fn add(&mut self, what: What) -> (u64, Option<Waiter>) {
        let number = self.next;
        self.next += 1;
        let mut before: Vec<u64> = Vec::new();
        match &what {
            What::All => {
                before.extend(self.requests.keys());
                self.last_of_all = Some(number);
            }
            What::Keys(keys) => {
                before.extend(self.last_of_all);
                for &key in keys {
                    let last = self.last.entry(key).or_default();
                    before.extend(last.exclusive.replace(number));
                    if !planted(Bug::ExclusivePastShared) {
                        before.append(&mut last.shared);
                    }
                }
            }
            What::Shared(keys) => {
                before.extend(self.last_of_all.filter(|_| !planted(Bug::SharedPastAll)));
                for &key in keys {
                    let last = self.last.entry(key).or_default();
                    before.extend(last.exclusive.filter(|_| !planted(Bug::SharedPastExclusive)));
                    last.shared.push(number);
                }
            }
        }
        for earlier in &before {
            let earlier = self
                .requests
                .get_mut(earlier)
                .expect("a request that has ended is not the newest of any key");
            earlier.followers.push(number);
        }
        let granted = (!before.is_empty()).then(Completion::new);
        let waiter = granted.as_ref().map(Completion::waiter);
        let (waits_for, followers) = (before.len(), Vec::new());
        self.requests.insert(number, Request { what, waits_for, followers, granted, given_up: false });
        (number, waiter)
    }

    /// Ends a request whose reservation was dropped. Returns the completions of requests that are granted by it.
    fn give_back(&mut self, number: u64) -> Vec<Completion> {
        let request = self.requests.get_mut(&number).expect("it is over once");
        if request.waits_for > 0 {
            // Step 3.
            request.given_up = true;
            self.given_up += 1;
            return Vec::new();
        }
        let mut granted = Vec::new();
        let mut over = vec![number];
        while let Some(number) = over.pop() {
            let request = self.requests.remove(&number).expect("it is over once");
            self.forget(number, &request.what);
            // Step 2.
            for follower in request.followers {
                let next = self.requests.get_mut(&follower).expect("a follower is still queued");
                next.waits_for -= 1;
                match next.waits_for {
                    0 if next.given_up => {
                        self.given_up -= 1;
                        over.push(follower);
                    }
                    0 => granted.extend(next.granted.take()),
                    _ => {}
                }
            }
        }
        granted
    }

    fn forget(&mut self, number: u64, what: &What) {
        self.last_of_all.take_if(|last| *last == number);
        let (What::Keys(keys) | What::Shared(keys)) = what else { return };
        for key in keys {
            let Some(last) = self.last.get_mut(key) else { continue };
            last.exclusive.take_if(|exclusive| *exclusive == number);
            last.shared.retain(|shared| *shared != number);
            if last.exclusive.is_none() && last.shared.is_empty() {
                self.last.remove(key);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        if let Some(drawn) = self.drawn {
            queue.drawn.remove(&drawn.get());
        }
        let granted = queue.give_back(self.number);
        drop(queue);
        granted.into_iter().for_each(|completion| completion.open(Ok(())));
    }
}
