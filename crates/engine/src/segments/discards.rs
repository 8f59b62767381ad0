//! What the task that discards on a tier shares with the tier.

use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

/// What the task that discards on a tier shares with others.
#[derive(Default)]
pub(crate) struct Discards {
    /// A slot was freed, or the store closes.
    pub(crate) wake: Notify,
    /// Bytes that were discarded.
    pub(crate) bytes: AtomicU64,
}
