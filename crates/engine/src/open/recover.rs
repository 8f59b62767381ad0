//! Recovery after any shutdown: finds the segments, their records, and the newest version of each key.
//!
//! 1. **Slots** (`slots`). The start and the end of every used slot are read: free, sealed, or unsealed.
//! 2. **Unsealed segments** (`unsealed`) are read completely and scanned frame by frame. The staging file is read
//!    meanwhile.
//! 3. **Entries** of all summaries and scans are loaded into the shards of the index (`load`): the first entry with a
//!    stored hash gets the index slot. This verifies the summaries: a segment with a damaged summary is scanned as in
//!    step 2, and loading restarts with an empty index.
//! 4. **Disputes** (`resolve`): among entries that share a stored hash, tombstones and staged records included, the
//!    highest sequence number of each key wins, in any segment.
//!
//! If the disputed entries exceed the memory, steps 3 and 4 are done for fewer shards at a time.
//!
//! Recovery writes nothing, so a crash during it changes nothing, and the index is not visible before it ends.

mod candidate;
mod census;
mod context;
mod load;
mod reading;
mod resolve;
mod slots;
mod unsealed;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use esker_index::{Indexes, KeyHash};
use esker_log::{Entry, Stream, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{try_join, try_join_all};

use self::context::{Content, Segment, no_longer_verifies};
pub(crate) use self::context::{RecoveryContext, StagedRecord, Unmarked, Unsealed};
use self::resolve::{Copies, StagedPlace};
use self::slots::InSlots;
use self::unsealed::{Named, Scanned};

use crate::base::error::Result;
use crate::catalog::INDEX_BYTES_A_KEY;
use crate::open::progress::RecoveryStep;
use crate::open::run::run;
use crate::segments::contents::Contents;
use crate::segments::slot::SlotState;
use crate::segments::staging::Staged;
use crate::write::group_log::recovered::LogSegment;

/// Result of recovery, with the work to be done before the first write.
pub(crate) struct Recovered {
    /// Segments without a summary, to be sealed with these entries.
    pub(crate) unsealed: Vec<Unsealed>,
    /// Slots of copies that are all in older segments too: a crash interrupted the relocation that wrote them.
    pub(crate) redundant: Vec<(TierName, u32)>,
    /// Free slots whose free markers are to be written.
    pub(crate) unmarked: Vec<Unmarked>,
    /// Staged records that no device has, in the order of their sequence numbers.
    pub(crate) staged: Vec<StagedRecord>,
    /// Segments of the log of replicated groups, in their order.
    pub(crate) logs: Vec<LogSegment>,
    pub(crate) max_sequence: u64,
    /// The earliest expiry of any put after [`RecoveryContext::known_ms`].
    pub(crate) next_expiry_ms: Option<u64>,
    /// Highest segment number found, freed segments included.
    pub(crate) max_segment: u64,
    pub(crate) segments: u64,
    pub(crate) metadata_bytes: u64,
}

/// Result of loading the entries of all segments.
struct Loaded {
    /// The segments, after those with a damaged summary were scanned.
    segments: Vec<Segment>,
    /// Staged records that are the newest version of their key.
    winners: BTreeSet<StagedPlace>,
    max_sequence: u64,
    next_expiry_ms: Option<u64>,
    /// Number of redundant copies per slot.
    copies: Copies,
}

impl RecoveryContext<'_> {
    /// Recovers the store: fills the index and the slots. `reading` reads the staging file; its result is returned too.
    pub(crate) async fn recover(
        &self,
        reading: impl Future<Output = Result<Vec<Staged>>>,
    ) -> Result<(Vec<Staged>, Recovered)> {
        let (staged, scanned) = try_join(reading, self.segments()).await?;
        let Named { mut segments, mut unmarked, mut logs, highest: max_segment } =
            self.name(scanned, &staged);
        let all =
            segments.iter().map(|s| (s.tier, s.slot)).chain(logs.iter().map(|log| (log.tier, log.slot)));
        self.refuse_low_limit(&all.collect::<Vec<_>>())?;
        segments.sort_by_key(|s| s.segment);
        let Loaded { mut segments, winners, max_sequence, next_expiry_ms, copies } =
            self.load(segments, &staged).await?;
        let unwritten = self.unwritten(&segments, &staged, &winners);
        self.check_census(&segments)?;
        self.give_up(&mut segments, &mut unmarked);
        self.occupy_log_slots(&logs);
        logs.sort_by_key(|log| log.segment);
        let count = segments.len() as u64;
        let metadata_bytes = segments.iter().map(|s| self.metadata_bytes(s)).sum();
        let is_redundant = |s: &Segment| match copies.get(&(s.tier, s.slot)) {
            Some(count) => *count == s.entries() || planted(Bug::AnyCopyIsRedundant),
            None => false,
        };
        let redundant = segments.iter().filter(|s| is_redundant(s)).map(|s| (s.tier, s.slot)).collect();
        // Includes the redundant segments, which are freed before any eviction.
        let held = copies.keys().filter(|_| !planted(Bug::CopiesNotHeld));
        held.for_each(|(tier, slot)| self.tier(*tier).slots().hold_copies(*slot));
        let kept = segments.into_iter().filter(|s| !is_redundant(s));
        let unsealed = kept.filter_map(|s| match s.content {
            Content::Scanned(scan, stream) => Some(Unsealed {
                tier: s.tier,
                slot: s.slot,
                segment: s.segment,
                stream,
                tail: scan.tail,
                entries: scan.entries,
            }),
            Content::Sealed(_) => None,
        });
        let recovered = Recovered {
            unsealed: unsealed.collect(),
            redundant,
            unmarked,
            staged: unwritten,
            logs,
            max_sequence,
            next_expiry_ms,
            max_segment,
            segments: count,
            metadata_bytes,
        };
        Ok((staged, recovered))
    }

    /// Steps 1 and 2. Finds the segments of all tiers.
    async fn segments(&self) -> Result<Scanned> {
        let mut in_slots = InSlots::default();
        for (tier, superblock) in &self.tiers {
            self.find_segments(tier, superblock, &mut in_slots).await?;
        }
        self.scan_unsealed(in_slots).await
    }

    /// Returns the bytes that had to be read of a segment.
    fn metadata_bytes(&self, segment: &Segment) -> u64 {
        let shape = self.tier(segment.tier).shape();
        match &segment.content {
            Content::Sealed(footer) => u64::from(shape.unit_bytes + shape.segment_bytes - footer.start),
            Content::Scanned(..) => shape.segment_bytes.into(),
        }
    }

    /// Steps 3 and 4. Loads the entries, finds the newest version of each key, and fills index and slots.
    async fn load(&self, segments: Vec<Segment>, staged: &[Staged]) -> Result<Loaded> {
        let records = segments.iter().map(Segment::entries).sum();
        self.progress.begin(RecoveryStep::Records, records, self.runtime.now());
        let mut segments = Arc::new(segments);
        let (mut max_sequence, mut next_expiry_ms) = (self.cleared.highest(), None);
        let (mut winners, mut copies) = (BTreeSet::new(), Copies::default());
        let mut passes = 1;
        let mut pass = 0;
        while pass < passes {
            if pass == 0 {
                self.refuse_loss(&segments)?;
            }
            let shards = pass * Indexes::SHARDS / passes..(pass + 1) * Indexes::SHARDS / passes;
            let entries: u64 = segments.iter().map(Segment::entries).sum();
            self.reserve(&shards, entries).await?;
            let share = 1.0 / passes as f64;
            let most_left = if passes < Indexes::SHARDS {
                self.most_left(&segments, staged, entries)
            } else {
                usize::MAX
            };
            let loaded = load::Pass { shards: shards.clone(), most_left, done: pass as f64 * share, share };
            let mut partitions = self.load_entries(&segments, &loaded).await?;
            let damaged: Vec<usize> =
                partitions.iter_mut().flat_map(|partition| std::mem::take(&mut partition.damaged)).collect();
            if let Some(first) = damaged.first() {
                if pass > 0 {
                    return Err(no_longer_verifies(&segments[*first]));
                }
                self.index.clear();
                let owned = Arc::try_unwrap(segments).ok().expect("the loaders have ended");
                segments = Arc::new(self.scan_damaged(owned, damaged).await?);
                continue;
            }
            if partitions.iter().any(|partition| partition.is_full) {
                // Restart with fewer shards per pass. No result of this pass has been used yet.
                self.index.clear();
                self.tiers.iter().for_each(|(tier, _)| tier.forget_live());
                winners.clear();
                copies.clear();
                (pass, passes) = (0, (passes * 2).min(Indexes::SHARDS));
                continue;
            }
            if pass == 0 {
                self.occupy_slots(&segments);
            }
            partitions.push(self.load_staged(staged, &shards));
            max_sequence = partitions.iter().map(|partition| partition.highest).fold(max_sequence, u64::max);
            let expiries = partitions.iter().filter_map(|partition| partition.next_expiry_ms);
            next_expiry_ms = expiries.chain(next_expiry_ms).min();
            winners.extend(self.resolve(&segments, staged, partitions, &mut copies).await?);
            shards.for_each(|shard| self.index.fit(shard));
            pass += 1;
        }
        let segments = Arc::try_unwrap(segments).ok().expect("the tasks that read the segments have ended");
        Ok(Loaded { segments, winners, max_sequence, next_expiry_ms, copies })
    }

    /// Allocates tables for `entries` entries of the whole index, in these shards. The kernel zeroes memory at the
    /// first write to it, which may take a tenth of the loading time, so all workers do it in parallel.
    async fn reserve(&self, shards: &Range<usize>, entries: u64) -> Result<()> {
        let workers = self.runtime.parallelism().max(1);
        let share = shards.len().div_ceil(workers).max(1);
        let parts = shards.clone().step_by(share).map(|first| {
            let (index, part) = (self.index.clone(), first..shards.end.min(first + share));
            run(self.runtime, async move {
                index.reserve(part, entries);
                Ok(())
            })
        });
        try_join_all(parts).await.map(drop)
    }

    /// Returns the staged records that no device has, older versions included: if the power fails while they are
    /// written, no record may be missing that precedes a written one. A record of a key whose newest version is on a
    /// device is left out, unless its batch has a key whose newest version is staged: otherwise interrupted openings
    /// would need more and more room.
    fn unwritten(
        &self,
        segments: &[Segment],
        staged: &[Staged],
        winners: &BTreeSet<StagedPlace>,
    ) -> Vec<StagedRecord> {
        let mut unwritten = Vec::new();
        for (piece, staged) in staged.iter().enumerate() {
            let segment = segments.iter().find(|segment| segment.segment == staged.segment);
            // In the order of their offsets.
            let written: &[Entry] = match segment.map(|segment| &segment.content) {
                Some(Content::Sealed(_)) => continue,
                Some(Content::Scanned(scan, _)) => &scan.entries,
                None => &[],
            };
            let left = staged.entries.iter().enumerate().filter(|(_, entry)| {
                written.binary_search_by_key(&entry.offset, |written| written.offset).is_err()
                    && !self.cleared.covers(&entry.key_hash, entry.sequence)
            });
            unwritten.extend(left.map(|(number, &entry)| StagedRecord {
                piece,
                entry,
                is_newest: winners.contains(&(piece, number)),
            }));
        }
        unwritten.sort_by_key(|record| record.entry.sequence);
        let newest = unwritten.iter().filter(|record| record.is_newest);
        let keys: BTreeSet<KeyHash> = newest.map(|record| record.entry.key_hash).collect();
        let goes_on = |record: &StagedRecord, _: &StagedRecord| {
            staged[record.piece].record(&record.entry, &self.secret).batch_goes_on
        };
        let is_needed =
            |batch: &&[StagedRecord]| batch.iter().any(|record| keys.contains(&record.entry.key_hash));
        let batches = unwritten.chunk_by(|a, b| goes_on(a, b) && !planted(Bug::StagedBatchCut));
        batches.filter(is_needed).flatten().copied().collect()
    }

    /// Returns the number of candidates that each worker may be left with, so that they, the summaries in flight and
    /// the index fit into the memory.
    fn most_left(&self, segments: &[Segment], staged: &[Staged], entries: u64) -> usize {
        let workers = self.runtime.parallelism().max(1) as u64;
        let (reads, summary_bytes) = load::ahead(segments);
        let read = summary_bytes * workers * reads as u64;
        let bytes_of = |s: &Staged| s.bytes.len() as u64 + s.entries.len() as u64 * resolve::DISPUTE_BYTES;
        let staged: u64 = staged.iter().map(bytes_of).sum();
        let taken = read + staged + entries * INDEX_BYTES_A_KEY;
        // The index alone may exceed the memory, if the store is opened with less memory than it was filled with.
        let left = self.memory_bytes.saturating_sub(taken).max(self.memory_bytes / 4);
        (left / resolve::DISPUTE_BYTES / workers) as usize
    }

    /// Marks the slots of the log as open, so that they are neither collected nor counted in the census. No tombstone is
    /// kept for them.
    fn occupy_log_slots(&self, logs: &[LogSegment]) {
        for log in logs {
            let tier = self.tier(log.tier);
            tier.occupy(log.slot, log.segment, SlotState::Open, u64::MAX);
            tier.slots().begin(log.slot, Stream::GROUP_LOG, 0);
        }
    }

    fn occupy_slots(&self, segments: &[Segment]) {
        for s in segments.iter().filter(|s| !s.is_lost()) {
            let (stream, used, contents) = match &s.content {
                Content::Sealed(footer) => {
                    let expires_s = Some(footer.expires_s).filter(|&at| at > 0);
                    let expires_ms = expires_s.map(|at| u64::from(at) * 1000);
                    (footer.stream, footer.tail, Contents::of_footer(expires_ms))
                }
                Content::Scanned(scan, stream) => {
                    (*stream, scan.tail, Contents::of(scan.entries.iter().copied()))
                }
            };
            self.tier(s.tier).occupy(s.slot, s.segment, SlotState::Sealed, s.opened_at);
            self.tier(s.tier).slot(s.slot).expect_records_of(used / (s.entries().max(1) as u32));
            self.tier(s.tier).slots().seal(s.slot, stream, used, s.segment, &contents);
        }
    }
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
