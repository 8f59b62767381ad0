//! Passwords: hashed slowly in the file, remembered quickly once they were right.
//!
//! A hash is Argon2id over 7 MiB in five passes, one of the settings that OWASP counts as equal to 19 MiB in two; the
//! small memory is for a server that must keep within a budget. Checking one takes a few hundredths of a second, so it is
//! done on a thread that may block, one at a time: a flood of guesses takes one core and 7 MiB at most, and waits.
//!
//! Pools open hundreds of connections at once with the same password. So a password that was right is remembered, as a
//! keyed hash under a key that only this process has, as long as somebody has the hash.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use blake2::{Blake2s256, Digest};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::throttle::Attempt;
use crate::base::address::Origin;
use crate::base::config::Password;
use crate::{Error, Result};

/// Memory that checking a password takes, beyond the budget of the clients.
pub const LOGIN_BYTES: usize = (HASH_KIB as usize) << 10;

const HASH_KIB: u32 = 7 * 1024;
const HASH_PASSES: u32 = 5;

/// Passwords of a user.
pub(super) const SECRETS_MAX: usize = 4;

type Keyed = [u8; 32];

/// A way in which a user proves who it is.
#[derive(Clone)]
pub(super) enum Secret {
    /// Argon2 in PHC form.
    Hash(String),
    /// A password of the settings, under the process's key.
    Keyed(Keyed),
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        match (self, other) {
            (Secret::Hash(one), Secret::Hash(other)) => one == other,
            (Secret::Keyed(one), Secret::Keyed(other)) => one.ct_eq(other).into(),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

impl Secret {
    /// A hash of the file, if it is one that can be checked within the memory there is for it.
    pub(super) fn of_hash(text: &str) -> Result<Secret, String> {
        let what = "password_hash is no Argon2 hash in PHC form; make one with esker user passwd";
        let hash = PasswordHash::new(text).map_err(|_| what.to_owned())?;
        if !hash.algorithm.as_str().starts_with("argon2") || hash.hash.is_none() {
            return Err(what.to_owned());
        }
        let params = Params::try_from(&hash).map_err(|_| what.to_owned())?;
        if params.m_cost() > HASH_KIB {
            let kib = params.m_cost();
            return Err(format!(
                "password_hash takes {kib} KiB to check, of at most {HASH_KIB}; make one with esker user passwd"
            ));
        }
        Ok(Secret::Hash(text.to_owned()))
    }

    /// What the file has of it, if it is of the file.
    pub(super) fn hash(&self) -> Option<&str> {
        match self {
            Secret::Hash(hash) => Some(hash),
            Secret::Keyed(_) => None,
        }
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(HASH_KIB, HASH_PASSES, 1, None).expect("the parameters are in range");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// The hash of a password under a new salt.
pub(super) fn hash(password: &[u8]) -> Result<String> {
    let salt: [u8; 16] = random()?;
    Ok(argon2().hash_password_with_salt(password, &salt).expect("the salt is long enough").to_string())
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(Error::NoRandomness)?;
    Ok(bytes)
}

/// Checks passwords.
pub(super) struct Checker {
    key: Keyed,
    /// What was right, by the hash it was checked against.
    known: Mutex<HashMap<String, Keyed>>,
    /// Compared with where there is no user, so that it takes as long.
    nobody: String,
    turn: Arc<Semaphore>,
}

impl std::fmt::Debug for Checker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Checker(not shown)")
    }
}

impl Checker {
    pub(super) fn new() -> Result<Checker> {
        let (key, unguessable) = (random()?, random::<32>()?);
        let nobody = hash(&unguessable)?;
        Ok(Checker { key, known: Mutex::default(), nobody, turn: Arc::new(Semaphore::new(1)) })
    }

    /// A password of the settings as a secret.
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

    /// Forgets what was right but for these hashes.
    pub(super) fn keep(&self, hashes: &HashSet<&str>) {
        self.known.lock().expect("nobody panics with it").retain(|hash, _| hashes.contains(&**hash));
    }

    fn knows(&self, hash: &str, keyed: &Keyed) -> bool {
        let known = self.known.lock().expect("nobody panics with it");
        known.get(hash).is_some_and(|right| right.ct_eq(keyed).into())
    }

    /// What the throttle knows a login by.
    pub(super) fn attempt(&self, name: &[u8], password: &[u8], secrets: &[Secret], from: Origin) -> Attempt {
        let mut against: String = secrets.iter().filter_map(Secret::hash).collect();
        if secrets.is_empty() {
            against.clone_from(&self.nobody);
        }
        let mark = |keyed: Keyed| u64::from_le_bytes(keyed[..8].try_into().expect("it has more"));
        let against = mark(self.keyed(b"", against.as_bytes())).to_le_bytes();
        let password =
            Blake2s256::new().chain_update(self.keyed(name, password)).chain_update(against).finalize();
        Attempt { from, user: mark(self.keyed(name, b"")), password: mark(password.into()) }
    }

    /// Which of a user's secrets a password is, without a look at a hash.
    fn recognize(&self, secrets: &[Secret], keyed: &Keyed) -> Option<usize> {
        secrets.iter().position(|secret| match secret {
            Secret::Keyed(right) => right.ct_eq(keyed).into(),
            Secret::Hash(hash) => self.knows(hash, keyed),
        })
    }

    /// Whether the password is right; `None` if it was not looked at, since `go_on` said no when its turn had come, after
    /// others may have guessed wrong.
    pub(super) async fn check(
        &self,
        name: &[u8],
        password: &[u8],
        secrets: &[Secret],
        go_on: impl Fn() -> bool,
    ) -> Option<bool> {
        if secrets.is_empty() {
            let nobody = [Secret::Hash(self.nobody.clone())];
            return self.find(name, password, &nobody, go_on).await.map(|_| false);
        }
        self.find(name, password, secrets, go_on).await.map(|found| found.is_some())
    }

    /// Which of a user's secrets a password is. The outer `None` is as for [`check`](Self::check).
    pub(super) async fn find(
        &self,
        name: &[u8],
        password: &[u8],
        secrets: &[Secret],
        go_on: impl Fn() -> bool,
    ) -> Option<Option<usize>> {
        if Password::check_length(password).is_err() {
            return Some(None);
        }
        let keyed = self.keyed(name, password);
        if let Some(known) = self.recognize(secrets, &keyed) {
            return Some(Some(known));
        }
        if secrets.iter().all(|secret| secret.hash().is_none()) {
            return Some(None);
        }
        let turn = self.turn.clone().acquire_owned().await.expect("it is never closed");
        // Somebody with the same password may have been right while this one waited.
        if let Some(known) = self.recognize(secrets, &keyed) {
            return Some(Some(known));
        }
        if !go_on() {
            return None;
        }
        let hashes: Vec<Option<String>> =
            secrets.iter().map(|secret| secret.hash().map(str::to_owned)).collect();
        let password = password.to_vec();
        // The turn ends with the work, even if nobody waits for it any more.
        let verify = move || {
            let is_of = |hash: &Option<String>| {
                hash.as_ref()
                    .is_some_and(|hash| Argon2::default().verify_password(&password, &**hash).is_ok())
            };
            (hashes.iter().position(is_of), turn)
        };
        let Ok((found, turn)) = tokio::task::spawn_blocking(verify).await else { return None };
        if let Some(hash) = found.and_then(|index| secrets[index].hash()) {
            self.known.lock().expect("nobody panics with it").insert(hash.to_owned(), keyed);
        }
        drop(turn);
        Some(found)
    }

    /// A new hash of a password. It may take long, and does not block the thread.
    pub(super) async fn hash(&self, password: &[u8]) -> Result<Secret> {
        let turn = self.turn.clone().acquire_owned().await.expect("it is never closed");
        let password = password.to_vec();
        let hashed = tokio::task::spawn_blocking(move || (hash(&password), turn)).await;
        let (hashed, turn) = hashed.expect("hashing does not panic");
        drop(turn);
        hashed.map(Secret::Hash)
    }
}
