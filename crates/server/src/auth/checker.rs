//! Checks the passwords of logins.
//!
//! Argon2 runs on a pool of one thread with a bounded queue, in which address blocks take turns and changes by admins come first.
//! A flood of guesses therefore takes at most one core and 7 MiB.
//!
//! Connection pools open hundreds of connections at once with the same password. Logins with the same name and password therefore
//! share one place in the queue, and a password that was right is remembered, as a keyed hash under a key of this process, until
//! no user has its Argon2 hash any more.
//!
//! The time of a refusal depends on neither the user nor the number of its passwords (decision 0036): all passwords of a user
//! share a salt, so that one evaluation checks them all, and a refused login always takes as many evaluations as the user with
//! the most distinct salts needs.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use argon2::password_hash::phc::Salt;
use blake2::{Blake2s256, Digest};
use subtle::ConstantTimeEq;
use tokio::time::{Instant, timeout_at};

use super::password::{Group, Keyed, Secret, hash, hash_with, random};
use super::throttle::Attempt;
use crate::Result;
use crate::base::address::Origin;
use crate::base::config::Password;
use crate::base::counting::count;
use crate::base::pool::{Busy, Pool, Source};

/// Name of the evaluation pool.
const POOL: &str = "login";

/// Maximum number of waiting evaluations. The last of them waits for some seconds, less than the default of `login-timeout`.
const QUEUED_MAX: usize = 128;

/// A caller of the checker: its source in the queue, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) source: Source,
    pub(super) deadline: Instant,
}

/// Passwords that were right, by the Argon2 hash that they matched.
#[derive(Default)]
struct Known(Mutex<HashMap<String, Keyed>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Keyed>> {
        self.0.lock().expect("the lock is never poisoned: no code panics while holding it")
    }

    /// Returns the index of the matching secret without an evaluation, if the password was right before.
    fn recognize(&self, secrets: &[Secret], keyed: &Keyed) -> Option<usize> {
        let known = self.lock();
        secrets.iter().position(|secret| match secret {
            Secret::Keyed(right) => right.ct_eq(keyed).into(),
            Secret::Hash(hash) => known.get(hash).is_some_and(|right| right.ct_eq(keyed).into()),
        })
    }
}

/// Concurrent logins with the same name and password.
#[derive(Default)]
struct Alike {
    turn: Arc<tokio::sync::Mutex<()>>,
    logins: usize,
}

/// Registration of one of several equal logins, removed on drop.
struct OneOf<'c> {
    checker: &'c Checker,
    keyed: Keyed,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for OneOf<'_> {
    fn drop(&mut self) {
        let mut alike = self.checker.lock_alike();
        let Some(same) = alike.get_mut(&self.keyed) else { return };
        same.logins -= 1;
        if same.logins == 0 {
            alike.remove(&self.keyed);
        }
    }
}

/// Checks passwords.
pub(super) struct Checker {
    key: Keyed,
    known: Arc<Known>,
    /// Waiting logins, by name and password. Equal logins share one place in the queue.
    alike: Mutex<HashMap<Keyed, Alike>>,
    /// Evaluated for unknown users, and to fill up the number of evaluations.
    nobody: Group,
    /// Number of evaluations of a refused login, equal for all user names.
    evaluations_each: AtomicUsize,
    /// Number of evaluations since the start.
    evaluated: Arc<AtomicU64>,
    pool: Pool,
}

impl std::fmt::Debug for Checker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Checker(not shown)")
    }
}

impl Checker {
    pub(super) fn new() -> Result<Checker> {
        let (key, unguessable) = (random()?, random::<32>()?);
        Ok(Checker {
            key,
            known: Arc::default(),
            alike: Mutex::default(),
            nobody: Group::of_nobody(&hash(&unguessable)?),
            evaluations_each: AtomicUsize::new(0),
            evaluated: Arc::default(),
            pool: Pool::new(POOL, 1, QUEUED_MAX),
        })
    }

    /// Returns the secret of a configured password.
    pub(super) fn secret_of(&self, name: &[u8], password: &[u8]) -> Secret {
        Secret::Keyed(self.keyed(name, password))
    }

    fn keyed(&self, name: &[u8], password: &[u8]) -> Keyed {
        let digest = Blake2s256::new().chain_update(self.key);
        digest
            .chain_update((name.len() as u64).to_le_bytes())
            .chain_update(name)
            .chain_update(password)
            .finalize()
            .into()
    }

    /// Takes the secrets of all users. Forgets right passwords whose hash no user has any more, and updates the number of
    /// evaluations of a refused login.
    pub(super) fn follow<'s>(&self, users: impl Iterator<Item = &'s [Secret]>) {
        let (mut hashes, mut most) = (HashSet::new(), 0);
        for secrets in users {
            hashes.extend(secrets.iter().filter_map(Secret::hash));
            most = most.max(Group::of(secrets).len());
        }
        self.evaluations_each.store(most, Ordering::Relaxed);
        self.known.lock().retain(|hash, _| hashes.contains(&**hash));
    }

    fn lock_alike(&self) -> MutexGuard<'_, HashMap<Keyed, Alike>> {
        self.alike.lock().expect("the lock is never poisoned: no code panics while holding it")
    }

    fn one_of(&self, keyed: Keyed) -> OneOf<'_> {
        let mut alike = self.lock_alike();
        let same = alike.entry(keyed).or_default();
        same.logins += 1;
        OneOf { checker: self, keyed, turn: same.turn.clone() }
    }

    /// Returns the throttle's identification of a login.
    pub(super) fn attempt(&self, name: &[u8], password: &[u8], secrets: &[Secret], from: Origin) -> Attempt {
        let mut against: String = secrets.iter().filter_map(Secret::hash).collect();
        if secrets.is_empty() {
            against = self.nobody.hash.to_string();
        }
        let mark = |keyed: Keyed| {
            u64::from_le_bytes(keyed[..8].try_into().expect("the digest has more than 8 bytes"))
        };
        let against = mark(self.keyed(b"", against.as_bytes())).to_le_bytes();
        let password =
            Blake2s256::new().chain_update(self.keyed(name, password)).chain_update(against).finalize();
        Attempt { from, user: mark(self.keyed(name, b"")), password: mark(password.into()) }
    }

    /// Returns the index of the secret that a login's password matches. An empty `secrets` stands for an unknown user. The outer
    /// `None`: `go_on` returned false at this login's turn, because others had guessed wrong meanwhile. Every refusal takes the
    /// same number of evaluations.
    ///
    /// # Errors
    /// [`Busy`] if the queue is full or the deadline passed.
    pub(super) async fn check(
        &self,
        name: &[u8],
        password: &[u8],
        secrets: &[Secret],
        caller: Caller,
        go_on: impl FnOnce() -> bool + Send + 'static,
    ) -> std::result::Result<Option<Option<usize>>, Busy> {
        let least = self.evaluations_each.load(Ordering::Relaxed);
        self.evaluate(name, password, secrets, least, caller, go_on).await
    }

    /// Returns the index of the secret that a password matches.
    ///
    /// # Errors
    /// [`Busy`] if the queue is full or the deadline passed.
    pub(super) async fn find(
        &self,
        name: &[u8],
        password: &[u8],
        secrets: &[Secret],
        caller: Caller,
    ) -> std::result::Result<Option<usize>, Busy> {
        Ok(self.evaluate(name, password, secrets, 0, caller, || true).await?.flatten())
    }

    /// As [`check`](Self::check), with at least `least` evaluations if the password matches no secret.
    async fn evaluate(
        &self,
        name: &[u8],
        password: &[u8],
        secrets: &[Secret],
        least: usize,
        caller: Caller,
        go_on: impl FnOnce() -> bool + Send + 'static,
    ) -> std::result::Result<Option<Option<usize>>, Busy> {
        if Password::check_length(password).is_err() {
            return Ok(Some(None));
        }
        let keyed = self.keyed(name, password);
        if let Some(found) = self.known.recognize(secrets, &keyed) {
            return Ok(Some(Some(found)));
        }
        let mut groups = Group::of(secrets);
        while groups.len() < least {
            groups.push(self.nobody.clone());
        }
        if groups.is_empty() {
            return Ok(Some(None));
        }
        // A burst of connections of one pool takes one place in the queue, and one evaluation.
        let same = self.one_of(keyed);
        let late = Busy::Late { pool: POOL };
        let _turn = timeout_at(caller.deadline, same.turn.lock()).await.map_err(|_| late)?;
        if let Some(found) = self.known.recognize(secrets, &keyed) {
            return Ok(Some(Some(found)));
        }
        let (password, evaluated) = (password.to_vec(), self.evaluated.clone());
        let job = move || {
            go_on().then(|| {
                groups.iter().find_map(|group| {
                    count(&evaluated, 1);
                    group.evaluate(&password)
                })
            })
        };
        let found = self.pool.run(caller.source, caller.deadline, job).await?;
        if let Some(hash) = found.flatten().and_then(|index| secrets[index].hash()) {
            self.known.lock().insert(hash.to_owned(), keyed);
        }
        Ok(found)
    }

    /// Returns a new hash of a password.
    ///
    /// # Errors
    /// [`Busy`] if the queue is full or the deadline passed.
    pub(super) async fn hash(
        &self,
        password: &[u8],
        salt: Salt,
        caller: Caller,
    ) -> std::result::Result<Secret, Busy> {
        let (password, evaluated) = (password.to_vec(), self.evaluated.clone());
        let job = move || {
            count(&evaluated, 1);
            Secret::Hash(hash_with(&password, &salt))
        };
        self.pool.run(caller.source, caller.deadline, job).await
    }

    /// Returns the number of evaluations since the start.
    #[cfg(test)]
    pub(super) fn evaluated(&self) -> u64 {
        self.evaluated.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "checker/tests.rs"]
mod tests;
