//! How one write is done.

use std::time::Duration;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};

/// A condition of a put or delete, or of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None.
    #[default]
    Always,
    /// Only if the key is not there.
    IfAbsent,
    /// Only if the key is there.
    IfPresent,
    /// Only if the key's version is this.
    IfVersion(u64),
}

impl Condition {
    /// Whether it holds for a key that has this version, or is not there.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Condition::Always => true,
            Condition::IfAbsent => current.is_none(),
            Condition::IfPresent => current.is_some(),
            Condition::IfVersion(version) => current == Some(version),
        }
    }

    /// Whether it holds for a key that has this version, or is not there: for those who compare within
    /// [`Store::update`](crate::Store::update).
    ///
    /// # Errors
    /// `Conflict` if it does not.
    pub fn check(self, key: &[u8], current: Option<u64>) -> Result<()> {
        if self.holds(current) { Ok(()) } else { Err(self.conflict(key, current)) }
    }

    /// The error of a key for which it does not hold.
    pub(crate) fn conflict(self, key: &[u8], current: Option<u64>) -> Error {
        let wanted = match self {
            Condition::Always => "to be anything".to_string(),
            Condition::IfAbsent => "to be absent".to_string(),
            Condition::IfPresent => "to be present".to_string(),
            Condition::IfVersion(version) => format!("to have version {version}"),
        };
        let found = current.map_or("it is absent".to_string(), |version| format!("it has version {version}"));
        let what = format!("expected key \"{}\" {wanted}, but {found}", key.escape_ascii());
        Error::Conflict { what, current }
    }
}

/// How one write is done.
///
/// ```
/// # extern crate esker_engine as esker;
/// use std::time::Duration;
///
/// use esker::{Condition, Durability, WriteOptions};
///
/// let session = WriteOptions::new()
///     .durability(Durability::None)
///     .ttl(Duration::from_secs(600))
///     .condition(Condition::IfAbsent);
/// assert_eq!(session.ttl, Some(Duration::from_secs(600)));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Durability of this write; the store's where `None`.
    pub durability: Option<Durability>,
    /// When the value expires, in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// How long the value lives from the write on. Where [`expires_at_ms`](Self::expires_at_ms) is given too, the earlier
    /// counts.
    pub ttl: Option<Duration>,
    /// What must hold for the write to happen.
    pub condition: Condition,
    /// A number that observers are told with the change, so that whoever writes knows its own:
    /// [`Change::origin`](crate::Change::origin).
    pub origin: u64,
}

impl WriteOptions {
    /// The store's durability, no expiry, no condition.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// Durability of this write, instead of the store's.
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = Some(durability);
        self
    }

    /// Time to live: the value expires so long after it is written, by [`Store::now_ms`](crate::Store::now_ms).
    pub fn ttl(mut self, ttl: Duration) -> WriteOptions {
        self.ttl = Some(ttl);
        self
    }

    /// When the value expires, in wall-clock milliseconds since the Unix epoch.
    pub fn expires_at_ms(mut self, at_ms: u64) -> WriteOptions {
        self.expires_at_ms = Some(at_ms);
        self
    }

    /// What must hold for the write to happen.
    pub fn condition(mut self, condition: Condition) -> WriteOptions {
        self.condition = condition;
        self
    }

    /// A number that observers are told with the change.
    pub fn origin(mut self, origin: u64) -> WriteOptions {
        self.origin = origin;
        self
    }

    /// When what is written now expires.
    pub(crate) fn expiry_ms(&self, now_ms: impl FnOnce() -> u64) -> Option<u64> {
        let lived = self.ttl.map(|ttl| after_ms(now_ms(), ttl));
        self.expires_at_ms.into_iter().chain(lived).min()
    }
}

/// The time at which a time to live is over; parts of a millisecond count whole.
pub(crate) fn after_ms(now_ms: u64, ttl: Duration) -> u64 {
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    now_ms.saturating_add(u64::try_from(ms).unwrap_or(u64::MAX))
}
