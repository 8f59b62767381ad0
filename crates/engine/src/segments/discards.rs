//! State shared between a tier and its discard task.

use std::sync::atomic::AtomicU64;

use tokio::sync::Notify;

/// State shared between a tier and its discard task.
#[derive(Default)]
pub(crate) struct Discards {
    /// Notified when a slot is freed or the store closes.
    pub(crate) wake: Notify,
    /// Bytes discarded.
    pub(crate) bytes: AtomicU64,
}
