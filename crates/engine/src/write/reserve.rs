//! Keys that one writer has to itself for a moment.
//!
//! Deletes, conditional writes and large values look at what is there before they write, or are written by another way
//! than the lane. While they do, other writers of the key wait. Reservations are keyed by what the index tells keys apart by,
//! so that two keys that share a slot are not changed at the same time either.
//!
//! Whoever cannot have its keys at once gets a place in the queue, and nobody who comes later and wants one of them
//! overtakes it: so everybody gets a turn, one who wants all keys too, and as each waits only for those before it, none waits
//! for itself. Plain puts need no key for themselves, but take a place as well where others wait: they share theirs.
//!
//! 1. A request counts the earlier ones that are in its way and not over, and each of these knows it as a follower.
//! 2. When a request is over, its followers count one less. Who is at zero has its keys, and is told.
//! 3. One that was given up while it waited keeps its place until its turn comes, and is over then: its followers count on
//!    it to be behind those before it.

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
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

/// The reservations that are held and waited for. New ones are made under the lane's lock only.
#[derive(Default)]
pub(crate) struct Reservations {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    /// Those that are not over, by when they came.
    requests: BTreeMap<u64, Request>,
    /// The last ones for each key.
    last: HashMap<u64, Last, FixedState>,
    /// The last one for all keys.
    last_of_all: Option<u64>,
    next: u64,
    /// The newest record of a key, where it was appended under a reservation that is over and is not published yet.
    unpublished: HashMap<u64, Unpublished, FixedState>,
    /// Sequence numbers that were drawn under a reservation which is still held.
    drawn: BTreeSet<u64>,
}

struct Request {
    what: What,
    /// How many are in its way.
    waits_for: usize,
    followers: Vec<u64>,
    /// Opened when it has its keys.
    granted: Option<Completion>,
    given_up: bool,
}

enum What {
    Keys(Vec<u64>),
    /// Of plain puts.
    Shared(Vec<u64>),
    All,
}

/// The newest requests for a key.
#[derive(Default)]
struct Last {
    exclusive: Option<u64>,
    /// Since then.
    shared: Vec<u64>,
}

/// A record that was appended and is not published yet. Whoever has its key reserved may read it and write what follows from
/// it, in the same segment or a later one of the same append point: so it cannot be durable before this one.
#[derive(Clone)]
pub(crate) struct Unpublished {
    pub(crate) pointer: Pointer,
    pub(crate) sequence: u64,
    pub(crate) point: AppendPoint,
    /// Opens when it is published.
    pub(crate) published: Waiter,
}

/// Records that were noted as unpublished; dropped when they are published.
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

/// A place in the queue, and the keys when it has come to the front; given back when dropped.
pub(crate) struct Reservation {
    queue: Arc<Mutex<Queue>>,
    number: u64,
    shared: bool,
    /// The sequence number that was drawn for what is written under it.
    drawn: Option<u64>,
    /// It ends when what is written under it was appended: the keys may be read from there.
    pub(crate) ends_early: bool,
    /// What was read under it is not published yet, and has to be durable before what is written.
    pub(crate) after: Option<Unpublished>,
    /// Keys that the batch which is written under it creates and deletes. Their watches are notified when the batch is
    /// published, while the keys are still reserved.
    #[expect(clippy::box_collection, reason = "it is rare, and every future of a put has room for it")]
    ephemeral: Option<Box<Vec<Ephemeral>>>,
}

impl Reservation {
    /// Draws the next sequence number for the record that is written under this reservation. Until it is given back, which
    /// is when the record is published, [`Reservations::least_drawn`] knows of it.
    pub(crate) fn draw(&mut self, sequence: &AtomicU64) -> u64 {
        // In one with the drawing, or else somebody could read the counter and find this number neither drawn nor published.
        let mut queue = self.queue.lock();
        let number = sequence.fetch_add(1, Ordering::AcqRel) + 1;
        queue.drawn.insert(number);
        debug_assert!(self.drawn.is_none(), "one record is written under a reservation that draws");
        self.drawn = Some(number);
        number
    }

    /// The keys that the batch creates and deletes which is written under a reservation, if there is one.
    pub(crate) fn ephemeral_of(reservation: Option<&Reservation>) -> &[Ephemeral] {
        reservation.and_then(|reservation| reservation.ephemeral.as_deref()).map_or(&[], |keys| keys)
    }

    /// Adds the key of a record that the batch creates and deletes, if it is one.
    pub(crate) fn note_ephemeral(&mut self, key: Option<Ephemeral>) {
        if let Some(key) = key {
            self.ephemeral.get_or_insert_default().push(key);
        }
    }

    /// Whether it is that of a plain put, which others may have too.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

/// A reservation, and where to wait until it holds; `None`: it does.
pub(crate) type Reserved = (Reservation, Option<Waiter>);

impl Reservations {
    /// The least sequence number that was drawn under a reservation and may not be published yet. Must be asked for after
    /// the counter was read.
    pub(crate) fn least_drawn(&self) -> Option<u64> {
        self.queue.lock().drawn.first().copied()
    }

    /// Whether a plain put of one of the keys has to wait for its turn.
    pub(crate) fn conflict(&self, keys: impl IntoIterator<Item = u64>) -> bool {
        let queue = self.queue.lock();
        let is_taken = |key: u64| queue.last.get(&key).is_some_and(|last| last.exclusive.is_some());
        !queue.requests.is_empty() && (queue.last_of_all.is_some() || keys.into_iter().any(is_taken))
    }

    /// Reserves all the keys given.
    pub(crate) fn take(&self, keys: Vec<u64>) -> Reserved {
        self.request(What::Keys(sorted(keys)))
    }

    /// Lets plain puts of the keys have their turn, beside others of their kind.
    pub(crate) fn share(&self, keys: Vec<u64>) -> Reserved {
        self.request(What::Shared(sorted(keys)))
    }

    /// Reserves every key.
    pub(crate) fn take_all(&self) -> Reserved {
        self.request(What::All)
    }

    /// Reserves the keys if nobody has or wants one of them.
    pub(crate) fn try_take(&self, keys: Vec<u64>) -> Option<Reservation> {
        let is_free = {
            let queue = self.queue.lock();
            queue.last_of_all.is_none() && !keys.iter().any(|key| queue.last.contains_key(key))
        };
        is_free.then(|| self.take(keys).0)
    }

    /// Reserves those of the keys that nobody has or wants; which those are, in their order.
    pub(crate) fn take_free(&self, keys: Vec<u64>) -> (Reservation, Vec<u64>) {
        let mut keys = sorted(keys);
        {
            let queue = self.queue.lock();
            keys.retain(|key| queue.last_of_all.is_none() && !queue.last.contains_key(key));
        }
        (self.take(keys.clone()).0, keys)
    }

    /// The unpublished records of keys that are reserved; `None` unless all of them have one.
    pub(crate) fn unpublished(&self, keys: &[u64]) -> Option<Vec<Unpublished>> {
        let queue = self.queue.lock();
        keys.iter().map(|key| queue.unpublished.get(key).cloned()).collect()
    }

    /// Notes records by their keys, as they were appended under a reservation of these that is about to end.
    pub(crate) fn note(&self, records: impl Iterator<Item = (u64, Unpublished)>) -> Noted {
        let mut queue = self.queue.lock();
        let note = |(key, record): (u64, Unpublished)| {
            let sequence = record.sequence;
            queue.unpublished.insert(key, record);
            (key, sequence)
        };
        Noted { queue: self.queue.clone(), records: records.map(note).collect() }
    }

    /// Keys are written without a reservation: what was noted of them is not the newest any more.
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
        let reservation =
            Reservation { queue, number, shared, drawn: None, ends_early, after: None, ephemeral };
        (reservation, granted)
    }
}

fn sorted(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Queue {
    /// 1.
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
            let earlier = self.requests.get_mut(earlier).expect("what is over is not the last of anything");
            earlier.followers.push(number);
        }
        let granted = (!before.is_empty()).then(Completion::new);
        let waiter = granted.as_ref().map(Completion::waiter);
        let (waits_for, followers) = (before.len(), Vec::new());
        self.requests.insert(number, Request { what, waits_for, followers, granted, given_up: false });
        (number, waiter)
    }

    /// Its reservation was dropped. Returns whom to tell that they have their keys.
    fn give_back(&mut self, number: u64) -> Vec<Completion> {
        let request = self.requests.get_mut(&number).expect("it is over once");
        if request.waits_for > 0 {
            // 3.
            request.given_up = true;
            return Vec::new();
        }
        let mut granted = Vec::new();
        let mut over = vec![number];
        while let Some(number) = over.pop() {
            let request = self.requests.remove(&number).expect("it is over once");
            self.forget(number, &request.what);
            // 2.
            for follower in request.followers {
                let next = self.requests.get_mut(&follower).expect("it waits");
                next.waits_for -= 1;
                match next.waits_for {
                    0 if next.given_up => over.push(follower),
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
            queue.drawn.remove(&drawn);
        }
        let granted = queue.give_back(self.number);
        drop(queue);
        granted.into_iter().for_each(|completion| completion.open(Ok(())));
    }
}
