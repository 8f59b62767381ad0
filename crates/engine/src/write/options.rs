//! How one write is done.

use crate::base::durability::Durability;

/// A condition of a put or delete.
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

/// How one write is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Durability of this write; the store's where `None`.
    pub durability: Option<Durability>,
    /// When the value expires, in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// What must hold for the write to happen.
    pub condition: Condition,
}
