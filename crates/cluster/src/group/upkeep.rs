//! Advances the floor of a group and purges its log, answers proposals that take too long, and abandons snapshots that do not
//! arrive.

use std::sync::Arc;
use std::time::Duration;

use esker_engine::Announced;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::select;

use super::status::count;
use super::{Group, Instance, Slot};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Parts of the log's bytes, of sixteen. Above the first, all groups advance their floors, and groups that are led elsewhere purge the
/// older half of their entries. Above the second, all groups do, although followers need entries. Above the third, all purge up to
/// their floors, and this node proposes no entries.
const FULL: [u64; 3] = [3, 4, 5];
/// Part of the log's bytes for entries of all groups that this node proposed and that are not applied yet. Three nodes that each
/// use it up leave room for the entries of one another below `FULL_WITH_ENTRIES`: otherwise all would wait for each other.
const PROPOSED: u64 = 2;
/// Part of the log's bytes up to which entries of other leaders are taken. Above that the log may have no room for them, and an
/// append that finds none stops its replica.
const FULL_WITH_ENTRIES: u64 = 8;
/// Maximum share of one entry, and of one request with entries, in the log's bytes, as a divisor.
const ENTRY_SHARE: u64 = 16;
/// Bytes of an entry in the log beside its content: the heads of the record and of the entry, and the padding.
const ENTRY_BYTES: u64 = 256;

impl Group {
    /// Looks after the replica until it is stopped.
    pub(super) async fn keep_up(self: Arc<Group>) {
        while !self.queue.is_stopped() {
            let late = self.now().saturating_sub(self.parts.settings.patience);
            count(&self.counters.uncertain, self.queue.answer_late(late));
            count(&self.counters.refused, self.queue.refuse_late(late));
            let refused = self.queue.refuse_others(self.ready_term().ok(), self.serving.leader());
            count(&self.counters.refused, refused);
            // The reason is noted where it is found.
            let _failed = self.abandon_late_install().await;
            if let Ok(instance) = self.running()
                && let Err(error) = self.keep_log(&instance).await
                && !matches!(*self.slot.lock(), Slot::Installing)
                && !self.queue.is_stopped()
            {
                self.fail(error);
            }
            select(Box::pin(self.upkeep.notified()), self.parts.runtime.sleep(INTERVAL)).await;
        }
    }

    /// Returns true if more than this level of the log of all groups is in use.
    fn is_above(&self, level: usize) -> bool {
        let (used, of) = self.parts.log.usage();
        used > of / 16 * FULL[level]
    }

    /// Returns the maximum bytes of an entry, and of the entries in a request: less than the settings say if the log is short.
    pub(super) fn entry_bytes_max(&self) -> usize {
        (self.log_bytes / ENTRY_SHARE) as usize
    }

    /// Announces an entry that this node proposes, until it is applied or void. `None` if it has to wait.
    pub(super) fn announce_proposed(&self, bytes: usize) -> Option<Announced> {
        let part = self.log_bytes / 16;
        let limit_bytes = if planted(Bug::EntriesNotAnnounced) { u64::MAX } else { part * PROPOSED };
        self.parts.log.announce_proposed(bytes as u64 + ENTRY_BYTES, part * FULL[2], limit_bytes)
    }

    /// Announces entries of a leader, until they are appended. `None` if they have to wait.
    pub(super) fn announce_received(&self, entries: usize, bytes: usize) -> Option<Announced> {
        let limit_bytes = match planted(Bug::EntriesNotAnnounced) {
            false => self.log_bytes / 16 * FULL_WITH_ENTRIES,
            true => u64::MAX,
        };
        self.parts.log.announce_received(bytes as u64 + entries as u64 * ENTRY_BYTES, limit_bytes)
    }

    async fn keep_log(&self, instance: &Instance) -> std::io::Result<()> {
        let (settings, applied, is_full) = (&self.parts.settings, instance.applied(), self.is_above(0));
        let is_due = {
            let mut kept = self.kept.lock();
            kept.mark(applied.index, applied.bytes);
            let is_old = self.now().saturating_sub(kept.last_floor) >= settings.floor_interval;
            let is_long = applied.bytes.saturating_sub(kept.bytes_at_floor) >= settings.floor_bytes;
            let is_due = (is_old || is_long || is_full) && applied.index > applied.floor;
            if is_due || is_old {
                kept.last_floor = self.now();
                kept.bytes_at_floor = applied.bytes;
            }
            is_due
        };
        if is_due {
            instance.advance_floor().await?;
        }
        let through = self.purge_through(instance);
        if through > instance.observe().purged {
            instance.purge(through).await;
        }
        Ok(())
    }

    /// Returns the index up to which the log is purged: never above the floor. Entries that a follower needs, also one that is down,
    /// are kept up to the limits of the settings, and less if the log of all groups is full. A leader knows the last entry of each
    /// follower; others may lead next, and keep all up to the limits.
    fn purge_through(&self, instance: &Instance) -> u64 {
        let (settings, applied, observed) = (&self.parts.settings, instance.applied(), instance.observe());
        let needed = observed.matched.iter().map(|(_, matched)| *matched).min().unwrap_or(0);
        let wanted = if observed.brief.is_ready { needed } else { 0 };
        let mut kept = self.kept.lock();
        let by_bytes = kept.above(applied.bytes, settings.log_bytes);
        let mut through = wanted.max(by_bytes).max(applied.index.saturating_sub(settings.log_entries));
        if let Some(sent) = self.sending.lock().values().min() {
            through = through.min(*sent);
        }
        if let Some(copied) = self.copied_through() {
            through = through.min(copied);
        }
        if self.is_above(observed.brief.is_ready.into()) {
            through = through.max(kept.older_half(applied.bytes));
        }
        if self.is_above(2) {
            through = u64::MAX;
        }
        through.min(applied.floor).min(observed.built)
    }
}
