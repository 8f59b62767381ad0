//! Taking expired records out of the index soon after they expired, so that they cease to count.
//!
//! What is in memory is looked at there: the entries of open segments. Of a sealed segment the summary has to be read, and
//! if its records expire one after the other, again and again. So it is done in rounds: twice a second, if anything has
//! expired since the last one, the segments are listed in which something has, and their summaries read, no more than so
//! many bytes a second. With few keys that is at once; where a hundred million expire all the time, a round takes minutes.

use std::time::Duration;

use crate::background::reclaimer::Reclaimer;
use crate::base::error::Result;
use crate::segments::contents::Expiry;
use crate::segments::slot::SlotState;

/// A round begins no sooner after the one before.
const ROUND_EVERY: Duration = Duration::from_millis(500);
/// Summaries are read at this rate at most.
const BYTES_PER_S: u64 = 16 << 20;
/// A read counts as no shorter than this.
const LEAST_BYTES: u64 = 64 << 10;
/// A clock that is set forward is noticed within this time.
const LONGEST_REST: Duration = Duration::from_secs(60);

impl Reclaimer<'_> {
    /// Does one piece of a round; false if there is nothing to do now.
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

    /// Takes expired records of one sealed segment, or of the open segments, out of the index, at no bounded rate. Returns
    /// false if there are none. `presses`: puts are refused otherwise, so a clock that has stepped is believed sooner.
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

    /// Does one piece of what puts wait for that find no memory for their keys; false if nothing more has expired, or there is
    /// memory again.
    pub(super) async fn sweep_under_pressure(&mut self) -> Result<bool> {
        Ok(self.catalog.lacks_memory().is_some() && self.expire_one(true).await?)
    }

    /// How long until there is something to do for it, as far as is known.
    pub(super) fn sweep_due(&self) -> Option<Duration> {
        let now = self.space.runtime.now();
        if !self.sweep.segments.is_empty() {
            return Some(self.sweep.next_look.saturating_sub(now));
        }
        let at_ms = self.next_expiry_ms()?;
        let left = Duration::from_millis(at_ms.saturating_sub(self.catalog.confirmed_ms()).max(1));
        Some(left.min(LONGEST_REST).max(self.sweep.next_round.saturating_sub(now)))
    }

    /// Deals with what is in memory, and lists the segments in which something has expired; false if nothing has.
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

    /// When something expires next, or did.
    fn next_expiry_ms(&self) -> Option<u64> {
        let sealed = self.space.tiers().filter_map(|tier| tier.slots().expires_from(Expiry::First));
        let open = self.writer.lanes().filter_map(|lane| lane.expires_from());
        sealed.chain(open).chain(self.relocator.expires_from()).min()
    }
}
