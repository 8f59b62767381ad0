//! Options of a write.

use std::time::Duration;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};

/// A condition of a put or delete, or of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    #[default]
    Always,
    /// The key must be absent.
    IfAbsent,
    /// The key must be present.
    IfPresent,
    /// The key must have this version.
    IfVersion(u64),
}

impl Condition {
    /// Returns true if the condition holds for a key of this version, or for an absent key.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Condition::Always => true,
            Condition::IfAbsent => current.is_none(),
            Condition::IfPresent => current.is_some(),
            Condition::IfVersion(version) => current == Some(version),
        }
    }

    /// Checks that the condition holds for a key of this version, or for an absent key. For comparisons within
    /// [`Store::update`](crate::Store::update).
    ///
    /// # Errors
    /// `Conflict` if it does not hold.
    pub fn check(self, key: &[u8], current: Option<u64>) -> Result<()> {
        if self.holds(current) { Ok(()) } else { Err(self.conflict(key, current)) }
    }

    /// Returns the error for a key for which the condition does not hold.
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
    /// Durability of this write; that of the store if `None`.
    pub durability: Option<Durability>,
    /// Expiry of the value, in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Time to live of the value from the write on. If [`expires_at_ms`](Self::expires_at_ms) is also given, the earlier time
    /// counts.
    pub ttl: Option<Duration>,
    /// Condition that must hold for the write to happen.
    pub condition: Condition,
    /// A number passed to observers with the change, by which a writer recognizes its own changes:
    /// [`Change::origin`](crate::Change::origin).
    pub origin: u64,
}

impl WriteOptions {
    /// Returns options with the store's durability, no expiry and no condition.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// Sets the durability of this write, instead of the store's.
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = Some(durability);
        self
    }

    /// Sets the time to live: the value expires this long after the write, by [`Store::now_ms`](crate::Store::now_ms).
    pub fn ttl(mut self, ttl: Duration) -> WriteOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the expiry of the value, in wall-clock milliseconds since the Unix epoch.
    pub fn expires_at_ms(mut self, at_ms: u64) -> WriteOptions {
        self.expires_at_ms = Some(at_ms);
        self
    }

    /// Sets the condition that must hold for the write to happen.
    pub fn condition(mut self, condition: Condition) -> WriteOptions {
        self.condition = condition;
        self
    }

    /// Sets the number that is passed to observers with the change.
    pub fn origin(mut self, origin: u64) -> WriteOptions {
        self.origin = origin;
        self
    }

    /// Returns the expiry of a value written now.
    pub(crate) fn expiry_ms(&self, now_ms: impl FnOnce() -> u64) -> Option<u64> {
        let lived = self.ttl.map(|ttl| after_ms(now_ms(), ttl));
        self.expires_at_ms.into_iter().chain(lived).min()
    }
}

/// Returns the end of a time to live, rounded up to whole milliseconds.
pub(crate) fn after_ms(now_ms: u64, ttl: Duration) -> u64 {
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    now_ms.saturating_add(u64::try_from(ms).unwrap_or(u64::MAX))
}
