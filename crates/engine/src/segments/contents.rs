//! The part of a sealed segment's summary that stays in memory.

use esker_log::{Entry, EntryList, Kind, next_expiry_ms};

/// Expiry time of a segment in which nothing expires.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// Condition under which a segment counts as expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// A noticeable share of its bytes has expired.
    Noticeable = 0,
    /// Its first record has expired.
    First = 1,
}

impl Expiry {
    pub(crate) const ALL: [Expiry; 2] = [Expiry::Noticeable, Expiry::First];
}

/// The part of a sealed segment's summary that stays in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Expiry times in milliseconds since the Unix epoch, by [`Expiry`].
    pub(super) expires_ms: [u64; 2],
    /// Upper bound of the sequence numbers of its tombstones.
    pub(super) tombstones_through: u64,
}

impl Contents {
    /// Returns the contents of a list, which is read only if an entry is a tombstone or expires.
    pub(crate) fn of_list(entries: &EntryList) -> Contents {
        match entries.has_ends() {
            true => Contents::of(entries.iter()),
            false => Contents { expires_ms: [NEVER_MS; 2], tombstones_through: 0 },
        }
    }

    pub(crate) fn of(entries: impl Iterator<Item = Entry> + Clone) -> Contents {
        Contents::after(entries, 0)
    }

    /// Returns the contents of entries of which those expiring by `now_ms` have been handled already.
    pub(crate) fn after(entries: impl Iterator<Item = Entry> + Clone, now_ms: u64) -> Contents {
        let later = |e: Entry| e.expires_at_ms.filter(|&at| e.kind == Kind::Put && at > now_ms);
        let noticeable = next_expiry_ms(entries.clone(), now_ms).unwrap_or(NEVER_MS);
        let first = entries.clone().filter_map(later).min().unwrap_or(NEVER_MS);
        let tombstones = entries.filter(|e| e.kind == Kind::Tombstone);
        let tombstones_through = tombstones.map(|e| e.sequence).max().unwrap_or(0);
        Contents { expires_ms: [noticeable, first], tombstones_through }
    }

    /// Sets the first expiry to `at_ms` at the latest, so that the segment is examined by then.
    pub(crate) fn again_at(mut self, at_ms: u64) -> Contents {
        let first = &mut self.expires_ms[Expiry::First as usize];
        *first = (*first).min(at_ms);
        self
    }

    /// Returns the contents of a segment of which only the footer, with its noticeable expiry, was read.
    pub(crate) fn of_footer(expires_ms: Option<u64>) -> Contents {
        let first = if expires_ms.is_some() { 0 } else { NEVER_MS };
        Contents { expires_ms: [expires_ms.unwrap_or(NEVER_MS), first], tombstones_through: u64::MAX }
    }
}
