//! What is kept in memory of a sealed segment's summary.

use esker_log::{Entry, Kind, next_expiry_ms};

/// Nothing in a segment expires.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// When a segment counts as expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// When noticeably many of its bytes have.
    Noticeable = 0,
    /// When its first record has.
    First = 1,
}

impl Expiry {
    pub(crate) const ALL: [Expiry; 2] = [Expiry::Noticeable, Expiry::First];
}

/// What is kept of a sealed segment's summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// By [`Expiry`].
    pub(super) expires_ms: [u64; 2],
    /// No tombstone in it has a higher sequence number.
    pub(super) tombstones_through: u64,
}

impl Contents {
    pub(crate) fn of(entries: impl Iterator<Item = Entry> + Clone) -> Contents {
        Contents::after(entries, 0)
    }

    /// Of entries of which those that expire by then have been dealt with.
    pub(crate) fn after(entries: impl Iterator<Item = Entry> + Clone, now_ms: u64) -> Contents {
        let later = |e: Entry| e.expires_at_ms.filter(|&at| e.kind == Kind::Put && at > now_ms);
        let noticeable = next_expiry_ms(entries.clone(), now_ms).unwrap_or(NEVER_MS);
        let first = entries.clone().filter_map(later).min().unwrap_or(NEVER_MS);
        let tombstones = entries.filter(|e| e.kind == Kind::Tombstone);
        let tombstones_through = tombstones.map(|e| e.sequence).max().unwrap_or(0);
        Contents { expires_ms: [noticeable, first], tombstones_through }
    }

    /// It is to be looked at by then, whatever is in it.
    pub(crate) fn again_at(mut self, at_ms: u64) -> Contents {
        let first = &mut self.expires_ms[Expiry::First as usize];
        *first = (*first).min(at_ms);
        self
    }

    /// Of a segment of which only the footer was read: when it expires noticeably.
    pub(crate) fn of_footer(expires_ms: Option<u64>) -> Contents {
        let first = if expires_ms.is_some() { 0 } else { NEVER_MS };
        Contents { expires_ms: [expires_ms.unwrap_or(NEVER_MS), first], tombstones_through: u64::MAX }
    }
}
