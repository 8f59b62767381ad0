//! Finds the newest version of the keys whose index slot was taken when they were loaded.
//!
//! 1. The entries left over by the workers are sorted by stored hash. Together with the entry that the index has under
//!    the same stored hash, they are all entries of that hash.
//! 2. The index has only the location of its entry. The rest is read from the summaries again.
//! 3. The newest version of each key wins, in any segment. It gets the index slot if the slot is held by an older
//!    version of the key or by none, else an exact entry. Among several copies of one version, the copy in the older
//!    segment wins: a segment of copies whose victims all still exist, left by a crash in the middle of a relocation,
//!    is then redundant.
//!
//! A store that is rarely overwritten has nothing to resolve. If it was overwritten everywhere, its summaries are read
//! twice.

use std::sync::Arc;

use esker_device::Buffer;
use esker_index::Indexes;
use esker_log::{Entry, Packing, Secret, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};
use hashbrown::HashMap;

use super::candidate::{Candidate, Live};
use super::context::{Content, RecoveryContext, Segment, no_longer_verifies};
use super::load::{Partition, ahead, read};

use crate::base::error::Result;
use crate::base::fixed_hash::FixedState;
use crate::open::run::run;
use crate::segments::staging::Staged;
use crate::segments::tier::Tier;

/// Maximum memory per candidate while it is resolved, in bytes: the candidate, its copy, and the holder of its index
/// slot, in vectors that grow by doubling.
pub(super) const DISPUTE_BYTES: u64 = 6 * size_of::<Candidate>() as u64;

/// Per slot, the number of entries that are copies of entries in an older segment.
pub(super) type Copies = HashMap<(TierName, u32), u64, FixedState>;

/// Location of a staged record: number of the piece, number of the record in it.
pub(super) type StagedPlace = (usize, usize);

/// Location of the entry that holds the index slot of a stored hash: position of the segment, offset.
type Holder = (usize, u32);

/// By slot, the position of its segment among the segments found.
type Slots = HashMap<(TierName, u32), usize, FixedState>;

impl RecoveryContext<'_> {
    /// Step 4. Returns the staged records that won, and counts copies.
    pub(super) async fn resolve(
        &self,
        segments: &Arc<Vec<Segment>>,
        staged: &[Staged],
        partitions: Vec<Partition>,
        copies: &mut Copies,
    ) -> Result<Vec<StagedPlace>> {
        let mut left = Vec::new();
        for partition in partitions {
            self.count_live(partition.live);
            left.extend(partition.left);
        }
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let slots = segments.iter().enumerate().map(|(number, s)| ((s.tier, s.slot), number));
        let slots: Arc<Slots> = Arc::new(slots.collect());
        let (parts, holders) = self.sort_left(self.deal(left), &slots).await?;
        let holding = self.read_holders(segments, holders).await?;
        let ages = Arc::new(Ages {
            segments: segments.clone(),
            slots,
            staged: staged.iter().map(|staged| staged.segment).collect(),
        });
        self.choose_winners(parts, self.deal(holding), &ages, copies).await
    }

    /// Distributes candidates to workers by stored hash: all candidates of one stored hash go to one worker.
    fn deal(&self, candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
        let workers = self.runtime.parallelism().max(1);
        let mut parts = vec![Vec::new(); workers];
        for candidate in candidates {
            parts[(self.index.stored_hash(&candidate.hash()) >> 32) as usize % workers].push(candidate);
        }
        parts
    }

    /// 1. Sorts the leftover entries, and finds the entries that hold their index slots.
    async fn sort_left(
        &self,
        parts: Vec<Vec<Candidate>>,
        slots: &Arc<Slots>,
    ) -> Result<(Vec<Vec<Candidate>>, Vec<Holder>)> {
        let sort = parts.into_iter().map(|mut part| {
            let (index, packing, slots) = (self.index.clone(), self.packing, slots.clone());
            run(self.runtime, async move {
                part.sort_unstable_by_key(|candidate| candidate.order(&index));
                let stored = |candidate: &Candidate| index.stored_hash(&candidate.hash());
                let groups = part.chunk_by(|a, b| stored(a) == stored(b));
                let holders = groups.filter_map(|group| {
                    let location = packing.unpack(index.get(&group[0].hash())?.get());
                    let segment = slots.get(&(location.tier, location.slot));
                    Some((*segment.expect("every loaded entry lies in a segment"), location.offset))
                });
                let holders: Vec<Holder> = holders.collect();
                Ok((part, holders))
            })
        });
        let (parts, holders): (Vec<_>, Vec<_>) = try_join_all(sort).await?.into_iter().unzip();
        let mut holders = holders.concat();
        holders.sort_unstable();
        Ok((parts, holders))
    }

    /// 2. Reads those entries from the summaries.
    async fn read_holders(
        &self,
        segments: &Arc<Vec<Segment>>,
        holders: Vec<Holder>,
    ) -> Result<Vec<Candidate>> {
        let (workers, holders) = (self.runtime.parallelism().max(1), Arc::new(holders));
        let find = (0..workers).map(|worker| {
            let finder = Finder {
                tiers: self.tiers.iter().map(|(tier, _)| Arc::clone(tier)).collect(),
                secret: self.secret,
                packing: self.packing,
                segments: segments.clone(),
                holders: holders.clone(),
            };
            run(self.runtime, async move { finder.find(worker, workers).await })
        });
        Ok(try_join_all(find).await?.concat())
    }

    /// 3. Puts the newest versions into the index. Returns the staged records among them.
    async fn choose_winners(
        &self,
        parts: Vec<Vec<Candidate>>,
        holding: Vec<Vec<Candidate>>,
        ages: &Arc<Ages>,
        copies: &mut Copies,
    ) -> Result<Vec<StagedPlace>> {
        let resolvers = parts.into_iter().zip(holding).map(|(part, mut holding)| {
            let mut resolver = Resolver {
                index: self.index.clone(),
                packing: self.packing,
                ages: ages.clone(),
                live: self.no_live(),
                staged: Vec::new(),
                copies: Copies::default(),
            };
            run(self.runtime, async move {
                holding.sort_unstable_by_key(|candidate| candidate.order(&resolver.index));
                resolver.resolve(&part, &holding);
                Ok((resolver.live, resolver.staged, resolver.copies))
            })
        });
        let mut winners = Vec::new();
        for (live, staged, of_slots) in try_join_all(resolvers).await? {
            self.count_live(live);
            of_slots.into_iter().for_each(|(slot, count)| *copies.entry(slot).or_default() += count);
            winners.extend(staged);
        }
        Ok(winners)
    }
}

/// Reads the summary entries of index slot holders again.
struct Finder {
    tiers: Vec<Arc<Tier>>,
    secret: Secret,
    packing: Packing,
    segments: Arc<Vec<Segment>>,
    holders: Arc<Vec<Holder>>,
}

impl Finder {
    /// Reads the holders in every `workers`-th segment.
    async fn find(&self, worker: usize, workers: usize) -> Result<Vec<Candidate>> {
        let mut begun = self.holders.chunk_by(|a, b| a.0 == b.0).skip(worker).step_by(workers);
        let read = |holders, used| self.read(holders, used);
        let mut reads = FuturesOrdered::new();
        reads.extend(begun.by_ref().take(ahead(&self.segments).0).map(|holders| read(holders, None)));
        let mut found = Vec::new();
        while let Some(one) = reads.next().await {
            let (holders, summary) = one?;
            self.take(holders, summary.as_ref(), &mut found)?;
            let used = summary.map(|(buffer, _)| buffer);
            reads.extend(begun.next().map(|holders| read(holders, used)));
        }
        Ok(found)
    }

    async fn read<'a>(
        &self,
        holders: &'a [Holder],
        used: Option<Buffer>,
    ) -> Result<(&'a [Holder], Option<(Buffer, usize)>)> {
        let number = holders[0].0;
        Ok((holders, read(&self.tiers, number, &self.segments[number], used).await?.1))
    }

    /// Finds the holders in a segment's entries. Both are in the order of offsets.
    fn take(
        &self,
        holders: &[Holder],
        summary: Option<&(Buffer, usize)>,
        found: &mut Vec<Candidate>,
    ) -> Result<()> {
        let segment = &self.segments[holders[0].0];
        let mut rest = holders.iter().peekable();
        let mut look = |entry: Entry| {
            if rest.next_if(|(_, offset)| *offset == entry.offset).is_some() {
                found.push(Candidate::new(&self.packing, segment, &entry));
            }
        };
        let read = match (&segment.content, summary) {
            (Content::Scanned(scan, _), _) => {
                scan.entries.iter().for_each(|entry| look(*entry));
                Some(())
            }
            (Content::Sealed(footer), Some((buffer, at))) => {
                footer.for_each_entry(&buffer[*at..], &self.secret, look)
            }
            (Content::Sealed(_), None) => None,
        };
        match (read, rest.peek()) {
            (Some(()), None) => Ok(()),
            _ => Err(no_longer_verifies(segment)),
        }
    }
}

/// Segment numbers, which decide which of two segments is older.
struct Ages {
    segments: Arc<Vec<Segment>>,
    slots: Arc<Slots>,
    /// By piece of the staging file.
    staged: Vec<u64>,
}

/// Picks the winners among candidates with the same stored hash, and updates the index.
struct Resolver {
    index: Arc<Indexes>,
    packing: Packing,
    ages: Arc<Ages>,
    live: Live,
    /// Staged records that won.
    staged: Vec<StagedPlace>,
    copies: Copies,
}

impl Resolver {
    /// Resolves all groups. Both slices are in candidate order; `holding` are the holders of index slots.
    fn resolve(&mut self, left: &[Candidate], holding: &[Candidate]) {
        let index = self.index.clone();
        let stored = |candidate: &Candidate| index.stored_hash(&candidate.hash());
        let mut holding = holding.iter().peekable();
        let mut rivals: Vec<Candidate> = Vec::new();
        for group in left.chunk_by(|a, b| stored(a) == stored(b)) {
            let in_slot = holding.next_if(|holding| stored(holding) == stored(&group[0]));
            rivals.clear();
            rivals.extend(group.iter().chain(in_slot));
            rivals.sort_unstable_by_key(|candidate| candidate.order(&index));
            self.oldest_copies_first(&mut rivals);
            rivals.dedup_by_key(|candidate| candidate.hash());
            self.place(&rivals, in_slot.copied());
        }
    }

    /// Among copies of one version, sorts the copy that counts first: a tombstone, which proves that the version was
    /// evicted or has expired; else the copy on a device in the oldest segment. A staged copy may be the original of a
    /// durable copy, but the durable copy must not be freed for it. The other durable copies are counted.
    fn oldest_copies_first(&mut self, rivals: &mut [Candidate]) {
        let same = |a: &Candidate, b: &Candidate| (a.hash(), a.sequence) == (b.hash(), b.sequence);
        for copies in rivals.chunk_by_mut(same).filter(|copies| copies.len() > 1) {
            let is_staged = |copy: &Candidate| copy.place.staged().is_some();
            copies.sort_unstable_by_key(|copy| {
                let is_record = !copy.place.is_tombstone() && !planted(Bug::TombstoneOfSameNumberLoses);
                let is_staged = is_staged(copy) && !planted(Bug::StagedCopyCounts);
                let age =
                    if planted(Bug::NewerCopyCounts) { u64::MAX - self.age(copy) } else { self.age(copy) };
                (is_record, is_staged, age, copy.place)
            });
            for copy in copies[1..].iter().filter(|copy| copy.place.staged().is_none()) {
                *self.copies.entry(self.slot_of(copy)).or_default() += 1;
            }
        }
    }

    /// Returns the number of the candidate's segment.
    fn age(&self, candidate: &Candidate) -> u64 {
        match candidate.place.staged() {
            Some((piece, _)) => self.ages.staged[piece],
            None => self.ages.segments[self.ages.slots[&self.slot_of(candidate)]].segment,
        }
    }

    fn slot_of(&self, candidate: &Candidate) -> (TierName, u32) {
        let location = self.packing.unpack(candidate.place.packed());
        (location.tier, location.slot)
    }

    /// Puts the winners, one version of each key, into the index.
    fn place(&mut self, winners: &[Candidate], in_slot: Option<Candidate>) {
        let stays = in_slot.is_some_and(|in_slot| winners.contains(&in_slot));
        let mut vacated = in_slot.filter(|_| !stays);
        if let Some(loser) = vacated {
            self.live.count(&self.packing, &loser, -1);
        }
        for winner in winners.iter().filter(|winner| Some(**winner) != in_slot) {
            if let Some(staged) = winner.place.staged() {
                self.staged.push(staged);
                continue;
            }
            self.live.count(&self.packing, winner, 1);
            if !winner.place.is_put() {
                continue;
            }
            match vacated.take() {
                // Replacing works across keys, because a slot distinguishes keys only by their stored hash.
                Some(loser) => {
                    let swung = self.index.replace(&winner.hash(), loser.pointer(), winner.pointer());
                    assert!(swung, "recovery is the only writer of the index");
                }
                None => self.index.load(winner.hash(), winner.pointer()),
            }
        }
        if let Some(loser) = vacated.filter(|_| !planted(Bug::LoserLeftInIndex)) {
            let removed = self.index.remove(&loser.hash(), loser.pointer());
            assert!(removed, "recovery is the only writer of the index");
        }
    }
}
