//! Both servers of a copy, and the control of it.

use super::stop::{Stop, Throttle};
use crate::terminal::Failure;
use crate::transfer::keys::Keys;
use crate::transfer::progress::Shown;
use crate::transfer::record::LeftOut;
use crate::transfer::remote::RemoteSink;

/// Tolerance for expiries if a server gives remaining times, in milliseconds.
const TOLERANCE_MS: u64 = 1000;

/// Both servers.
pub(super) struct Ends {
    pub(super) source: Keys,
    pub(super) target: Keys,
    pub(super) sink: RemoteSink,
    pub(super) left_out: LeftOut,
    /// True if all keys of the target come from the source, or extra ones are to be deleted.
    pub(super) is_owned: bool,
    pub(super) throttle: Throttle,
    pub(super) shown: Shown,
    pub(super) stop: Stop,
}

impl Ends {
    /// Returns the largest difference of two expiries that count as the same, in milliseconds.
    pub(super) fn tolerance_ms(&self) -> u64 {
        let is_exact = self.source.has_expiry_times() && self.target.has_expiry_times();
        if is_exact { 0 } else { TOLERANCE_MS }
    }
}

/// The error that the source does not tell its offset.
pub(super) fn no_offset() -> Failure {
    Failure::Failed("the source does not tell its replication offset (INFO replication)".to_owned())
}
