//! What the slots of a tier hold, by their first and last bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_log::{FOOTER_BYTES, Footer, SlotStart, Superblock, slot_start};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{Found, Scene};
use crate::error::{Error, Result};
use crate::tier::Tier;

/// Reads in flight.
const DEPTH: usize = 64;

impl Scene<'_> {
    /// Step 1. What the slots of a tier hold, and the highest segment number in them, of segments that were freed too.
    pub(super) async fn find_segments(
        &self,
        tier: &Arc<Tier>,
        superblock: &Superblock,
    ) -> Result<(Vec<Found>, u64)> {
        let device = tier.device()?;
        let on_device =
            device.geometry().bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes;
        let used = u64::from(superblock.used_slots).min(on_device).min(tier.slots().len() as u64) as u32;
        let segment_bytes = tier.shape().segment_bytes;
        // The end of a slot lies next to the start of the following one.
        let look = |slot: u32| async move {
            let (bytes, at) = tier.read_border(slot, used).await?;
            let end = &bytes[at - FOOTER_BYTES..at];
            let footer = Footer::parse(end, &self.secret, segment_bytes);
            let freed = match slot_start(end, &self.secret) {
                SlotStart::Free(freed) => freed,
                _ => None,
            };
            Ok::<_, Error>((slot_start(&bytes[at..], &self.secret), footer, freed))
        };
        let borders: Vec<_> = stream::iter(0..=used).map(look).buffered(DEPTH).try_collect().await?;
        let mut free = BTreeSet::new();
        let mut found = Vec::new();
        let mut highest = 0;
        for (slot, border) in (0..used).zip(borders.windows(2)) {
            let ((start, ..), (_, footer, freed_at_end)) = (border[0], border[1]);
            let tier = tier.name();
            let at_start = match start {
                SlotStart::Frame(first) => Some(first.segment),
                SlotStart::Free(freed) => freed,
                SlotStart::Unknown => None,
            };
            let at_end = freed_at_end.max(footer.map(|f| f.segment));
            highest = highest.max(at_start.max(at_end).unwrap_or(0));
            match (start, footer) {
                (SlotStart::Frame(first), _) if freed_at_end == Some(first.segment) => {
                    // It was being freed; everything in it that counts was durable elsewhere.
                    free.insert(slot);
                }
                (SlotStart::Frame(first), footer) => {
                    // No slot is used again before the end of the segment that was there is gone.
                    let contradicted = footer.is_some_and(|f| f.segment != first.segment);
                    let footer = footer.filter(|_| !contradicted);
                    found.push(Found { tier, slot, first: Some(first), footer, after: 0, contradicted });
                }
                // A start that was lost: the end of a segment that is freed is gone before its start.
                (SlotStart::Free(_), Some(footer)) => {
                    found.push(Found {
                        tier,
                        slot,
                        first: None,
                        footer: Some(footer),
                        after: 0,
                        contradicted: false,
                    });
                }
                (SlotStart::Free(_), _) => drop(free.insert(slot)),
                (SlotStart::Unknown, footer) => {
                    let after = freed_at_end.unwrap_or(0);
                    found.push(Found { tier, slot, first: None, footer, after, contradicted: false });
                }
            }
        }
        tier.restore_allocation(used, free);
        Ok((found, highest))
    }
}
