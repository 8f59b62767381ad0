//! Sweep: removes expired records from the index soon after their expiry, so that they no longer count.
//!
//! Entries of open segments are in memory. For a sealed segment the summary must be read, repeatedly if its records expire one
//! after the other. The sweep therefore works in rounds: twice a second, if any record has expired since the last round, it
//! lists the segments with expired records and reads their summaries, at a bounded rate. With few keys a round is over at once;
//! with a hundred million that expire continuously, it takes minutes.

use std::time::Duration;

use crate::background::reclaimer::Reclaimer;
use crate::base::error::Result;
use crate::segments::contents::Expiry;
use crate::segments::slot::SlotState;

/// Minimum interval between the starts of two rounds.
const ROUND_EVERY: Duration = Duration::from_millis(500);
/// Maximum rate of reading summaries in bytes per second.
const BYTES_PER_S: u64 = 16 << 20;
/// Minimum number of bytes that a read counts as.
const LEAST_BYTES: u64 = 64 << 10;
/// Maximum time until a clock that was set forward is noticed.
const LONGEST_REST: Duration = Duration::from_secs(60);

impl Reclaimer<'_> {
    /// Does one piece of a round. Returns false if there is nothing to do now.
    pub(super) async fn sweep(&mut self) -> Result<bool> {
        let now = self.space.runtime.now();
        if self.sweep.segments.is_empty() && !self.begin_round(now).await? {
            return Ok(false);
        }
        if now < self.sweep.next_look {
            return Ok(false);
        }
        let Some((tier, slot)) = self.sweep.segments.pop() else { return Ok(true) };
        if self.space.tier(tier).slot(slot).state() == SlotState::Sealed {
            let bytes = self.expire(tier, slot).await?.max(LEAST_BYTES);
            self.sweep.next_look = now + Duration::from_micros(bytes * 1_000_000 / BYTES_PER_S);
        }
        Ok(true)
    }

    /// Removes expired records of one sealed segment, or of the open segments, from the index, at no bounded rate. Returns
    /// false if there are none. `presses`: true if puts are refused otherwise; a clock that has stepped is then trusted sooner.
    pub(crate) async fn expire_one(&mut self, presses: bool) -> Result<bool> {
        if presses {
            self.catalog.confirmed_under_pressure_ms();
        }
        if let Some((tier, slot)) = self.expired(Expiry::First) {
            self.expire(tier, slot).await?;
            return Ok(true);
        }
        self.expirer.expire_open().await
    }

    /// Does one piece of the sweep that puts without index memory wait for. Returns false if no more records have expired, or
    /// if there is memory again.
    pub(super) async fn sweep_under_pressure(&mut self) -> Result<bool> {
        Ok(self.catalog.lacks_memory().is_some() && self.expire_one(true).await?)
    }

    /// Returns the time until the next piece of work, as far as it is known.
    pub(super) fn sweep_due(&self) -> Option<Duration> {
        let now = self.space.runtime.now();
        if !self.sweep.segments.is_empty() {
            return Some(self.sweep.next_look.saturating_sub(now));
        }
        let at_ms = self.next_expiry_ms()?;
        let left = Duration::from_millis(at_ms.saturating_sub(self.catalog.confirmed_ms()).max(1));
        Some(left.min(LONGEST_REST).max(self.sweep.next_round.saturating_sub(now)))
    }

    /// Sweeps the records in memory, and lists the segments with expired records. Returns false if nothing has expired.
    async fn begin_round(&mut self, now: Duration) -> Result<bool> {
        let now_ms = self.catalog.confirmed_ms();
        if now < self.sweep.next_round || self.next_expiry_ms().is_none_or(|at_ms| now_ms < at_ms) {
            return Ok(false);
        }
        self.sweep.next_round = now + ROUND_EVERY;
        self.expirer.expire_open().await?;
        self.relocator.expire_outputs().await?;
        for tier in self.space.tiers() {
            let expired = tier.slots().all_expired(Expiry::First, now_ms);
            self.sweep.segments.extend(expired.into_iter().map(|slot| (tier.name(), slot)));
        }
        Ok(true)
    }

    /// Returns the earliest expiry, past or future.
    fn next_expiry_ms(&self) -> Option<u64> {
        let sealed = self.space.tiers().filter_map(|tier| tier.slots().expires_from(Expiry::First));
        let open = self.writer.lanes().filter_map(|lane| lane.expires_from());
        sealed.chain(open).chain(self.relocator.expires_from()).min()
    }
}
