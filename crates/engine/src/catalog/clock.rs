//! The store's clock: decides which records have expired, and which of them permanently.
//!
//! The wall clock decides whether a record has expired. It may be wrong, and be corrected later. Irreversible
//! consequences of expiry (removal from the index, dropping in relocation) therefore only follow time that monotonic
//! time *confirms* (`confirmed`). A *watermark* (`watermarks`) covers the records that have expired by that time: they
//! stay expired, whatever the clock says later.
//!
//! A reader that finds a record expired by the wall clock alone deletes it: the tombstone makes the expiry of this key
//! permanent, and of no other. See `docs/decisions/0011-the-wall-clock.md`.
//!
//! Superblocks store the watermarks. They are written when the store closes and, while it is open, within a second
//! after a watermark was raised; a reader's tombstone is durable equally soon.

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

/// How long a step of the wall clock must last before it is believed.
const STEP_LASTS: Duration = Duration::from_secs(3600);
// The same, if puts would be refused otherwise.
const STEP_LASTS_UNDER_PRESSURE: Duration = Duration::from_secs(60);
/// Interval between checks of a clock that has stepped.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Minimum interval between writes of watermarks.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Expiry state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Not expired.
    Alive,
    /// Expired permanently.
    Expired,
    /// Expired by the wall clock, which may be wrong. The expiry must be made permanent before a caller sees it:
    /// `Writer::keep_expired`.
    Unconfirmed,
}

/// State of the store's clock.
pub(crate) struct Clock {
    confirmed: Mutex<ConfirmedTime>,
    watermarks: RwLock<Watermarks>,
    /// Latest time of any watermark, in milliseconds: a record with a later expiry is not covered by any.
    latest_ms: AtomicU64,
    /// How often watermarks were raised, and the value of that count when they were last written.
    raised: AtomicU64,
    saved: AtomicU64,
    /// Earliest time of the next write of watermarks, on the runtime's clock.
    save_from: Mutex<Duration>,
    reported: Reported,
    /// False if no time is confirmed: then a record expires by a tombstone only.
    confirms: bool,
}

impl Clock {
    /// Returns the latest time known to have passed when these superblocks were written, in milliseconds since the Unix
    /// epoch.
    pub(crate) fn known_ms<'a>(superblocks: impl IntoIterator<Item = &'a Superblock>) -> u64 {
        // The creation time counts too, for a store that never saved its clock.
        superblocks.into_iter().map(|s| s.clock_ms.max(s.created_at_ms)).max().unwrap_or(0)
    }

    /// Creates the clock of a store with these superblocks. `next_expiry_ms`: the earliest expiry after
    /// [`known_ms`](Self::known_ms) among the store's records.
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
            confirms: true,
        }
    }

    /// Makes this the clock of a member of a cluster. Clocks of nodes differ, so it confirms no time, and raises no
    /// watermark.
    pub(crate) fn of_member(self) -> Clock {
        Clock { confirms: planted(Bug::ReplicatedClockBelieved), ..self }
    }

    /// Returns the records reported as expired that have no tombstone yet.
    pub(crate) fn reported(&self) -> &Reported {
        &self.reported
    }

    /// Returns true if a watermark covers the record: it has expired permanently.
    pub(crate) fn covers(&self, sequence: u64, expires_at_ms: u64) -> bool {
        expires_at_ms <= self.latest_ms.load(Ordering::Acquire)
            && self.watermarks.read().cover(sequence, expires_at_ms)
    }

    fn is_due(&self) -> bool {
        self.raised.load(Ordering::Acquire) > self.saved.load(Ordering::Acquire)
    }
}

impl Catalog {
    /// Returns the wall clock's time, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        self.space.runtime.wall_clock_ms()
    }

    /// Returns the confirmed time, in milliseconds since the Unix epoch.
    pub(crate) fn confirmed_ms(&self) -> u64 {
        self.look_at_clock(STEP_LASTS)
    }

    /// As [`confirmed_ms`](Self::confirmed_ms), believing a step sooner because puts would be refused otherwise.
    pub(crate) fn confirmed_under_pressure_ms(&self) -> u64 {
        self.look_at_clock(STEP_LASTS_UNDER_PRESSURE)
    }

    fn look_at_clock(&self, lasts: Duration) -> u64 {
        let mut confirmed = self.clock.confirmed.lock();
        let stepped = confirmed.has_stepped();
        let time_ms = confirmed.look(self.space.runtime.wall_clock_ms(), self.space.runtime.now(), lasts);
        if confirmed.has_stepped() && !stepped {
            // The reclaimer checks the clock periodically until the step is believed or over.
            self.space.reclaim.notify_one();
        }
        // A time that no watermark can represent is not confirmed: expired keys get tombstones when they are read.
        let can_be_said = self.clock.watermarks.read().takes(time_ms) || planted(Bug::WatermarksMerged);
        if can_be_said && self.clock.confirms { time_ms } else { 0 }
    }

    /// Returns the current time as extrapolated from the last believed wall-clock time.
    fn expected_ms(&self) -> u64 {
        self.confirmed_ms();
        self.clock.confirmed.lock().expected_ms(self.space.runtime.now())
    }

    /// Returns the expiry state of a record.
    pub(crate) fn life(&self, sequence: u64, expires_at_ms: Option<u64>) -> Life {
        let Some(at_ms) = expires_at_ms else { return Life::Alive };
        if self.clock.covers(sequence, at_ms) || self.clock.reported.has(sequence) {
            return Life::Expired;
        }
        if self.now_ms() < at_ms + u64::from(planted(Bug::ExpiryOffByOne)) {
            return Life::Alive;
        }
        let confirmed_ms = self.confirmed_ms();
        match confirmed_ms >= at_ms && confirmed_ms > 0 && self.expire_confirmed(at_ms, confirmed_ms) {
            true => Life::Expired,
            false => Life::Unconfirmed,
        }
    }

    /// Raises a watermark for records that have expired by the confirmed time: to `at_ms`, or to the confirmed time if
    /// watermarks of later times leave no place for `at_ms`. Returns false if neither can be added: then the records must not be
    /// reported as expired, because they could reappear.
    pub(crate) fn expire_confirmed(&self, at_ms: u64, confirmed_ms: u64) -> bool {
        self.expire_for_good(at_ms)
            || planted(Bug::RefusedWatermarkIgnored)
            || self.expire_for_good(confirmed_ms)
    }

    /// Raises a watermark: records written so far that expire by `time_ms` are expired permanently. Returns false if
    /// [`Watermarks::takes`] refuses it.
    pub(crate) fn expire_for_good(&self, time_ms: u64) -> bool {
        let clock = &self.clock;
        let mut watermarks = clock.watermarks.write();
        // Read under the lock, so that watermarks are raised in the order of sequence numbers.
        let sequence = self.space.sequence.load(Ordering::Acquire);
        if watermarks.cover(sequence, time_ms) {
            return true;
        }
        if !watermarks.raise(ExpiryWatermark { sequence, time_ms }) {
            return false;
        }
        clock.latest_ms.store(watermarks.latest_ms(), Ordering::Release);
        drop(watermarks);
        clock.raised.fetch_add(1, Ordering::AcqRel);
        self.space.watermarks.notify_one();
        true
    }

    /// Returns the time until the next check of the clock; `None` if it has not stepped.
    pub(crate) fn clock_due(&self) -> Option<Duration> {
        self.clock.confirmed.lock().has_stepped().then_some(LOOK_EVERY)
    }

    /// Returns the time until the next write of watermarks; `None` if none was raised.
    pub(crate) fn watermarks_due(&self) -> Option<Duration> {
        self.clock.is_due().then(|| self.clock.save_from.lock().saturating_sub(self.space.runtime.now()))
    }

    /// Writes the watermarks if there are new ones and the last write was long enough ago.
    pub(crate) async fn save_watermarks(&self) -> Result<()> {
        if !self.clock.is_due() || *self.clock.save_from.lock() > self.space.runtime.now() {
            return Ok(());
        }
        *self.clock.save_from.lock() = self.space.runtime.now() + SAVE_EVERY;
        self.write_clock().await
    }

    /// Raises a watermark that covers the records reported as expired without a tombstone, because a closing store
    /// cannot write tombstones. It may cover other records too; it is more important that no reported key reappears.
    pub(crate) fn cover_reported(&self) {
        if let Some(at_ms) = self.clock.reported.latest_ms() {
            self.expire_for_good(at_ms);
        }
    }

    /// Updates the clock fields of a superblock.
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
        // Time passes the watermarks.
        bench.run(bench.sleep(Duration::from_secs(2)));
        assert_eq!(catalog.life(100, Some(now_ms)), Life::Expired);
    }

    /// The confirmed time can be represented, but not the earlier expiry of the record.
    #[test]
    fn record_reported_as_expired_is_covered_by_a_watermark() {
        let bench = Plan::new(1).build();
        let (catalog, now_ms) = (&bench.catalog, bench.catalog.now_ms());
        let earlier =
            (0..16).map(|at| ExpiryWatermark { sequence: at, time_ms: now_ms - 500 - at }).collect();
        *catalog.clock.watermarks.write() = Watermarks::of(earlier);
        catalog.clock.latest_ms.store(now_ms - 500, Ordering::Release);
        catalog.space.sequence.store(100, Ordering::Release);
        let at_ms = now_ms - 1000;
        assert!(!catalog.clock.watermarks.read().takes(at_ms) && catalog.confirmed_ms() >= now_ms);
        assert_eq!(catalog.life(100, Some(at_ms)), Life::Expired);
        assert!(catalog.clock.covers(100, at_ms), "it stays expired if the clock is set back");
        assert!(!catalog.clock.covers(100, now_ms + 1), "nothing expires early");
    }
}
