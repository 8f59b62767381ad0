//! The handle of the log for its owner, the replication.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::key::LogKey;
use super::lane::{LogLane, LogRecord};

use crate::base::completion::Waiter;
use crate::base::error::{Error, Result};

/// The log of replicated groups. Each group has consecutive entries and up to 256 small states.
///
/// Changes are readable when their call returns, and durable when [`Written::durable`] returns. They become durable in the
/// order of the calls, for all groups: after a crash a prefix of all changes is left, which has at least all durable ones.
#[derive(Clone)]
pub struct GroupLog {
    lane: Arc<LogLane>,
}

/// A change that was made in memory.
#[must_use = "it is not durable yet"]
pub struct Written(Waiter);

impl Written {
    /// Waits until the change, and all changes before it, survive a power failure.
    ///
    /// # Errors
    /// `Closed` or `Io` if a write failed: the store has stopped, and the change may or may not survive.
    pub async fn durable(self) -> Result<()> {
        self.0.wait().await
    }
}

/// Kinds of announced records.
const PROPOSED: usize = 0;
const RECEIVED: usize = 1;

/// Room in the log for records that are about to be appended.
#[must_use = "dropping it ends the announcement"]
pub struct Announced {
    lane: Arc<LogLane>,
    kind: usize,
    bytes: u64,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.lane.announced[self.kind].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl GroupLog {
    pub(crate) fn new(lane: Arc<LogLane>) -> GroupLog {
        GroupLog { lane }
    }

    /// Returns the groups that ever had a record.
    pub fn groups(&self) -> Vec<u8> {
        self.lane.state.lock().contents.groups()
    }

    /// Returns the indexes of the entries that a group holds. If it holds none, the range is empty: at the index behind the
    /// purged ones, or at 0.
    pub fn range(&self, group: u8) -> Range<u64> {
        self.lane.state.lock().contents.range(group)
    }

    /// Returns the last purged index of a group, and the note of that purge.
    pub fn purged(&self, group: u8) -> Option<(u64, Bytes)> {
        self.lane.state.lock().contents.purged(group)
    }

    /// Returns a state of a group.
    pub fn state(&self, group: u8, number: u8) -> Option<Bytes> {
        self.lane.state.lock().contents.state(group, number)
    }

    /// Returns the entries of a group in a range of indexes. Indexes that the group does not hold are left out.
    ///
    /// # Errors
    /// `Corrupt` if a record does not verify, `Io` if the device cannot read it, `Closed` after a close.
    pub async fn read(&self, group: u8, range: Range<u64>) -> Result<Vec<Bytes>> {
        self.lane.entries(group, range).await
    }

    /// Appends entries with consecutive indexes from `first` on. The first entry of a group may have any index.
    ///
    /// # Errors
    /// `Invalid` if `first` is not the next index, or an entry is longer than a segment; `Full` if the groups need all
    /// slots of the log; `Closed` after a close or a failed write. Some of the entries may have been appended.
    pub async fn append<T: AsRef<[u8]>>(&self, group: u8, first: u64, entries: &[T]) -> Result<Written> {
        let held = self.range(group);
        let is_new = held.is_empty() && self.purged(group).is_none();
        if !is_new && first != held.end {
            return Err(Error::invalid(format!(
                "entry {first} of group {group} does not follow its last one: the next index is {}",
                held.end
            )));
        }
        let record = |(index, entry)| {
            let value = AsRef::<[u8]>::as_ref(entry);
            LogRecord { key: LogKey::Entry { group, index }, value }
        };
        let records: Vec<_> = (first..).zip(entries).map(record).collect();
        self.lane.append(&records, true).await.map(Written)
    }

    /// Sets a state of a group.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn set_state(&self, group: u8, number: u8, value: &[u8]) -> Result<Written> {
        self.change(LogKey::State { group, number }, value).await
    }

    /// Sets a state of a group that need not be durable before the next change that is waited for.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn note_state(&self, group: u8, number: u8, value: &[u8]) -> Result<()> {
        let key = LogKey::State { group, number };
        self.lane.append(&[LogRecord { key, value }], false).await.map(drop)
    }

    /// Removes the entries of a group from index `from` on.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn truncate(&self, group: u8, from: u64) -> Result<Written> {
        self.change(LogKey::Truncate { group, from }, &[]).await
    }

    /// Removes the entries of a group up to index `through`, which is less than `u64::MAX`. The next entry may have any higher index if the group then
    /// holds none. `note` is returned by [`purged`](Self::purged).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn purge(&self, group: u8, through: u64, note: &[u8]) -> Result<Written> {
        self.change(LogKey::Purge { group, through }, note).await
    }

    /// Removes all entries of a group, and the note of its last purge. Its states stay, and its next entry may have any index.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn forget(&self, group: u8) -> Result<Written> {
        self.change(LogKey::Purge { group, through: u64::MAX }, &[]).await
    }

    /// Returns the number of records, from the first one ever, that are durable. It never falls: an opening finds at least as
    /// many.
    pub fn durable_records(&self) -> u64 {
        self.lane.state.lock().durable_number
    }

    /// Returns the number of records, from the first one ever, that the opening found.
    pub fn found_records(&self) -> u64 {
        self.lane.found_records
    }

    /// Returns the bytes of current records of all groups, and the bytes of the slots that records can take: all but two, for
    /// the next segment and for copies. Records that are current in old segments are copied forward while they take at most
    /// half of that. Above half, an append may find the log full.
    pub fn usage(&self) -> (u64, u64) {
        (self.lane.state.lock().contents.live_bytes(), self.lane.usable_bytes())
    }

    /// Announces records of this many bytes that this node proposes, if current records take at most `full_bytes`, and all
    /// proposals that are announced at most `limit_bytes`. The latter does not hold for the only one. Dropping the returned value
    /// ends the announcement.
    pub fn announce_proposed(&self, bytes: u64, full_bytes: u64, limit_bytes: u64) -> Option<Announced> {
        let state = self.lane.state.lock();
        let announced = self.lane.announced[PROPOSED].load(Ordering::Relaxed);
        let fits = announced == 0 || announced + bytes <= limit_bytes;
        (fits && state.contents.live_bytes() <= full_bytes).then(|| self.announced(PROPOSED, bytes))
    }

    /// Announces records of this many bytes that another node sent, if they, all that are current and all received ones that are
    /// announced take at most `limit_bytes`. The only one may take more. Dropping the returned value ends the announcement: the
    /// records are current by then.
    pub fn announce_received(&self, bytes: u64, limit_bytes: u64) -> Option<Announced> {
        let state = self.lane.state.lock();
        let (current, announced) =
            (state.contents.live_bytes(), self.lane.announced[RECEIVED].load(Ordering::Relaxed));
        let fits = current + announced + bytes <= limit_bytes || (announced == 0 && current <= limit_bytes);
        fits.then(|| self.announced(RECEIVED, bytes))
    }

    fn announced(&self, kind: usize, bytes: u64) -> Announced {
        self.lane.announced[kind].fetch_add(bytes, Ordering::Relaxed);
        Announced { lane: self.lane.clone(), kind, bytes }
    }

    async fn change(&self, key: LogKey, value: &[u8]) -> Result<Written> {
        self.lane.append(&[LogRecord { key, value }], true).await.map(Written)
    }
}
