//! The store's clock: which records have expired, and which of them for good.
//!
//! The wall clock says whether a record has expired. It may be wrong, and be set right again, so what follows from it and
//! cannot be taken back (taking records out of the index, dropping them in relocation) is done only by time that
//! monotonic time *confirms* (`confirmed`). What has expired by that is covered by a *watermark* (`watermarks`): it stays
//! expired, whatever the clock says later.
//!
//! A reader who finds a record expired by the wall clock alone deletes it: the tombstone makes that a fact of this key and
//! of no other. See `docs/decisions/0011-the-wall-clock.md`.
//!
//! Watermarks are in the superblocks, written when the store closes and, while it is open, within a second after they were
//! raised; a reader's tombstone is on the medium as soon.

mod confirmed;
mod reported;
mod watermarks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_log::{ExpiryWatermark, Superblock};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::{Mutex, RwLock};

use self::confirmed::ConfirmedTime;
use self::reported::Reported;
pub(crate) use self::reported::ReportedRecord;
use self::watermarks::Watermarks;

use crate::base::error::Result;
use crate::catalog::Catalog;

/// A step of the wall clock is believed after so long, and where puts have to be refused otherwise, after so long.
const STEP_LASTS: Duration = Duration::from_secs(3600);
const STEP_LASTS_UNDER_PRESSURE: Duration = Duration::from_secs(60);
/// A clock that has stepped is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often watermarks are written at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Whether a record has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has not.
    Alive,
    /// It has, for good.
    Expired,
    /// By the wall clock, which may be wrong. Whoever tells somebody must make it a fact:
    /// `Writer::keep_expired`.
    Unconfirmed,
}

/// What is known of time.
pub(crate) struct Clock {
    confirmed: Mutex<ConfirmedTime>,
    watermarks: RwLock<Watermarks>,
    /// Latest time of any watermark: what expires later need not look at them.
    latest_ms: AtomicU64,
    /// How often they were raised, and how often they had been when they were last written.
    raised: AtomicU64,
    saved: AtomicU64,
    /// When they may be written next, by the runtime's clock.
    save_from: Mutex<Duration>,
    reported: Reported,
}

impl Clock {
    /// The time that had come for certain when these superblocks were written, in milliseconds since the Unix epoch.
    pub(crate) fn known_ms<'a>(superblocks: impl IntoIterator<Item = &'a Superblock>) -> u64 {
        // One that was never saved: the store was made at a time that had come.
        superblocks.into_iter().map(|s| s.clock_ms.max(s.created_at_ms)).max().unwrap_or(0)
    }

    /// The clock of a store with these superblocks. `next_expiry_ms`: the earliest expiry after
    /// [`known_ms`](Self::known_ms) of a record that the store holds.
    pub(crate) fn new(
        superblocks: &[Superblock],
        wall_ms: u64,
        now: Duration,
        next_expiry_ms: Option<u64>,
    ) -> Clock {
        let known_ms = Clock::known_ms(superblocks);
        let superblocks = if planted(Bug::ClockForgotten) { &[] } else { superblocks };
        let watermarks = Watermarks::of(superblocks.iter().flat_map(|s| s.expired.clone()).collect());
        Clock {
            confirmed: Mutex::new(ConfirmedTime::new(known_ms, wall_ms, now, next_expiry_ms)),
            latest_ms: AtomicU64::new(watermarks.latest_ms()),
            watermarks: RwLock::new(watermarks),
            raised: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            save_from: Mutex::new(Duration::ZERO),
            reported: Reported::default(),
        }
    }

    /// Records reported as expired that have no tombstone yet.
    pub(crate) fn reported(&self) -> &Reported {
        &self.reported
    }

    /// Whether a record has expired for good.
    pub(crate) fn covers(&self, sequence: u64, expires_at_ms: u64) -> bool {
        expires_at_ms <= self.latest_ms.load(Ordering::Acquire)
            && self.watermarks.read().cover(sequence, expires_at_ms)
    }

    fn is_due(&self) -> bool {
        self.raised.load(Ordering::Acquire) > self.saved.load(Ordering::Acquire)
    }
}

impl Catalog {
    /// The wall clock's time, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        self.space.runtime.wall_clock_ms()
    }

    /// The time that has come for certain.
    pub(crate) fn confirmed_ms(&self) -> u64 {
        self.look_at_clock(STEP_LASTS)
    }

    /// The same where something has to expire soon, or else puts are refused.
    pub(crate) fn confirmed_under_pressure_ms(&self) -> u64 {
        self.look_at_clock(STEP_LASTS_UNDER_PRESSURE)
    }

    fn look_at_clock(&self, lasts: Duration) -> u64 {
        let mut confirmed = self.clock.confirmed.lock();
        let stepped = confirmed.has_stepped();
        let time_ms = confirmed.look(self.space.runtime.wall_clock_ms(), self.space.runtime.now(), lasts);
        if confirmed.has_stepped() && !stepped {
            // It looks at the clock until it is known what to make of it.
            self.space.reclaim.notify_one();
        }
        // What expires by a time that no watermark can say is not confirmed: keys that are read get tombstones.
        let can_be_said = self.clock.watermarks.read().takes(time_ms) || planted(Bug::WatermarksMerged);
        if can_be_said { time_ms } else { 0 }
    }

    /// What time it is, if the wall clock is wrong whenever it is not believed.
    fn expected_ms(&self) -> u64 {
        self.confirmed_ms();
        self.clock.confirmed.lock().expected_ms(self.space.runtime.now())
    }

    /// Whether a record has expired.
    pub(crate) fn life(&self, sequence: u64, expires_at_ms: Option<u64>) -> Life {
        let Some(at_ms) = expires_at_ms else { return Life::Alive };
        if self.clock.covers(sequence, at_ms) || self.clock.reported.has(sequence) {
            return Life::Expired;
        }
        if self.now_ms() < at_ms + u64::from(planted(Bug::ExpiryOffByOne)) {
            return Life::Alive;
        }
        if self.confirmed_ms() < at_ms {
            return Life::Unconfirmed;
        }
        self.expire_for_good(at_ms);
        Life::Expired
    }

    /// What was written up to now and expires by that time has expired, whatever the clock says later.
    pub(crate) fn expire_for_good(&self, time_ms: u64) {
        let clock = &self.clock;
        let mut watermarks = clock.watermarks.write();
        // Under the lock, so that they are raised in the order of these numbers.
        let sequence = self.space.sequence.load(Ordering::Acquire);
        if watermarks.cover(sequence, time_ms) {
            return;
        }
        if !watermarks.raise(ExpiryWatermark { sequence, time_ms }) {
            return;
        }
        clock.latest_ms.store(watermarks.latest_ms(), Ordering::Release);
        drop(watermarks);
        clock.raised.fetch_add(1, Ordering::AcqRel);
        self.space.watermarks.notify_one();
    }

    /// How long until the clock is to be looked at; `None`: it has not stepped.
    pub(crate) fn clock_due(&self) -> Option<Duration> {
        self.clock.confirmed.lock().has_stepped().then_some(LOOK_EVERY)
    }

    /// How long until watermarks are to be written; `None`: none was raised.
    pub(crate) fn watermarks_due(&self) -> Option<Duration> {
        self.clock.is_due().then(|| self.clock.save_from.lock().saturating_sub(self.space.runtime.now()))
    }

    /// Writes watermarks if there are new ones and the last were written long enough ago.
    pub(crate) async fn save_watermarks(&self) -> Result<()> {
        if !self.clock.is_due() || *self.clock.save_from.lock() > self.space.runtime.now() {
            return Ok(());
        }
        *self.clock.save_from.lock() = self.space.runtime.now() + SAVE_EVERY;
        self.write_clock().await
    }

    /// Covers records reported as expired that have no tombstone, as the store closes and cannot write one: that no key
    /// returns matters more than what else expires by these watermarks.
    pub(crate) fn cover_reported(&self) {
        if let Some(at_ms) = self.clock.reported.latest_ms() {
            self.expire_for_good(at_ms);
        }
    }

    /// What superblocks say of time now.
    pub(crate) fn note_clock(&self, superblock: &mut Superblock) {
        superblock.clock_ms = self.expected_ms();
        superblock.expired = self.clock.watermarks.read().to_vec();
    }

    async fn write_clock(&self) -> Result<()> {
        let raised = self.clock.raised.load(Ordering::Acquire);
        self.space.update_superblocks(|_, superblock| self.note_clock(superblock)).await?;
        let raised = match planted(Bug::WatermarkSavedTooSoon) {
            false => raised,
            true => self.clock.raised.load(Ordering::Acquire),
        };
        self.clock.saved.fetch_max(raised, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Plan;

    #[test]
    fn time_that_no_watermark_can_say_is_not_confirmed() {
        let bench = Plan::new(1).build();
        let (catalog, now_ms) = (&bench.catalog, bench.catalog.now_ms());
        let later: Vec<_> =
            (0..16).map(|at| ExpiryWatermark { sequence: at, time_ms: now_ms + 1000 - at }).collect();
        *catalog.clock.watermarks.write() = Watermarks::of(later);
        catalog.clock.latest_ms.store(now_ms + 1000, Ordering::Release);
        assert_eq!(catalog.life(100, Some(now_ms)), Life::Unconfirmed, "it gets a tombstone if someone asks");
        assert_eq!(catalog.confirmed_ms(), 0, "nothing is swept");
        assert_eq!(catalog.life(15, Some(now_ms)), Life::Expired, "it is covered");
        // Time catches up.
        bench.run(bench.sleep(Duration::from_secs(2)));
        assert_eq!(catalog.life(100, Some(now_ms)), Life::Expired);
    }
}
