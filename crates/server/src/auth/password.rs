//! Password hashes of the users file.
//!
//! A hash is Argon2id over 7 MiB in five passes, a setting that OWASP rates equal to 19 MiB in two passes; the small memory suits
//! a server with a memory budget. One evaluation takes a few hundredths of a second; `checker` schedules evaluations.

use argon2::password_hash::CustomizedPasswordHasher;
use argon2::password_hash::phc::{Output, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Params, Version};
use subtle::ConstantTimeEq;

use crate::{Error, Result};

/// Memory of a password check in bytes, in addition to the budget of clients.
pub const LOGIN_BYTES: usize = (HASH_KIB as usize) << 10;

/// Memory of one evaluation in KiB, for hashes made here, and the limit for other hashes.
const HASH_KIB: u32 = 7 * 1024;

/// Passes of hashes made here.
const HASH_PASSES: u32 = 5;

/// Limits of passes and lanes of a hash: twice the time of a hash made here.
const HASH_PASSES_MAX: u32 = 10;
const HASH_LANES_MAX: u32 = 4;

/// Maximum number of passwords per user.
pub(super) const SECRETS_MAX: usize = 4;

/// Keyed hash of a password, under a key of the process.
pub(super) type Keyed = [u8; 32];

/// A secret that authenticates a user.
#[derive(Clone)]
pub(super) enum Secret {
    /// Argon2 hash in PHC form.
    Hash(String),
    /// Keyed hash of a configured password.
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

/// Reason for rejecting a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongHash {
    #[error("password_hash is no Argon2 hash in PHC form; make one with esker user passwd")]
    NotPhc,
    /// Checking it would exceed a cost limit.
    #[error(
        "password_hash has {parameter}={value} ({unit}), of at most {limit}; make one with esker user passwd"
    )]
    TooCostly { parameter: char, value: u32, unit: &'static str, limit: u32 },
}

impl Secret {
    /// Parses a hash of the users file.
    ///
    /// # Errors
    /// [`WrongHash`] if it is not an Argon2 hash, or if checking it exceeds the limits of memory, passes or lanes.
    pub(super) fn of_hash(text: &str) -> std::result::Result<Secret, WrongHash> {
        let hash = PasswordHash::new(text).map_err(|_| WrongHash::NotPhc)?;
        let is_argon2 = Algorithm::try_from(hash.algorithm.as_str()).is_ok();
        if !is_argon2 || hash.hash.is_none() || hash.salt.is_none() {
            return Err(WrongHash::NotPhc);
        }
        let params = Params::try_from(&hash).map_err(|_| WrongHash::NotPhc)?;
        for (parameter, value, unit, limit) in [
            ('m', params.m_cost(), "KiB", HASH_KIB),
            ('t', params.t_cost(), "passes", HASH_PASSES_MAX),
            ('p', params.p_cost(), "lanes", HASH_LANES_MAX),
        ] {
            if value > limit {
                return Err(WrongHash::TooCostly { parameter, value, unit, limit });
            }
        }
        Ok(Secret::Hash(text.to_owned()))
    }

    /// Returns the hash as in the users file; `None` for a configured password.
    pub(super) fn hash(&self) -> Option<&str> {
        match self {
            Secret::Hash(hash) => Some(hash),
            Secret::Keyed(_) => None,
        }
    }
}

fn params() -> Params {
    Params::new(HASH_KIB, HASH_PASSES, 1, None).expect("the parameters are in range")
}

/// Hashes a password with a new salt.
pub(super) fn hash(password: &[u8]) -> Result<String> {
    let salt: [u8; 16] = random()?;
    Ok(hash_with(password, &salt))
}

pub(super) fn hash_with(password: &[u8], salt: &[u8]) -> String {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params());
    argon2
        .hash_password_customized(password, salt, None, None, params())
        .expect("the salt is long enough")
        .to_string()
}

pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(Error::NoRandomness)?;
    Ok(bytes)
}

/// Hashes that one evaluation checks, because they differ only in their output.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) hash: PasswordHash,
    /// Outputs, with the indices of their secrets.
    outputs: Vec<(usize, Output)>,
}

impl Group {
    fn takes(&self, other: &PasswordHash) -> bool {
        let PasswordHash { algorithm, version, params, salt, hash } = &self.hash;
        (algorithm, version, params, salt) == (&other.algorithm, &other.version, &other.params, &other.salt)
            && hash.as_ref().map(Output::len) == other.hash.as_ref().map(Output::len)
    }

    /// Returns a group without any password.
    pub(super) fn of_nobody(hash: &str) -> Group {
        Group {
            hash: PasswordHash::new(hash).expect("the hash was made by this process"),
            outputs: Vec::new(),
        }
    }

    /// Returns true if new hashes can join this group.
    fn is_as_made_here(&self) -> bool {
        let PasswordHash { algorithm, version, hash, .. } = &self.hash;
        let costs = |params: &Params| (params.m_cost(), params.t_cost(), params.p_cost());
        algorithm.as_str() == Algorithm::Argon2id.as_str()
            && *version == Some(Version::V0x13.into())
            && hash.as_ref().map(Output::len) == Some(Params::DEFAULT_OUTPUT_LEN)
            && Params::try_from(&self.hash).is_ok_and(|made| costs(&made) == costs(&params()))
    }

    /// Groups the hashes among the secrets.
    pub(super) fn of(secrets: &[Secret]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (index, text) in
            secrets.iter().enumerate().filter_map(|(index, secret)| Some((index, secret.hash()?)))
        {
            let Ok(hash) = PasswordHash::new(text) else { continue };
            let Some(output) = hash.hash else { continue };
            match groups.iter_mut().find(|group| group.takes(&hash)) {
                Some(group) => group.outputs.push((index, output)),
                None => groups.push(Group { hash, outputs: vec![(index, output)] }),
            }
        }
        groups
    }

    /// Evaluates Argon2 once. Returns the index of the secret that the password matches.
    pub(super) fn evaluate(&self, password: &[u8]) -> Option<usize> {
        let PasswordHash { algorithm, version, salt, .. } = &self.hash;
        let params = Params::try_from(&self.hash).ok()?;
        let algorithm = Some(algorithm.as_str());
        let evaluated =
            Argon2::default().hash_password_customized(password, salt.as_ref()?, algorithm, *version, params);
        let output = evaluated.ok()?.hash?;
        // All outputs are compared, so that the time does not reveal the matching one.
        let found = |found: Option<usize>, (index, right): &(usize, Output)| {
            if bool::from(right.as_bytes().ct_eq(output.as_bytes())) { Some(*index) } else { found }
        };
        self.outputs.iter().fold(None, found)
    }
}

/// Returns the salt for an additional password: that of the existing hashes, so that one evaluation checks them all, or a new
/// one.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn salt_beside(secrets: &[Secret]) -> Result<Salt> {
    let shared =
        Group::of(secrets).into_iter().find(Group::is_as_made_here).and_then(|group| group.hash.salt);
    let Some(salt) = shared else {
        return Ok(Salt::new(&random::<16>()?).expect("16 bytes are a valid salt"));
    };
    Ok(salt)
}
