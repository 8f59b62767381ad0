//! The scrub: slowly and repeatedly reads every record that a key leads to, so that rot is found while there still is a backup,
//! or a peer, to restore the key from.
//!
//! A pass reads all sealed segments, in the order of their slots, and ends with the copies of the superblocks. It reads at the
//! configured rate or, without one, so that a pass takes a week. It moves and writes nothing: damage is counted and logged, and
//! reading it remains an error.

use std::sync::Arc;
use std::time::Duration;

use esker_log::Tier as TierName;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::waiting::woken_or_after;
use crate::catalog::Catalog;
use crate::catalog::unidentified::UnreadableSegment;
use crate::read::verification::{SegmentVerification, sealed_segments};
use crate::segments::space::Space;
use crate::write::Writer;
use crate::write::live_options::ScrubRate;

/// Duration of a pass if no rate is configured.
const PASS: Duration = Duration::from_secs(7 * 24 * 3600);
/// Interval at which an empty store is checked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of bytes to wait for before the first read of a pass.
const FIRST_BYTES: u64 = 256 << 10;
/// Pause after a report of unreadable segments, as a multiple of its duration.
const REPORT_PAUSES: u32 = 30;

/// Scrubs until the store closes.
pub(crate) async fn run(writer: Arc<Writer>) {
    let scrub = Scrub { space: &writer.space, catalog: &writer.catalog, writer: &writer };
    loop {
        match scrub.pass().await {
            Ok(()) => {}
            Err(Error::Closed { .. }) => return,
            Err(error) => {
                tracing::error!(%error, "the scrub cannot read a device, and stops until the store is opened again");
                return;
            }
        }
    }
}

struct Scrub<'a> {
    space: &'a Space,
    catalog: &'a Catalog,
    writer: &'a Writer,
}

impl Scrub<'_> {
    /// Does one pass at the configured rate. Waits for a while if the store is empty.
    async fn pass(&self) -> Result<()> {
        let held: u64 = sealed_segments(self.space).map(|(tier, _)| self.segment_bytes(tier)).sum();
        if held == 0 {
            let woken = self.space.scrub.notified();
            self.space.health.check_open()?;
            woken_or_after(&*self.space.runtime, woken, LONGEST_PAUSE).await;
            return Ok(());
        }
        // Also before the first read, so that a store that is opened repeatedly does not read its beginning each time.
        self.pause((held / 16).clamp(1, FIRST_BYTES), held).await?;
        let segments: Vec<_> = sealed_segments(self.space).collect();
        self.space.scrubbed.begin(segments.len() as u64);
        let (mut unreadable, mut report_from) = (Vec::new(), Duration::ZERO);
        for (tier, slot) in segments {
            let mut segment = SegmentVerification::begin(self.space, self.catalog, tier, slot).await?;
            self.pause(segment.verdict.bytes, held).await?;
            while let Some(bytes) = segment.read_next().await? {
                self.pause(bytes, held).await?;
            }
            let verdict = segment.verdict;
            self.space.counters.count_scrubbed(verdict.bytes, verdict.damaged.len() as u64);
            self.tell(&verdict.damaged);
            unreadable.extend(verdict.unreadable);
            // A report may read the whole index. A device with many such segments must not keep a processor busy.
            let began = self.space.runtime.now();
            if !unreadable.is_empty() && began >= report_from {
                self.report_unreadable(std::mem::take(&mut unreadable)).await;
                let ended = self.space.runtime.now();
                report_from = ended + (ended - began) * REPORT_PAUSES;
            }
            self.space.scrubbed.advance();
        }
        self.report_unreadable(unreadable).await;
        let tiers = self.space.tiers().filter(|_| !planted(Bug::ScrubSkipsSuperblocks));
        let damaged = self.space.superblocks.damaged_copies(tiers).await?;
        self.space.counters.count_scrubbed(0, damaged.len() as u64);
        for error in &damaged {
            tracing::error!(%error, "scrub: a copy of a superblock is damaged; the next superblock write repairs it");
        }
        self.space.counters.count_scrub_pass();
        Ok(())
    }

    async fn report_unreadable(&self, unreadable: Vec<UnreadableSegment>) {
        let damaged = self.catalog.report_unreadable(unreadable).await;
        self.space.counters.count_scrubbed(0, damaged.len() as u64);
        self.tell(&damaged);
    }

    fn tell(&self, damaged: &[Error]) {
        for error in damaged {
            tracing::error!(%error, "scrub: damage; restore the key, or put or delete it");
        }
    }

    fn segment_bytes(&self, tier: TierName) -> u64 {
        self.space.tier(tier).shape().segment_bytes.into()
    }

    /// Waits until more may be read after `bytes`; while the scrub is off, until it is on.
    async fn pause(&self, bytes: u64, held: u64) -> Result<()> {
        let mut owed = bytes as f64;
        loop {
            let woken = self.space.scrub.notified();
            self.space.health.check_open()?;
            let rate = match self.writer.changeable.scrub_rate() {
                ScrubRate::BytesPerSecond(rate) => rate as f64,
                ScrubRate::PassInAWeek => held as f64 / PASS.as_secs_f64(),
                ScrubRate::Off => {
                    woken.await;
                    continue;
                }
            };
            // A duration has a resolution of nanoseconds.
            if owed <= rate * 1e-6 {
                return Ok(());
            }
            let began = self.space.runtime.now();
            woken_or_after(&*self.space.runtime, woken, Duration::from_secs_f64(owed / rate)).await;
            owed -= (self.space.runtime.now() - began).as_secs_f64() * rate;
        }
    }
}
