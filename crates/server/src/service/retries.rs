//! Answers kept for repeated requests, so that a retry does not execute a request twice.
//!
//! A request is identified by its user and the id that the user gave it. See `docs/decisions/0029-grpc-transactions.md`.
//!
//! - While a request runs, its retries wait for it. After its end, its answer is kept for [`KEEP`].
//! - Answers are kept in a part of the memory for clients. If it is used up, the oldest answer of the user with the most is
//!   dropped.
//! - A retry with an unknown id may repeat a request that was executed and forgotten: before the start, because an answer of
//!   this user was dropped early, or by the node of a cluster that led its keys before this one. Such retries are refused until all retries of forgotten requests would come too late in any
//!   case.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::budget::Share;

/// Time for which an answer is kept.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

/// Memory of a request beyond its id and its answer, in bytes: slots in two tables that double, allocations, and wakers.
const REQUEST_BYTES: usize = 512;

/// Divisor: part of `bytes_max` that one request may take.
const ONE_PART: usize = 4;

/// Interval between removals of users without kept requests.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Hash of a request's method, database and content; distinguishes requests with the same id.
pub(crate) type Fingerprint = [u8; 32];

/// The answer of a request: an encoded message, or an error that depends on the state of the store.
pub(crate) type Answer = Result<Bytes, Status>;

/// State of a request.
enum Kept {
    /// Running; the channel closes at its end.
    Running(watch::Receiver<()>),
    Answered(Answer),
    /// Ended without any effect.
    NothingDone,
}

struct Request {
    fingerprint: Fingerprint,
    kept: Kept,
    bytes: usize,
    /// Its position in the order of completion, once ended.
    place: Option<u64>,
}

/// Requests of one user.
struct OfUser {
    requests: HashMap<Bytes, Request>,
    /// Ended requests and their end times, in order of completion.
    ended: BTreeMap<u64, (Instant, Bytes)>,
    bytes: usize,
    /// Requests that ended up to this time may have been forgotten.
    unknown_until: Instant,
}

struct RetryTable {
    users: HashMap<String, OfUser>,
    bytes: usize,
    /// `None` if there was no room for it at the start.
    share: Option<Share>,
    /// Requests that ended up to this time may have been forgotten, or answered by another node.
    unknown_until: Instant,
    /// Last assigned position.
    place: u64,
    swept: Instant,
}

/// All requests with an id.
pub(crate) struct Retries {
    state: Mutex<RetryTable>,
    bytes_max: usize,
    started: Instant,
}

/// Decision on a request.
pub(crate) enum Begun {
    /// New: execute it and report its end with the ticket.
    First(Ticket),
    /// Already running: ask again when the channel closes.
    Running(watch::Receiver<()>),
    Answered(Answer),
    /// Another request has the same id.
    Another,
    /// The request may have been executed and forgotten.
    Forgotten,
    /// No memory to remember the request.
    NoRoom,
}

/// A running request. If the ticket is dropped before `end`, the outcome is unknown.
pub(crate) struct Ticket {
    retries: Arc<Retries>,
    user: String,
    id: Bytes,
    ended: bool,
    /// Closes when the ticket is dropped.
    _running: watch::Sender<()>,
}

impl Retries {
    pub(crate) fn new(bytes_max: usize, share: Option<Share>) -> Arc<Retries> {
        let started = Instant::now();
        let state = RetryTable {
            users: HashMap::new(),
            bytes: 0,
            share,
            unknown_until: started,
            place: 0,
            swept: started,
        };
        Arc::new(Retries { state: Mutex::new(state), bytes_max, started })
    }

    fn lock(&self) -> MutexGuard<'_, RetryTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that another node may have executed requests until now, whose answers are not here.
    pub(crate) fn others_may_have_answered(&self, now: Instant) {
        self.lock().unknown_until = now;
    }

    /// Begins a request of a user. `is_retry`: the client has sent it before.
    pub(crate) fn begin(
        self: &Arc<Retries>,
        user: &str,
        id: &Bytes,
        fingerprint: Fingerprint,
        is_retry: bool,
        now: Instant,
    ) -> Begun {
        let state = &mut *self.lock();
        state.sweep(now);
        state.forget_old(user, now);
        let of_user = state.users.get(user);
        match of_user.and_then(|of_user| of_user.requests.get(id)) {
            Some(known) if known.fingerprint != fingerprint => return Begun::Another,
            Some(Request { kept: Kept::Running(running), .. }) => return Begun::Running(running.clone()),
            Some(Request { kept: Kept::Answered(answer), .. }) => return Begun::Answered(answer.clone()),
            Some(Request { kept: Kept::NothingDone, .. }) => state.remove(user, id),
            None => {
                let of_user = of_user.map_or(self.started, |of_user| of_user.unknown_until);
                let unknown_until = of_user.max(state.unknown_until);
                if is_retry && now < unknown_until + KEEP {
                    return Begun::Forgotten;
                }
            }
        }
        let bytes = REQUEST_BYTES + id.len();
        if !state.hold(bytes, self.bytes_max) {
            return Begun::NoRoom;
        }
        let (running, over) = watch::channel(());
        let kept = Kept::Running(over);
        state.insert(user, id, Request { fingerprint, kept, bytes, place: None }, self.started);
        let (retries, user, id) = (self.clone(), user.to_owned(), id.clone());
        Begun::First(Ticket { retries, user, id, ended: false, _running: running })
    }
}

impl Ticket {
    /// Ends the request. Errors that do not depend on the state of the store had no effect, and may be retried. So may the refusal
    /// of a node that does not lead the keys, which may lead them by then. An error that leaves the outcome open (`Aborted`) is
    /// kept: another execution could do the request twice.
    pub(crate) fn end(mut self, answer: &Answer, now: Instant) {
        let kept = match answer {
            Ok(message) => Kept::Answered(Ok(message.clone())),
            Err(status)
                if matches!(status.code(), Code::FailedPrecondition | Code::OutOfRange | Code::Aborted)
                    && !is_of_another_node(status) =>
            {
                Kept::Answered(Err(status.clone()))
            }
            Err(_) => Kept::NothingDone,
        };
        self.ended = true;
        let state = &mut *self.retries.lock();
        let more = answer.as_ref().map_or(0, Bytes::len);
        let has_room = state.hold(more, self.retries.bytes_max);
        state.place += 1;
        let place = state.place;
        let Some(of_user) = state.users.get_mut(&self.user) else { return };
        let Some(request) = of_user.requests.get_mut(&self.id) else { return };
        of_user.ended.insert(place, (now, self.id.clone()));
        (request.kept, request.place) = (kept, Some(place));
        if has_room {
            request.bytes += more;
            of_user.bytes += more;
        } else {
            of_user.unknown_until = now;
            state.remove(&self.user, &self.id);
        }
    }
}

/// Reason of a refusal because another node leads the keys: certainly nothing was done.
pub(crate) const NOT_LEADER: &str = "NOT_LEADER";

fn is_of_another_node(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.reason == NOT_LEADER)
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let state = &mut *self.retries.lock();
        if let Some(of_user) = state.users.get_mut(&self.user) {
            of_user.unknown_until = Instant::now();
        }
        state.remove(&self.user, &self.id);
    }
}

impl RetryTable {
    fn insert(&mut self, user: &str, id: &Bytes, request: Request, started: Instant) {
        if !self.users.contains_key(user) {
            let of_user =
                OfUser { requests: HashMap::new(), ended: BTreeMap::new(), bytes: 0, unknown_until: started };
            self.users.insert(user.to_owned(), of_user);
        }
        let of_user = self.users.get_mut(user).expect("the user was inserted above");
        of_user.bytes += request.bytes;
        of_user.requests.insert(id.clone(), request);
    }

    fn remove(&mut self, user: &str, id: &Bytes) {
        let Some(of_user) = self.users.get_mut(user) else { return };
        let Some(request) = of_user.requests.remove(id) else { return };
        if let Some(place) = request.place {
            of_user.ended.remove(&place);
        }
        of_user.bytes -= request.bytes;
        self.bytes -= request.bytes;
        if let Some(share) = &mut self.share {
            share.try_hold(self.bytes);
        }
    }

    /// Takes `bytes` more memory, if necessary from the answers of the user with the most. Returns false if there is not enough.
    fn hold(&mut self, bytes: usize, bytes_max: usize) -> bool {
        if bytes > bytes_max / ONE_PART {
            return false;
        }
        loop {
            let wanted = self.bytes + bytes;
            if wanted <= bytes_max && self.share.as_mut().is_some_and(|share| share.try_hold(wanted)) {
                self.bytes = wanted;
                return true;
            }
            if !self.forget_early() {
                return false;
            }
        }
    }

    /// Drops the oldest answer of the user with the most memory. Returns false if there is none.
    fn forget_early(&mut self) -> bool {
        let with_answers = self.users.iter_mut().filter(|(_, of_user)| !of_user.ended.is_empty());
        let Some((user, of_user)) = with_answers.max_by_key(|(_, of_user)| of_user.bytes) else {
            return false;
        };
        let (_, (at, id)) =
            of_user.ended.first_key_value().expect("users without ended requests were filtered out");
        let (user, id) = (user.clone(), id.clone());
        of_user.unknown_until = of_user.unknown_until.max(*at);
        self.remove(&user, &id);
        true
    }

    /// Removes the expired answers of a user.
    fn forget_old(&mut self, user: &str, now: Instant) {
        while let Some(of_user) = self.users.get(user)
            && let Some((_, (at, id))) = of_user.ended.first_key_value()
            && *at + KEEP <= now
        {
            let id = id.clone();
            self.remove(user, &id);
        }
    }

    /// Removes the expired answers of all users, and users without any remaining state.
    fn sweep(&mut self, now: Instant) {
        if now < self.swept + SWEEP_EVERY {
            return;
        }
        self.swept = now;
        let users: Vec<String> = self.users.keys().cloned().collect();
        users.iter().for_each(|user| self.forget_old(user, now));
        self.users.retain(|_, of_user| !of_user.requests.is_empty() || now < of_user.unknown_until + KEEP);
    }
}

#[cfg(test)]
#[path = "retries/tests.rs"]
mod tests;
