//! State that a replica keeps between the steps of its tasks.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::raft::error::GroupError;
use crate::raft::instance::Instance;

/// Number of marks over the bytes of the log, and maximum bytes of entries between two marks.
const MARKS: u64 = 4096;
const MARK_BYTES: u64 = 64 << 10;

/// Readers that wait for the next round.
#[derive(Default)]
pub(super) struct Confirming {
    pub(super) waiting: Vec<oneshot::Sender<Result<(), GroupError>>>,
    pub(super) is_running: bool,
}

/// A transfer that is being received, or was.
pub(super) struct Incoming {
    pub(super) transfer: u64,
    pub(super) proof: Bytes,
    /// Number of the next part; `None` after the last one.
    pub(super) next: Option<u32>,
    /// True once the member runs on the received keyspace.
    pub(super) is_installed: bool,
    pub(super) last_part: Duration,
}

/// A copy for a backup in progress.
pub(super) struct RunningCopy {
    /// Index above which it needs the log.
    pub(super) after: u64,
    pub(super) last_step: Duration,
    /// The member that it began with: another one may have another keyspace.
    pub(super) member: Weak<Instance>,
}

/// Marks and floors of the log of a group.
pub(super) struct Kept {
    pub(super) last_floor: Duration,
    pub(super) bytes_at_floor: u64,
    /// Indexes, with the bytes of entries applied until then.
    marks: VecDeque<(u64, u64)>,
    mark_bytes: u64,
}

impl Kept {
    pub(super) fn new(now: Duration, log_bytes: u64) -> Kept {
        let mark_bytes = (log_bytes / MARKS).min(MARK_BYTES);
        Kept { last_floor: now, bytes_at_floor: 0, marks: VecDeque::new(), mark_bytes }
    }

    /// Notes how many bytes were applied up to an index. A member that has started anew counts from 0.
    pub(super) fn mark(&mut self, index: u64, bytes: u64) {
        let newest = self.marks.back().map_or(0, |(_, last)| *last);
        if bytes < newest.max(self.bytes_at_floor) {
            (self.bytes_at_floor, self.marks) = (0, VecDeque::new());
        }
        if self.marks.back().is_none_or(|(_, last)| bytes >= last + self.mark_bytes) {
            self.marks.push_back((index, bytes));
        }
    }

    /// Returns the last index above which there are at least `keep` bytes, or 0. Older marks are forgotten.
    pub(super) fn above(&mut self, bytes: u64, keep: u64) -> u64 {
        let mut through = 0;
        while let Some(&(index, at)) = self.marks.front().filter(|(_, at)| bytes - at > keep) {
            through = index;
            self.marks.pop_front();
            if self.marks.is_empty() {
                self.marks.push_back((index, at));
                break;
            }
        }
        through
    }

    /// Returns the last index of the older half of the bytes that are kept, or 0. Its marks are forgotten.
    pub(super) fn older_half(&mut self, bytes: u64) -> u64 {
        let oldest = self.marks.front().map_or(bytes, |(_, at)| *at);
        self.above(bytes, (bytes - oldest) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_halves_are_purged_down_to_one_mark() {
        let mut kept = Kept::new(Duration::ZERO, 4096 * 100);
        (0..=80).for_each(|index| kept.mark(index, index * 100));
        let halves: Vec<u64> = (0..8).map(|_| kept.older_half(8000)).collect();
        // Up to the index itself. A mark is left, above which nothing is given up.
        assert_eq!(halves, [39, 59, 69, 74, 77, 78, 79, 0]);
        assert_eq!(kept.above(8000, 0), 0);
        kept.mark(90, 9000);
        assert_eq!(kept.older_half(9000), 80);
    }
}
