//! Content of a tier's slots, judged by their first and last bytes.

use std::sync::Arc;

use esker_log::{
    FOOTER_BYTES, Footer, SlotEnds, SlotFinder, SlotStart, Superblock, Tier as TierName, slot_start,
};
use esker_seeded_bugs::{Bug, planted};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Found, RecoveryContext, Unmarked};
use super::reading::read_border;

use crate::base::error::{Error, Result};
use crate::open::progress::RecoveryStep;
use crate::segments::tier::Tier;

/// Content of the slots of all tiers.
#[derive(Default)]
pub(super) struct InSlots {
    pub(super) found: Vec<Found>,
    /// Highest segment number in any slot, freed segments included.
    pub(super) highest: u64,
    pub(super) unmarked: Vec<Unmarked>,
}

/// Number of slots after which the progress is noted.
const NOTED_EVERY: u32 = 1024;
/// Maximum number of reads in flight.
const DEPTH: usize = 64;

impl RecoveryContext<'_> {
    /// Step 1. Adds the content of a tier's slots to `known`.
    pub(super) async fn find_segments(
        &self,
        tier: &Arc<Tier>,
        superblock: &Superblock,
        known: &mut InSlots,
    ) -> Result<()> {
        let device = tier.device()?;
        let on_device =
            device.geometry().bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes;
        // Shorter than the superblock's count only if the loss of the rest was accepted.
        let used = u64::from(superblock.used_slots).min(on_device) as u32;
        let name = tier.name();
        let mut finder = SlotFinder::new(superblock);
        let seen = |slot, ends| if tier.is_out_of_use(slot) { SlotEnds::OUT_OF_USE } else { ends };
        self.read_ends(tier, used, |slot, ends| {
            let ends = &seen(slot, *ends);
            tell_stray(name, slot, ends);
            let half_freed = ends.half_freed().filter(|_| slot < tier.slots_total());
            let half_freed = half_freed.filter(|_| !planted(Bug::HalfFreedLeft));
            known.unmarked.extend(half_freed.map(|segment| Unmarked { tier: name, slot, segment }));
            if !planted(Bug::FreedNumberForgotten) {
                known.highest = known.highest.max(ends.highest_segment());
            }
            finder.see(slot, ends);
        })
        .await?;
        if finder.needs_second_look() {
            self.read_ends(tier, used, |slot, ends| finder.see_again(slot, &seen(slot, *ends))).await?;
        }
        let found = finder.finish();
        let used = used.min(tier.slots_total());
        let mut taken = found.iter().map(|f| f.slot).peekable();
        let free = (0..used).filter(|slot| taken.next_if_eq(slot).is_none());
        let of_devices: Vec<u32> = match superblock.devices.is_empty() {
            true => vec![used],
            false => superblock.devices.iter().map(|device| device.used_slots).collect(),
        };
        tier.restore_allocation(&of_devices, free.collect());
        known.found.extend(found.into_iter().map(|in_slot| Found { tier: name, in_slot }));
        Ok(())
    }

    /// Refuses a limit that excludes a segment. Slots beyond the limit that only may have held a segment were checked
    /// before.
    pub(super) fn refuse_low_limit(&self, slots: &[(TierName, u32)]) -> Result<()> {
        for (tier, _) in &self.tiers {
            let last = slots.iter().filter(|(on, _)| *on == tier.name()).map(|(_, slot)| *slot).max();
            let Some(last) = last.filter(|&slot| slot >= tier.slots_total()) else { continue };
            return Err(Error::invalid(format!(
                "the limit of the {} tier leaves it {} bytes of {}, but its segments reach up to {}; raise it",
                tier.name().name(),
                tier.device_offset(tier.slots_total(), 0),
                tier.device_name(),
                tier.device_offset(last + 1, 0)
            )));
        }
        Ok(())
    }

    /// Reads the starts and ends of the first `used` slots, and calls `see` with each. Holds only those in flight.
    async fn read_ends(&self, tier: &Tier, used: u32, mut see: impl FnMut(u32, &SlotEnds)) -> Result<()> {
        // The end of a slot is adjacent to the start of the next one, so one read covers both.
        let look = |slot: u32| async move {
            let (bytes, at) = read_border(tier, slot, used).await?;
            let end = &bytes[at - FOOTER_BYTES..at];
            let footer = Footer::parse(end, &self.secret, tier.shape().segment_bytes);
            let marker = slot_start(end, &self.secret, slot.wrapping_sub(1));
            Ok::<_, Error>((slot_start(&bytes[at..], &self.secret, slot), footer, marker))
        };
        self.progress.begin(RecoveryStep::Slots, used.into(), self.runtime.now());
        let mut borders = stream::iter(0..=used).map(look).buffered(DEPTH);
        let Some((mut start, ..)) = borders.try_next().await? else { return Ok(()) };
        for slot in 0..used {
            let Some((next, footer, marker)) = borders.try_next().await? else { break };
            see(slot, &SlotEnds { start, footer, marker });
            start = next;
            if slot.is_multiple_of(NOTED_EVERY) {
                self.note_slots(f64::from(slot) / f64::from(used));
            }
        }
        Ok(())
    }

    fn note_slots(&self, part: f64) {
        if let Some(at) = self.progress.set(part, self.runtime.now()) {
            tracing::info!(
                percent = at.percent,
                slots = at.all,
                remaining_s = at.remaining.map(|left| left.as_secs()),
                "recovering: reading the ends of slots"
            );
        }
    }
}

/// Logs a slot that begins with data written for another slot.
fn tell_stray(tier: TierName, at: u32, ends: &SlotEnds) {
    if let SlotStart::Stray { segment, slot } = ends.start {
        tracing::error!(
            tier = tier.name(),
            slot = at,
            segment,
            meant_for = slot,
            "misdirected write: the slot has data meant for another slot"
        );
    }
}
