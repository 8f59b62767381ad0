//! Space of the file system, which a file that grows shares with other users.
//!
//! A segment needs blocks, and only allocating them shows whether there are any. Therefore no task relies on a slot before it
//! has its blocks: before a lane takes a slot, the slots kept for deletes and relocation are given theirs ([`Tier::secure`]).
//! Deletes and relocation then never need to grow the file when the file system is full.
//!
//! A tier is *short* from the moment its file system has no space for another segment. Slots without blocks do not count then,
//! and the tier works like one with a correspondingly smaller user limit. While it is short, a task periodically checks whether
//! there is space again (`background::file_system`). An idle store that is not short makes no such checks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_device::DeviceError;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::error::{Error, Result};
use crate::segments::allocation::{Taken, Was};
use crate::segments::tier::Tier;

/// Minimum interval between two queries of the file system.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes that the file system itself may need when it allocates blocks.
const MARGIN_BYTES: u64 = 1 << 20;

/// State of the file system that holds the tier's file.
pub(crate) struct Room {
    /// Length of the file in bytes.
    grown: tokio::sync::Mutex<u64>,
    looked_at: Mutex<Option<Duration>>,
    short: AtomicBool,
    /// Notified when the tier becomes short, or the store closes.
    pub(crate) changed: Notify,
}

impl Room {
    pub(crate) fn new(bytes: u64) -> Room {
        Room {
            grown: tokio::sync::Mutex::new(bytes),
            looked_at: Mutex::new(None),
            short: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }
}

/// Returns true if a device or its file system had no space.
pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io(DeviceError::Full { .. }))
}

impl Tier {
    /// Returns true if the file system had no space for another segment at the last query.
    pub(crate) fn is_short(&self) -> bool {
        self.room.as_ref().is_some_and(|room| room.short.load(Ordering::Acquire))
    }

    /// Returns the number of further segments that the file system reports space for; `None` if it reports nothing.
    fn room_slots(&self) -> Option<u32> {
        let bytes = self.device().ok()?.room_bytes()?;
        let segment_bytes = u64::from(self.shape().segment_bytes);
        let slots = bytes.saturating_sub(MARGIN_BYTES.min(segment_bytes)) / segment_bytes;
        Some(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    fn set_room(&self, slots: Option<u32>) {
        let mut allocation = self.allocation.lock();
        allocation.of_only_device().set_room(slots);
        self.in_reach.store(self.slots_usable() - allocation.out_of_reach(), Ordering::Relaxed);
    }

    /// Queries the file system, unless that was done a moment ago.
    pub(crate) fn look_at_room(&self) {
        let Some(room) = &self.room else { return };
        let now = self.now();
        {
            let mut looked_at = room.looked_at.lock();
            if looked_at.is_some_and(|at| now < at + LOOK_EVERY) {
                return;
            }
            *looked_at = Some(now);
        }
        if self.is_short() {
            // Its report is not trusted before an allocation succeeded, because there may be a quota.
            return;
        }
        let slots = self.room_slots();
        self.set_room(slots);
        if slots == Some(0) && self.slots_in_reach() < self.slots_usable() {
            self.becomes_short();
        }
    }

    fn becomes_short(&self) {
        let Some(room) = &self.room else { return };
        self.set_room(Some(0));
        if !room.short.swap(true, Ordering::AcqRel) {
            room.changed.notify_one();
        }
    }

    /// Takes a slot if more than `keep` are free, and gives it its blocks.
    pub(crate) async fn take_slot(&self, keep: u32) -> Result<Option<u32>> {
        self.look_at_room();
        loop {
            let taken = self.allocation.lock().take(keep);
            let Some(taken) = taken else { return Ok(None) };
            match self.ensure_room(taken).await {
                Ok(()) => return Ok(Some(taken.slot)),
                Err(error) => {
                    self.give_back_slot(taken.slot);
                    if !is_full(&error) {
                        return Err(error);
                    }
                    // Another slot may have its blocks.
                    self.becomes_short();
                }
            }
        }
    }

    /// Gives a taken slot its blocks, if it may lack them.
    async fn ensure_room(&self, taken: Taken) -> Result<()> {
        let Some(room) = &self.room else { return Ok(()) };
        self.slot(taken.slot).set_blank(taken.was != Was::Stale);
        match taken.was {
            Was::Stale | Was::Secured => Ok(()),
            Was::Fresh | Was::Discarded => self.give_blocks(&mut *room.grown.lock().await, taken.slot).await,
        }
    }

    /// Extends a file to the length of `slots` slots. Allocates no space for them.
    pub(crate) async fn extend(&self, slots: u32) -> Result<()> {
        let Some(room) = &self.room else { return Ok(()) };
        self.extend_to(&mut *room.grown.lock().await, self.device_offset(slots, 0)).await
    }

    /// Truncates a file, durably, behind `slots` slots if it is longer.
    pub(crate) async fn cut_off(&self, slots: u32) -> Result<()> {
        let Some(room) = &self.room else { return Ok(()) };
        let (mut grown, bytes) = (room.grown.lock().await, self.device_offset(slots, 0));
        if *grown >= bytes {
            self.device()?.resize(bytes).await.map_err(Error::from)?;
            *grown = bytes;
        }
        Ok(())
    }

    async fn extend_to(&self, grown: &mut u64, bytes: u64) -> Result<()> {
        if *grown < bytes {
            self.device()?.extend(bytes).await.map_err(Error::from)?;
            *grown = bytes;
        }
        Ok(())
    }

    /// Returns true if the tier is a file that grows.
    pub(crate) fn grows(&self) -> bool {
        self.room.is_some()
    }

    /// Allocates the blocks of a slot in a file.
    async fn give_blocks(&self, grown: &mut u64, slot: u32) -> Result<()> {
        let device = self.device()?;
        let (start, end) = (self.device_offset(slot, 0), self.device_offset(slot + 1, 0));
        // The file is long enough, unless it was truncated and the loss accepted, or this slot is secured in advance.
        self.extend_to(grown, end).await?;
        let given = device.allocate(start, end - start).await.map_err(Error::from);
        if given.as_ref().is_err_and(is_full) {
            // Some blocks may have been allocated; return them to other users.
            let (start, end) = self.between_markers(slot, device.geometry().discard_bytes);
            if start < end {
                let _ = device.discard(start, end - start).await;
            }
        }
        given
    }

    /// Makes a taken slot free again that has its blocks and was not written to.
    pub(crate) fn give_back_with_blocks(&self, slot: u32) {
        let mut allocation = self.allocation.lock();
        if self.room.is_some() { allocation.secured(slot) } else { allocation.give_back(slot) }
    }

    /// Gives blocks to free slots until `slots` have them, as far as the file system has space.
    pub(crate) async fn secure(&self, slots: u32) -> Result<()> {
        let Some(room) = &self.room else { return Ok(()) };
        self.look_at_room();
        self.secure_more(room, slots).await.map(drop)
    }

    /// Like [`secure`](Self::secure). Returns false if the file system has too little space.
    async fn secure_more(&self, room: &Room, slots: u32) -> Result<bool> {
        let mut grown = room.grown.lock().await;
        loop {
            let next = self.allocation.lock().of_only_device().next_to_secure(slots);
            let Some(slot) = next else { return Ok(self.allocation.lock().with_blocks() >= slots) };
            match self.give_blocks(&mut grown, slot).await {
                Ok(()) => self.give_back_with_blocks(slot),
                Err(error) => {
                    self.give_back_slot(slot);
                    self.becomes_short();
                    return if is_full(&error) { Ok(false) } else { Err(error) };
                }
            }
        }
    }

    /// Opening: starts discarding freed slots.
    pub(crate) fn begin_discards(&self) -> Result<()> {
        let in_file = match &self.room {
            Some(_) => self.slots_within(self.device()?.geometry().bytes),
            None => 0,
        };
        self.allocation(|slots| slots.begin_discards(in_file));
        Ok(())
    }

    /// Returns the number of whole slots in a file of `bytes`.
    fn slots_within(&self, bytes: u64) -> u32 {
        (bytes.saturating_sub(self.device_offset(0, 0)) / u64::from(self.shape().segment_bytes)) as u32
    }

    /// Opening: like [`secure`](Self::secure) and, if the file system is full, finds the free slots that have their blocks.
    pub(crate) async fn secure_or_find(&self, slots: u32) -> Result<()> {
        let Some(room) = &self.room else { return Ok(()) };
        self.secure(slots).await?;
        if !self.is_short() {
            return Ok(());
        }
        let mut grown = room.grown.lock().await;
        let in_file = self.slots_within(*grown);
        for slot in self.allocation(|slots| slots.of_only_device().doubtful(in_file)) {
            if self.allocation(|allocation| {
                allocation.with_blocks() >= slots || !allocation.of_only_device().pick(slot)
            }) {
                break;
            }
            match self.give_blocks(&mut grown, slot).await {
                Ok(()) => self.give_back_with_blocks(slot),
                Err(error) => {
                    self.give_back_slot(slot);
                    if !is_full(&error) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if the tier is no longer short, because the file system provided space for another segment.
    pub(crate) async fn tries_for_room(&self) -> Result<bool> {
        let Some(room) = &self.room else { return Ok(true) };
        // Requires space for two, because otherwise the tier would be short again after the next.
        if self.room_slots().is_some_and(|slots| slots < 2) {
            return Ok(false);
        }
        let wanted = self.allocation(|slots| slots.with_blocks()) + 1;
        self.set_room(Some(1));
        if !self.secure_more(room, wanted).await? {
            return Ok(false);
        }
        room.short.store(false, Ordering::Release);
        self.set_room(self.room_slots());
        Ok(true)
    }
}
