//! The failure of one of several devices of a tier, in a store that leaves it out.
//!
//! 1. The first failed write or flush ends all writing to the device ([`FailStop`](esker_device::FailStop)). Each operation that
//!    fails asks [`Space::survives`], and is repeated if the answer is yes.
//! 2. The segments that lanes are filling on the device are in memory as a whole. Each is written again to a free slot of another
//!    device, durably.
//! 3. The superblocks of the other devices map the slot of the segment to the place of the other slot, durably, before anything
//!    that was to be written to the failed device is acknowledged, because otherwise the next opening would look for it there.
//! 4. Frames that were begun meanwhile are written to the new place. Only then is the device left out of flushes, because until
//!    then its failed flush must not be passed over.
//! 5. Its sealed segments count as damaged: they are not collected, and their slots are not taken.

use std::sync::Arc;

use esker_device::{SegmentBuffer, Source, WriteMode};
use esker_log::{MOVED_MAX, MovedSlot};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::segments::accounting::{Content, Origin};
use crate::segments::members::{Members, path_of};
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::segments::tier::Tier;

impl Space {
    /// Called with the error of a write or flush. Returns true if the operation is to be repeated: a device has failed, the store
    /// left it out, and the segments that lanes were filling on it have another place.
    pub(crate) async fn survives(&self, tier: &Tier, error: &Error) -> bool {
        let Some(members) = tier.members().filter(|members| members.serves()) else { return false };
        let Some(path) = path_of(error) else { return false };
        members.fail_without_space(path, error);
        let _turn = self.changing_devices.lock().await;
        if let Err(error) = self.leave_out_failed(tier, members).await {
            tracing::error!(%error, "cannot go on without a device that failed");
            return false;
        }
        members.is_left_out(path)
    }

    /// Returns true if a slot lies on a device that was left out.
    pub(crate) fn is_lost(tier: &Tier, slot: u32) -> bool {
        tier.members().is_some_and(|members| {
            members.place(slot).is_some_and(|place| members.has_left_out(place.member))
        })
    }

    /// Steps 2 to 5.
    async fn leave_out_failed(&self, tier: &Tier, members: &Members) -> Result<()> {
        let striped = members.striped()?;
        let failed: Vec<usize> = (0..striped.positions()).filter(|&p| striped.failure(p).is_some()).collect();
        if members.healthy().is_empty() {
            return Err(Error::invalid("every device of the tier has failed"));
        }
        for &position in failed.iter().filter(|&&position| !striped.is_left_out(position)) {
            let path = striped.member(position).map_or(String::new(), |device| device.path());
            let cause = striped.failure(position).map_or(String::new(), |error| error.to_string());
            tracing::error!(%path, %cause, "a device failed; the store goes on without it, and keys on it cannot be read");
            tier.close_member(position, true);
        }
        self.note_limit();
        let is_there = |slot: &u32| members.place(*slot).is_some_and(|place| failed.contains(&place.member));
        let skips = planted(Bug::OpenSegmentNotMoved);
        for slot in members.open.slots().into_iter().filter(|slot| is_there(slot) && !skips) {
            self.write_elsewhere(tier, slot).await?;
        }
        failed.iter().for_each(|&position| striped.leave_out(position));
        let slots = tier.slots();
        let lost: Vec<u32> = slots.sealed().map(|(slot, _)| slot).filter(is_there).collect();
        lost.into_iter().for_each(|slot| slots.set_state(slot, SlotState::Damaged));
        self.reclaim.notify_one();
        Ok(())
    }

    /// Gives the segment that a lane is filling in a slot another place.
    async fn write_elsewhere(&self, tier: &Tier, slot: u32) -> Result<()> {
        let members = tier.members().expect("it has several devices");
        let Some((buffer, end)) = members.open.get(slot) else { return Ok(()) };
        let to = loop {
            let taken = tier.allocation(|slots| slots.take(0));
            let Some(taken) = taken else {
                return Err(Error::invalid(
                    "no slot is free on another device for a segment that was being written",
                ));
            };
            let written = async {
                self.superblocks.cover_slot(tier, taken.slot).await?;
                self.write_again(tier, taken.slot, &buffer, 0..end).await
            };
            match written.await {
                Ok(()) => break taken.slot,
                // Another device failed as well.
                Err(error) if path_of(&error).is_some() && tier.close_failed() => {}
                Err(error) => return Err(error),
            }
        };
        self.superblocks
            .update_tier(tier, |superblock| {
                if superblock.moved.len() == MOVED_MAX {
                    return Err(Error::invalid(format!(
                        "{MOVED_MAX} segments were moved from failed devices already"
                    )));
                }
                superblock.moved.push(MovedSlot { slot, to });
                Ok(())
            })
            .await?;
        let striped = members.striped()?;
        let mut map = striped.map();
        map.move_slot(slot, to);
        tier.allocation(|slots| slots.set_map(map.clone()));
        striped.set_map(map);
        // Frames that were begun before the slot had its new place.
        let (_, end_now) = members.open.get(slot).unwrap_or((buffer.clone(), end));
        self.write_again(tier, slot, &buffer, end..end_now).await
    }

    /// Writes a part of a segment's memory to a slot, durably.
    async fn write_again(
        &self,
        tier: &Tier,
        slot: u32,
        buffer: &Arc<SegmentBuffer>,
        range: std::ops::Range<u32>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let payload_bytes = range.end - range.start;
        let content = Content::Frame { origin: Origin::Recovered, header_bytes: 0, payload_bytes };
        let source =
            Source::Shared { buffer: buffer.clone(), range: range.start as usize..range.end as usize };
        let device = tier.device()?;
        tier.write(&device, slot, range.start, source, WriteMode::Durable, content).await
    }

    /// Stops the store after a failure that leaves the medium in doubt.
    pub(crate) fn latch(&self, error: &Error) {
        let stopped = self.tiers().find_map(|tier| tier.stopped_by(error));
        self.health.latch(stopped.as_ref().unwrap_or(error));
    }

    /// Flushes a tier: all writes that completed before are durable.
    pub(crate) async fn flush_tier(&self, tier: &Tier) -> Result<()> {
        loop {
            match tier.device()?.flush().await.map_err(Error::from) {
                Err(error) if self.survives(tier, &error).await => {}
                flushed => return flushed,
            }
        }
    }
}

impl Tier {
    /// Returns the error with which the store stops if a device of this tier failed, which has several: it names the device and
    /// the option.
    fn stopped_by(&self, error: &Error) -> Option<Error> {
        let (Error::Io(cause), Some(members), Some(path)) = (error, self.members(), path_of(error)) else {
            return None;
        };
        let is_of_it = members.has_failed(path) && !members.serves();
        is_of_it.then(|| Error::DeviceFailed { cause: cause.clone(), option: OptionName::OnDeviceLoss })
    }

    /// Returns the failure if one of these slots is on a device that was left out.
    pub(crate) fn check_not_lost(&self, mut slots: impl Iterator<Item = u32>) -> Result<()> {
        let Some(members) = self.members().filter(|members| members.has_left_out_any()) else {
            return Ok(());
        };
        let is_lost = |slot: &u32| Space::is_lost(self, *slot) && !planted(Bug::CopiesOnLostDeviceBelieved);
        let Some(lost) = slots.find(is_lost) else { return Ok(()) };
        let position = members.place(lost).map(|place| place.member);
        let failure =
            position.map(|position| Ok::<_, Error>(members.striped()?.failure(position))).transpose()?;
        failure.flatten().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Takes no more slots of devices that have failed. Returns true if there was one.
    fn close_failed(&self) -> bool {
        let Some(Ok(striped)) = self.members().map(|members| members.striped()) else { return false };
        let failed: Vec<usize> = (0..striped.positions()).filter(|&p| striped.failure(p).is_some()).collect();
        failed.iter().for_each(|&position| self.close_member(position, true));
        !failed.is_empty()
    }
}
