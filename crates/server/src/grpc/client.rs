//! The client of a connection, and the memory of its calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use hyper::header::HeaderValue;
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use tonic::Status;

use super::error;
use super::frames::Waiting;
use crate::auth::{LoginRefused, User, login_deadline};
use crate::base::address::Address;
use crate::base::pace::Pace;
use crate::budget::{Piece, Pieces, Share};
use crate::service::Service;

/// Part of the connection's floor for its calls, in bytes: enough for one small call at a time, which therefore never waits for
/// memory.
pub(super) const CALLS_BYTES: usize = 32 << 10;

/// Memory of one call, in bytes.
pub(super) const CALL_BYTES: usize = 20 << 10;

/// Maximum number of watches per connection; leaves some of its concurrent calls for others.
const WATCHES_MAX: usize = 32;

/// State shared by the calls of one connection.
pub(super) struct Client {
    pub(super) peer: Address,
    /// User of calls without credentials: named by the certificate, or `default` if no password is required.
    unnamed: Option<Arc<User>>,
    /// The last valid `authorization` and its user, cached because checking a password is slow.
    known: Mutex<Option<(HeaderValue, Arc<User>)>>,
    pub(super) pieces: Arc<Pieces>,
    /// The floor, held as long as any call runs.
    _share: Share,
    pub(super) waiting: Arc<Waiting>,
    /// Responses that wait for the client to read, and their deadlines.
    stalled: Mutex<HashMap<u64, Instant>>,
    answers: AtomicU64,
    pub(super) running: AtomicUsize,
    watches: AtomicUsize,
    /// True once a call with a known user was accepted.
    pub(super) welcome: AtomicBool,
}

impl Client {
    pub(super) fn new(
        peer: Address,
        unnamed: Option<Arc<User>>,
        share: Share,
        service: &Service,
    ) -> Arc<Client> {
        Arc::new(Client {
            peer,
            unnamed,
            known: Mutex::default(),
            pieces: Pieces::new(service.budget.clone(), CALLS_BYTES),
            _share: share,
            waiting: Arc::default(),
            stalled: Mutex::default(),
            answers: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            welcome: AtomicBool::new(false),
        })
    }

    /// Returns the user of a call. `Basic` carries name and password, `Bearer` the password of the user `default`.
    pub(super) async fn user(
        &self,
        authorization: Option<&HeaderValue>,
        service: &Service,
    ) -> Result<Arc<User>, Status> {
        let Some(given) = authorization else {
            let user = self.unnamed.as_ref().and_then(|user| service.users.still_unnamed(user));
            return user.ok_or_else(|| {
                error::not_logged_in("a user and a password are needed (metadata authorization)")
            });
        };
        let known =
            self.known.lock().expect("the lock is never poisoned: no code panics while holding it").clone();
        if let Some((header, user)) = known
            && bool::from(header.as_bytes().ct_eq(given.as_bytes()))
            && !user.is_outdated()
        {
            return Ok(user);
        }
        let (name, password) = credentials(given).ok_or_else(|| {
            error::not_logged_in(
                "authorization is Basic with user and password in base64, or Bearer with a password",
            )
        })?;
        let deadline = login_deadline(service.config.limits.login_wait);
        let user = service.users.log_in(&name, &password, &self.peer, deadline).await;
        let user = user.map_err(|refused| match refused {
            LoginRefused::Wrong => {
                error::not_logged_in("wrong user or password, or too many wrong ones from this address")
            }
            LoginRefused::Busy(busy) => error::busy(&busy),
        })?;
        *self.known.lock().expect("the lock is never poisoned: no code panics while holding it") =
            Some((given.clone(), user.clone()));
        Ok(user)
    }

    /// Fails if a client without a known user runs more than `most` calls at a time.
    pub(super) fn check_unnamed(&self, most: usize) -> Result<(), Status> {
        if self.welcome.load(Ordering::Relaxed) || self.running.load(Ordering::Relaxed) <= most {
            return Ok(());
        }
        Err(error::not_logged_in("more calls at a time need a login on this connection"))
    }

    /// Takes memory for a call.
    pub(super) async fn take(&self, bytes: usize) -> Result<Piece, Status> {
        self.pieces.take(bytes).await.map_err(error::of_memory)
    }

    /// Registers a watch, unless the connection has too many.
    pub(super) fn watch(self: &Arc<Client>) -> Option<WatchPlace> {
        let more = |watches| (watches < WATCHES_MAX).then_some(watches + 1);
        self.watches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(WatchPlace(self.clone()))
    }

    /// Registers a response of this connection.
    pub(super) fn answer(self: &Arc<Client>, wait: Option<Duration>) -> Arc<Answering> {
        let id = self.answers.fetch_add(1, Ordering::Relaxed);
        let unsent = Mutex::new(Unsent { bytes: 0, pace: Pace::start() });
        Arc::new(Answering { client: self.clone(), id, wait, unsent })
    }

    /// Returns the number of calls so far.
    pub(super) fn calls(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns true if a response has waited for the client beyond its deadline.
    pub(super) fn is_stalled(&self) -> bool {
        let now = Instant::now();
        self.stalled
            .lock()
            .expect("the lock is never poisoned: no code panics while holding it")
            .values()
            .any(|&until| until < now)
    }
}

fn credentials(given: &HeaderValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = given.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((b"default".to_vec(), rest.trim().as_bytes().to_vec()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Base64::decode_vec(rest.trim()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// Registration of a watch, removed on drop.
pub(super) struct WatchPlace(Arc<Client>);

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response until its last byte is sent. Tracks since when it waits for the client.
pub(super) struct Answering {
    client: Arc<Client>,
    id: u64,
    wait: Option<Duration>,
    unsent: Mutex<Unsent>,
}

/// Bytes passed on but not sent yet.
struct Unsent {
    bytes: usize,
    pace: Pace,
}

impl Answering {
    /// Records that `bytes` were passed on.
    pub(super) fn handed_on(&self, bytes: usize) {
        let mut unsent =
            self.unsent.lock().expect("the lock is never poisoned: no code panics while holding it");
        if unsent.bytes == 0 {
            unsent.pace = Pace::start();
        }
        unsent.bytes += bytes;
        self.note(&unsent);
    }

    /// Records that the client received `bytes`, or never will.
    pub(super) fn sent(&self, bytes: usize) {
        let mut unsent =
            self.unsent.lock().expect("the lock is never poisoned: no code panics while holding it");
        unsent.bytes -= bytes;
        unsent.pace.taken(bytes, Instant::now());
        self.note(&unsent);
    }

    /// Records that the last byte was passed on.
    pub(super) fn ended(&self) {
        self.client.waiting.answered();
    }

    fn note(&self, unsent: &Unsent) {
        let Some(wait) = self.wait else { return };
        let mut stalled =
            self.client.stalled.lock().expect("the lock is never poisoned: no code panics while holding it");
        match unsent.bytes {
            0 => stalled.remove(&self.id),
            _ => stalled.insert(self.id, unsent.pace.deadline(wait)),
        };
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.client.running.fetch_sub(1, Ordering::Relaxed);
    }
}
