//! Keeping victims that have damaged records.

use std::collections::BTreeMap;

use esker_gc::{Need, Source, Victim};
use esker_log::{Damage, Entry, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::{Relocator, Victims};

use crate::segments::slot::SlotState;

impl Relocator<'_> {
    /// Keeps those victims that have damaged records, given with the index of their victim. Their other needed records were
    /// copied.
    pub(super) async fn keep_damaged(
        &self,
        tier: TierName,
        victims: &Victims,
        damaged: &[(usize, Entry, Damage)],
    ) {
        let mut by_victim: BTreeMap<usize, Vec<Entry>> = BTreeMap::new();
        for (number, entry, damage) in damaged {
            let (segment, offset) = (victims[*number].0.segment, entry.offset);
            tracing::error!(segment, offset, %damage, "a record cannot be relocated; its segment is kept");
            by_victim.entry(*number).or_default().push(*entry);
        }
        for (number, damaged) in by_victim {
            let slot = victims[number].0.slot;
            self.space.tier(tier).slots().set_state(slot, SlotState::Damaged);
            for entry in damaged.iter().filter(|entry| self.catalog.is_current(tier, slot, entry)) {
                self.space.report_damage(entry.key_hash.keyspace(), None, (tier, slot));
            }
            self.list_damaged(tier, slot, damaged).await;
        }
    }

    /// Returns true if a relocation of the segment in `slot` would copy the record, or a tombstone in its place.
    pub(crate) fn needs(&self, tier: TierName, slot: u32, entry: &Entry) -> bool {
        let (tier, at) = (self.space.tier(tier), self.space.tier(tier).slot(slot));
        let (segment, stream) = (at.segment(), at.stream());
        let victim = Victim { segment, slot, shape: tier.shape(), stream, records: 0 };
        let is_overlooked = entry.kind == Kind::Tombstone && planted(Bug::DamagedTombstoneOverlooked);
        self.source(true, 1.0).need(&victim, entry) != Need::Nothing && !is_overlooked
    }

    /// Lists the keys of a damaged segment, so that it keeps only their tombstones. Returns true if its entries are readable.
    pub(crate) async fn list_damaged(&self, tier: TierName, slot: u32, damaged: Vec<Entry>) -> bool {
        let entries = self.space.read_entries_or_scan(self.space.tier(tier), slot).await.unwrap_or(None);
        let limit_bytes = self.catalog.memory_for_damaged();
        if !self.space.list_damaged((tier, slot), entries.as_ref(), damaged, limit_bytes) {
            let segment = self.space.tier(tier).slot(slot).segment();
            tracing::error!(
                segment,
                limit_bytes,
                "the keys of a damaged segment are unknown, or too many for their share of memory: it keeps all \
                 tombstones that were written after it; run esker repair, or raise memory"
            );
        }
        entries.is_some()
    }
}
