//! Refusals of calls of scripts, until the attempt to run the scripts has ended.

use crate::service::acl_log::{OBJECT_BYTES_MAX, Reason};

/// Different refusals held for one attempt; beyond it, the oldest is dropped.
const DENIALS_MAX: usize = 16;

/// Maximum bytes of the held refusals of an attempt.
pub(in crate::resp) const DENIALS_BYTES_MAX: usize = DENIALS_MAX * (OBJECT_BYTES_MAX + size_of::<Denial>());

/// Refusals of calls of scripts, held until the attempt to run the scripts has ended: scripts that run again are refused
/// again.
#[derive(Clone, Default)]
pub(crate) struct Denials(pub(super) Vec<Denial>);

/// A refusal of a call of a script, and how often it happened.
#[derive(Clone)]
pub(super) struct Denial {
    pub(super) reason: Reason,
    pub(super) object: Vec<u8>,
    pub(super) command: &'static str,
    pub(super) times: u64,
}

impl Denials {
    pub(super) fn add(&mut self, reason: Reason, object: &[u8], command: &'static str) {
        let object = &object[..object.len().min(OBJECT_BYTES_MAX)];
        let is_equal =
            |held: &&mut Denial| held.reason == reason && held.object == object && held.command == command;
        if let Some(held) = self.0.iter_mut().find(is_equal) {
            held.times += 1;
            return;
        }
        if self.0.len() == DENIALS_MAX {
            self.0.remove(0);
        }
        self.0.push(Denial { reason, object: object.to_vec(), command, times: 1 });
    }

    /// Discards the refusals of an attempt that is repeated.
    pub(in crate::resp) fn clear(&mut self) {
        self.0.clear();
    }
}
