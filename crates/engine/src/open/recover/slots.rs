//! What the slots of a tier hold, by their first and last bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_log::{FOOTER_BYTES, Footer, FrameHeader, SlotStart, Superblock, slot_start};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Found, RecoveryContext};

use crate::base::error::{Error, Result};
use crate::segments::tier::Tier;

/// Reads in flight.
const DEPTH: usize = 64;

impl RecoveryContext<'_> {
    /// Step 1. What the slots of a tier hold, and the highest segment number in them, of segments that were freed too.
    pub(super) async fn find_segments(
        &self,
        tier: &Arc<Tier>,
        superblock: &Superblock,
    ) -> Result<(Vec<Found>, u64)> {
        let (used, slots) = self.read_ends(tier, superblock).await?;
        let highest = slots.iter().map(Ends::highest).max().unwrap_or(0);
        let mut beheaded = beheaded(tier, &slots);
        let blank = if superblock.census.is_some() { 0..0 } else { may_have_begun(&slots) };
        let known: BTreeSet<u64> = slots.iter().filter_map(Ends::segment_at_start).collect();
        let mut free = BTreeSet::new();
        let mut found = Vec::new();
        for (slot, ends) in (0..used).zip(slots) {
            let beheaded = beheaded.remove(&slot);
            let look = beheaded || ends.has_lost_start() || blank.contains(&slot) && ends.is_blank();
            match ends.holds(&known, look) {
                Some((first, footer)) => found.push(Found {
                    tier: tier.name(),
                    slot,
                    first,
                    footer,
                    after: ends.freed_at_end().or(ends.freed_at_start()).unwrap_or(0),
                    contradicted: first.is_some() && ends.is_end_of_another(),
                    beheaded,
                    may_be_torn: ends.is_blank(),
                }),
                None => drop(free.insert(slot)),
            }
        }
        check_limit(tier, &found)?;
        let used = used.min(tier.slots_total());
        free.retain(|&slot| slot < used);
        tier.restore_allocation(used, free);
        Ok((found, highest))
    }

    /// Reads the starts and ends of all slots that were ever used, and returns how many those are.
    async fn read_ends(&self, tier: &Arc<Tier>, superblock: &Superblock) -> Result<(u32, Vec<Ends>)> {
        let device = tier.device()?;
        let on_device =
            device.geometry().bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes;
        // It is shorter only where what is missing was given up.
        let used = u64::from(superblock.used_slots).min(on_device) as u32;
        let segment_bytes = tier.shape().segment_bytes;
        // The end of a slot lies next to the start of the following one.
        let look = |slot: u32| async move {
            let (bytes, at) = tier.read_border(slot, used).await?;
            let end = &bytes[at - FOOTER_BYTES..at];
            let footer = Footer::parse(end, &self.secret, segment_bytes);
            let marker = slot_start(end, &self.secret, slot.wrapping_sub(1));
            Ok::<_, Error>((slot_start(&bytes[at..], &self.secret, slot), footer, marker))
        };
        let borders: Vec<_> = stream::iter(0..=used).map(look).buffered(DEPTH).try_collect().await?;
        let ends = borders.windows(2).map(|border| {
            let ((start, ..), (_, footer, marker)) = (border[0], border[1]);
            Ends { start, footer, marker }
        });
        Ok((used, ends.collect()))
    }
}

/// Refuses a limit below segments that are there.
fn check_limit(tier: &Tier, found: &[Found]) -> Result<()> {
    let last = found.iter().map(|found| found.slot).max();
    let Some(last) = last.filter(|&slot| slot >= tier.slots_total()) else { return Ok(()) };
    Err(Error::invalid(format!(
        "the limit of the {} tier leaves it {} bytes of {}, but its segments reach up to {}; raise it",
        tier.name().name(),
        tier.device_offset(tier.slots_total(), 0),
        tier.device_name(),
        tier.device_offset(last + 1, 0)
    )))
}

/// What the start and the end of a slot say.
#[derive(Clone, Copy)]
struct Ends {
    start: SlotStart,
    footer: Option<Footer>,
    /// What lies where a freed slot has its second marker.
    marker: SlotStart,
}

impl Ends {
    /// The segment that the start tells of, be it that it was freed.
    fn segment_at_start(&self) -> Option<u64> {
        match self.start {
            SlotStart::Frame(first) => Some(first.segment),
            SlotStart::Free(freed) => freed,
            SlotStart::Stray { .. } | SlotStart::Unknown => None,
        }
    }

    fn freed_at_start(&self) -> Option<u64> {
        if let SlotStart::Free(freed) = self.start { freed } else { None }
    }

    fn freed_at_end(&self) -> Option<u64> {
        if let SlotStart::Free(freed) = self.marker { freed } else { None }
    }

    /// The highest number of a segment that was here.
    fn here(&self) -> u64 {
        let at_end = self.freed_at_end().max(self.footer.map(|f| f.segment));
        self.segment_at_start().max(at_end).unwrap_or(0)
    }

    /// The highest number that anything here tells of.
    fn highest(&self) -> u64 {
        let stray = |start| if let SlotStart::Stray { segment, .. } = start { segment } else { 0 };
        self.here().max(stray(self.start)).max(stray(self.marker))
    }

    /// There is nothing at its start and its end.
    fn is_blank(&self) -> bool {
        let nothing = SlotStart::Free(None);
        (self.start, self.marker, self.footer.is_some()) == (nothing, nothing, false)
    }

    /// A slot that was freed has markers at both ends, and they stay until something else is written there.
    fn has_lost_start(&self) -> bool {
        self.start == SlotStart::Free(None) && self.freed_at_end().is_some()
    }

    /// No slot is used again before the end of the segment that was there is gone.
    fn is_end_of_another(&self) -> bool {
        let other = self.footer.is_some_and(|f| Some(f.segment) != self.segment_at_start());
        other || matches!(self.marker, SlotStart::Stray { .. })
    }

    /// The first frame and the footer of the segment that is here, if one is; `known` are those that the starts of slots
    /// tell of. `look`: there may be one, though start and end tell of none.
    fn holds(&self, known: &BTreeSet<u64>, look: bool) -> Option<(Option<FrameHeader>, Option<Footer>)> {
        match self.start {
            // It was being freed; everything in it that counts was durable elsewhere.
            SlotStart::Frame(first) if self.freed_at_end() == Some(first.segment) => None,
            SlotStart::Frame(first) => {
                Some((Some(first), self.footer.filter(|f| f.segment == first.segment)))
            }
            // The footer of a segment that is, or was, elsewhere went astray.
            SlotStart::Free(_) | SlotStart::Stray { .. } | SlotStart::Unknown => {
                let footer = self.footer.filter(|f| !known.contains(&f.segment));
                let SlotStart::Free(freed) = self.start else { return Some((None, footer)) };
                // A start that was lost: the end tells of a segment that came after the one that was freed.
                let footer = footer.filter(|f| freed.is_none_or(|freed| f.segment > freed));
                (footer.is_some() || look).then_some((None, footer))
            }
        }
    }
}

/// Segments that are open at a time, and spare, at most.
const OPEN_AT_MOST: usize = 12;

/// The slots that may hold a segment that begins with zeros: one whose first frame is not there. Slots that were never used
/// are taken in their order, so there can be none far behind the last one of which anything is known.
fn may_have_begun(slots: &[Ends]) -> std::ops::Range<u32> {
    let known = slots.iter().rposition(|ends| !ends.is_blank()).map_or(0, |last| last + 1);
    0..(known + OPEN_AT_MOST).min(slots.len()) as u32
}

/// The slots of which the start may be lost, because of writes for the starts of slots that went to others': where such a write
/// lies, and where it should, unless something newer is known of that slot.
fn beheaded(tier: &Tier, slots: &[Ends]) -> BTreeSet<u32> {
    let mut beheaded = BTreeSet::new();
    for (at, ends) in (0..).zip(slots) {
        let SlotStart::Stray { segment, slot } = ends.start else { continue };
        tracing::error!(
            tier = tier.name().name(),
            slot = at,
            segment,
            meant_for = slot,
            "a write went astray"
        );
        beheaded.insert(at);
        if slots.get(slot as usize).is_some_and(|meant| meant.here() < segment) {
            beheaded.insert(slot);
        }
    }
    beheaded
}
