//! What the slots of a tier hold, by their first and last bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_log::{FOOTER_BYTES, Footer, SlotEnds, SlotStart, Superblock, find_in_slots, slot_start};
use esker_seeded_bugs::{Bug, planted};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Found, RecoveryContext, Segment, Unmarked};
use super::reading::read_border;

use crate::base::error::{Error, Result};
use crate::segments::tier::Tier;

/// What the slots of all tiers hold.
#[derive(Default)]
pub(super) struct InSlots {
    pub(super) found: Vec<Found>,
    /// The highest segment number in them, of segments that were freed too.
    pub(super) highest: u64,
    pub(super) unmarked: Vec<Unmarked>,
}

/// Reads in flight.
const DEPTH: usize = 64;

impl RecoveryContext<'_> {
    /// Step 1. What the slots of a tier hold is added to what is known of others.
    pub(super) async fn find_segments(
        &self,
        tier: &Arc<Tier>,
        superblock: &Superblock,
        known: &mut InSlots,
    ) -> Result<()> {
        let device = tier.device()?;
        let on_device =
            device.geometry().bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes;
        // It is shorter only where what is missing was given up.
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

    /// Refuses a limit that leaves out a segment. Slots behind it that only may have held one were looked at before.
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

    /// The starts and ends of so many slots.
    async fn read_ends(&self, tier: &Tier, used: u32) -> Result<Vec<SlotEnds>> {
        // The end of a slot lies next to the start of the following one.
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

/// Says which slots begin with what was written for another one.
fn tell_strays(tier: &Tier, slots: &[SlotEnds]) {
    for (at, ends) in slots.iter().enumerate() {
        let SlotStart::Stray { segment, slot } = ends.start else { continue };
        tracing::error!(
            tier = tier.name().name(),
            slot = at,
            segment,
            meant_for = slot,
            "a write went astray"
        );
    }
}
