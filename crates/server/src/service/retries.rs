//! Answers that are kept, so that a request may be made again without being done again.
//!
//! A request is known by its user and the id that the user gave it. See `docs/decisions/0029-grpc-transactions.md`.
//!
//! - While it runs, whoever makes it again waits for it. When it has ended, its answer is kept for [`KEEP`].
//! - What is kept is a part of the memory for clients. If there is no more, the oldest answer goes of the user who has most.
//! - A retry of what is not known may be of something that was done and forgotten: before the start, or since an answer of this
//!   user went early. It is refused until every retry that could be of that comes too late anyway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::budget::Share;

/// How long an answer is kept.
pub(crate) const KEEP: Duration = Duration::from_secs(300);

/// What a request takes beside its id and its answer: places in two tables that double, allocations, and what wakes those
/// who wait.
const REQUEST_BYTES: usize = 512;

/// Which part of the memory one request may take.
const ONE_PART: usize = 4;

/// How often users of whom nothing is known any more are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// What tells a request from another: its method, and all of its message.
pub(crate) type Fingerprint = [u8; 32];

/// What a request was answered: an encoded message, or an error that says what the store had.
pub(crate) type Answer = Result<Bytes, Status>;

/// What is known of a request.
enum Kept {
    /// It runs; this closes when it has ended.
    Running(watch::Receiver<()>),
    Answered(Answer),
    /// It ended, and did nothing.
    NothingDone,
}

struct Request {
    fingerprint: Fingerprint,
    kept: Kept,
    bytes: usize,
    /// Its place among those that have ended.
    place: Option<u64>,
}

/// Requests of one user.
struct OfUser {
    requests: HashMap<Bytes, Request>,
    /// Those that have ended, in that order, and when they did.
    ended: BTreeMap<u64, (Instant, Bytes)>,
    bytes: usize,
    /// Of what ended by then not all is known.
    unknown_until: Instant,
}

struct State {
    users: HashMap<String, OfUser>,
    bytes: usize,
    /// None if there was no room for it at the start.
    share: Option<Share>,
    /// The last place that was given out.
    place: u64,
    swept: Instant,
}

/// All requests that have an id.
pub(crate) struct Retries {
    state: Mutex<State>,
    bytes_max: usize,
    started: Instant,
}

/// What is to be done with a request.
pub(crate) enum Begun {
    /// It is the first of its kind, and its answer is to be left with the ticket.
    First(Ticket),
    /// It runs already: ask again when this has closed.
    Running(watch::Receiver<()>),
    Answered(Answer),
    /// Another request has its id.
    Another,
    /// It may have been done and forgotten.
    Forgotten,
    /// There is no memory to remember it with.
    NoRoom,
}

/// A request that runs. Dropped without an end, nobody knows what became of it.
pub(crate) struct Ticket {
    retries: Arc<Retries>,
    user: String,
    id: Bytes,
    ended: bool,
    /// Closes with the ticket.
    _running: watch::Sender<()>,
}

impl Retries {
    pub(crate) fn new(bytes_max: usize, share: Option<Share>) -> Arc<Retries> {
        let started = Instant::now();
        let state = State { users: HashMap::new(), bytes: 0, share, place: 0, swept: started };
        Arc::new(Retries { state: Mutex::new(state), bytes_max, started })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of a user. `is_retry`: it was made before.
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
                let unknown_until = of_user.map_or(self.started, |of_user| of_user.unknown_until);
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
    /// The request has ended. Errors that do not say what the store had did nothing, and are worth another try.
    pub(crate) fn end(mut self, answer: &Answer, now: Instant) {
        let kept = match answer {
            Ok(message) => Kept::Answered(Ok(message.clone())),
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::OutOfRange) => {
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

impl State {
    fn insert(&mut self, user: &str, id: &Bytes, request: Request, started: Instant) {
        if !self.users.contains_key(user) {
            let of_user =
                OfUser { requests: HashMap::new(), ended: BTreeMap::new(), bytes: 0, unknown_until: started };
            self.users.insert(user.to_owned(), of_user);
        }
        let of_user = self.users.get_mut(user).expect("it is there now");
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

    /// Takes so much more memory, of those who have most if there is no other; false if there is none.
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

    /// Forgets the oldest answer of the user who has most; false if there is none.
    fn forget_early(&mut self) -> bool {
        let with_answers = self.users.iter_mut().filter(|(_, of_user)| !of_user.ended.is_empty());
        let Some((user, of_user)) = with_answers.max_by_key(|(_, of_user)| of_user.bytes) else {
            return false;
        };
        let (_, (at, id)) = of_user.ended.first_key_value().expect("it has one");
        let (user, id) = (user.clone(), id.clone());
        of_user.unknown_until = of_user.unknown_until.max(*at);
        self.remove(&user, &id);
        true
    }

    /// Forgets answers of a user that were kept for long enough.
    fn forget_old(&mut self, user: &str, now: Instant) {
        while let Some(of_user) = self.users.get(user)
            && let Some((_, (at, id))) = of_user.ended.first_key_value()
            && *at + KEEP <= now
        {
            let id = id.clone();
            self.remove(user, &id);
        }
    }

    /// Forgets what is old of all users, and users of whom nothing is left to know.
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
