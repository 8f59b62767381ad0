//! Content of a tier's slots, judged by their first and last bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_log::{FOOTER_BYTES, Footer, SlotEnds, SlotStart, Superblock, find_in_slots, slot_start};
use esker_seeded_bugs::{Bug, planted};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Found, RecoveryContext, Segment, Unmarked};
use super::reading::read_border;

use crate::base::error::{Error, Result};
use crate::segments::tier::Tier;

/// Content of the slots of all tiers.
#[derive(Default)]
pub(super) struct InSlots {
    pub(super) found: Vec<Found>,
    /// Highest segment number in any slot, freed segments included.
    pub(super) highest: u64,
    pub(super) unmarked: Vec<Unmarked>,
}

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
        let slots = self.read_ends(tier, used).await?;
        tell_strays(tier, &slots);
        let found = find_in_slots(&slots, superblock.census.is_some());
        let taken: BTreeSet<u32> = found.iter().map(|f| f.slot).collect();
        let used = used.min(tier.slots_total());
        tier.restore_allocation(used, (0..used).filter(|slot| !taken.contains(slot)).collect());
        let name = tier.name();
        let half_freed = (0..used).zip(&slots).filter_map(|(slot, ends)| {
            ends.half_freed().map(|segment| Unmarked { tier: name, slot, segment })
        });
        known.unmarked.extend(half_freed.filter(|_| !planted(Bug::HalfFreedLeft)));
        known.found.extend(found.into_iter().map(|in_slot| Found { tier: name, in_slot }));
        if !planted(Bug::FreedNumberForgotten) {
            known.highest = slots.iter().map(SlotEnds::highest_segment).fold(known.highest, u64::max);
        }
        Ok(())
    }

    /// Refuses a limit that excludes a segment. Slots beyond the limit that only may have held a segment were checked
    /// before.
    pub(super) fn refuse_low_limit(&self, segments: &[Segment]) -> Result<()> {
        for (tier, _) in &self.tiers {
            let last = segments.iter().filter(|s| s.tier == tier.name()).map(|s| s.slot).max();
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

    /// Reads the starts and ends of the first `used` slots.
    async fn read_ends(&self, tier: &Tier, used: u32) -> Result<Vec<SlotEnds>> {
        // The end of a slot is adjacent to the start of the next one, so one read covers both.
        let look = |slot: u32| async move {
            let (bytes, at) = read_border(tier, slot, used).await?;
            let end = &bytes[at - FOOTER_BYTES..at];
            let footer = Footer::parse(end, &self.secret, tier.shape().segment_bytes);
            let marker = slot_start(end, &self.secret, slot.wrapping_sub(1));
            Ok::<_, Error>((slot_start(&bytes[at..], &self.secret, slot), footer, marker))
        };
        let borders: Vec<_> = stream::iter(0..=used).map(look).buffered(DEPTH).try_collect().await?;
        let ends = borders.windows(2).map(|border| {
            let ((start, ..), (_, footer, marker)) = (border[0], border[1]);
            SlotEnds { start, footer, marker }
        });
        Ok(ends.collect())
    }
}

/// Logs the slots that begin with data written for another slot.
fn tell_strays(tier: &Tier, slots: &[SlotEnds]) {
    for (at, ends) in slots.iter().enumerate() {
        let SlotStart::Stray { segment, slot } = ends.start else { continue };
        tracing::error!(
            tier = tier.name().name(),
            slot = at,
            segment,
            meant_for = slot,
            "misdirected write: the slot has data meant for another slot"
        );
    }
}
