//! Dealing the entries of all segments out to the shards of the index.
//!
//! Each worker has a hand: for every shard the entries that it found. Reading goes on while it deals.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Buffer, Runtime};
use esker_index::{Index, KeyHash};
use esker_log::{Entry, Kind, Location, Packing, Secret, class_of};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::{Content, Scene, Segment, run};
use crate::error::{Error, Result};
use crate::tier::Tier;

/// Summaries that a worker reads at a time.
const DEPTH: usize = 4;
/// Buffers for summaries are multiples of this, so that they fit the next one too.
const BUFFER_BYTES: u64 = 64 << 10;

/// An entry on its way into the index: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Claimant {
    pub(super) hash: KeyHash,
    pub(super) sequence: u64,
    /// 40 bits of packed location, 1 of kind (a tombstone), 23 of length in granules; or the number of a staged record.
    pub(super) place: u64,
}

pub(super) const TOMBSTONE: u64 = 1 << 40;
pub(super) const LENGTH_SHIFT: u32 = 41;
/// No location has all bits set: such places are staged records.
pub(super) const STAGED: u64 = u64::MAX << 32;
/// Bits of the number of a record in its piece of staged memory.
pub(super) const STAGED_NUMBER_BITS: u32 = 27;

/// What a worker has dealt.
#[derive(Default)]
pub(super) struct Hand {
    /// By shard, from the first of the pass on.
    pub(super) shards: Vec<Vec<Claimant>>,
    /// Highest sequence number met.
    pub(super) highest: u64,
    /// Segments whose summary does not verify.
    pub(super) damaged: Vec<usize>,
}

impl Hand {
    /// Makes room for so many entries of so many shards. Memory of the last pass is used again.
    fn clear(&mut self, shards: usize, entries: u64) {
        // Hashes are evenly spread; four times the deviation is hardly ever met.
        let mean = entries as f64 / Index::SHARDS as f64;
        let room = (mean + 4.0 * mean.sqrt()) as usize;
        self.highest = 0;
        self.shards.resize_with(shards, Vec::new);
        for shard in &mut self.shards {
            shard.clear();
            shard.reserve_exact(room);
        }
    }
}

/// What a worker tells whoever waits for the store.
pub(super) struct Progress {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) began: Duration,
    pub(super) pass: usize,
    pub(super) passes: usize,
}

impl Scene<'_> {
    /// Step 3. Deals the entries of all segments that belong to these shards, a hand for each worker.
    pub(super) async fn deal(
        &self,
        segments: &Arc<Vec<Segment>>,
        hands: Vec<Hand>,
        shards: Range<usize>,
        progress: Progress,
    ) -> Result<Vec<Hand>> {
        let workers = hands.len();
        let mut progress = Some(progress);
        let dealers = hands.into_iter().enumerate().map(|(worker, hand)| {
            let mut dealer = Dealer {
                tiers: self.tiers.iter().map(|(tier, _)| Arc::clone(tier)).collect(),
                secret: self.secret,
                packing: self.packing,
                index: self.index.clone(),
                shards: shards.clone(),
                hand,
                progress: progress.take(),
            };
            let segments = segments.clone();
            run(self.runtime, async move {
                dealer.deal(&segments, worker, workers).await?;
                Ok(dealer.hand)
            })
        });
        try_join_all(dealers).await
    }

    /// The hand of the staged records.
    pub(super) fn deal_staged(&self, shards: Range<usize>) -> Hand {
        let mut hand = Hand::default();
        hand.clear(shards.len(), 0);
        for (piece, staged) in self.staged.iter().enumerate() {
            for (number, entry) in staged.entries.iter().enumerate() {
                hand.highest = hand.highest.max(entry.sequence);
                let hash = hash_of(entry);
                let place = STAGED | (piece as u64) << STAGED_NUMBER_BITS | number as u64;
                let shard = (self.index.stored_hash(&hash) >> 32) as usize;
                if shards.contains(&shard) {
                    let claimant = Claimant { hash, sequence: entry.sequence, place };
                    hand.shards[shard - shards.start].push(claimant);
                }
            }
        }
        hand
    }
}

fn hash_of(entry: &Entry) -> KeyHash {
    KeyHash { slot: entry.digest.slot, check: entry.digest.check }
}

struct Dealer {
    tiers: Vec<Arc<Tier>>,
    secret: Secret,
    packing: Packing,
    index: Arc<Index>,
    /// The shards of this pass.
    shards: Range<usize>,
    hand: Hand,
    progress: Option<Progress>,
}

impl Dealer {
    /// Deals every `workers`-th segment.
    async fn deal(&mut self, segments: &[Segment], worker: usize, workers: usize) -> Result<()> {
        let mine: Vec<(usize, &Segment)> =
            segments.iter().enumerate().skip(worker).step_by(workers).collect();
        self.hand.clear(self.shards.len(), mine.iter().map(|(_, s)| s.entries()).sum());
        let tiers = self.tiers.clone();
        let read = |(number, segment), used| read(&tiers, number, segment, used);
        // The next summaries are being read while one is dealt.
        let mut reads = FuturesOrdered::new();
        let mut begun = mine.iter().copied();
        reads.extend(begun.by_ref().take(DEPTH).map(|one| read(one, None)));
        let mut told = Duration::ZERO;
        let mut done = 0;
        while let Some(one) = reads.next().await {
            let (number, summary) = one?;
            self.take(number, &segments[number], summary.as_ref());
            let used = summary.map(|(buffer, _)| buffer);
            reads.extend(begun.next().map(|one| read(one, used)));
            done += 1;
            self.tell(&mut told, done, mine.len());
        }
        Ok(())
    }

    /// Deals a segment.
    fn take(&mut self, number: usize, segment: &Segment, summary: Option<&(Buffer, usize)>) {
        match (&segment.content, summary) {
            (Content::Scanned(scan, _), _) => scan.entries.iter().for_each(|entry| self.put(segment, *entry)),
            (Content::Sealed(footer), Some((buffer, at))) => {
                let secret = self.secret;
                // What was dealt of a damaged one does not matter: dealing begins again.
                if footer.for_each_entry(&buffer[*at..], &secret, |entry| self.put(segment, entry)).is_none()
                {
                    self.hand.damaged.push(number);
                }
            }
            (Content::Sealed(_), None) => unreachable!("the summary was read"),
        }
    }

    #[inline]
    fn put(&mut self, segment: &Segment, entry: Entry) {
        self.hand.highest = self.hand.highest.max(entry.sequence);
        let hash = hash_of(&entry);
        let shard = (self.index.stored_hash(&hash) >> 32) as usize;
        if let Some(shard) = self.hand.shards.get_mut(shard.wrapping_sub(self.shards.start)) {
            shard.push(Claimant {
                hash,
                sequence: entry.sequence,
                place: place(&self.packing, segment, &entry),
            });
        }
    }

    fn tell(&self, told: &mut Duration, done: usize, of: usize) {
        let Some(Progress { runtime, began, pass, passes }) = &self.progress else { return };
        let elapsed = runtime.now().saturating_sub(*began);
        if elapsed > *told + Duration::from_secs(1) {
            *told = elapsed;
            let percent = (100 * pass + 100 * done / of) / passes;
            tracing::info!(percent, seconds = elapsed.as_secs(), "recovering: reading summaries");
        }
    }
}

/// Reads the summary of a sealed segment, if it can into a buffer that was used before.
async fn read(
    tiers: &[Arc<Tier>],
    number: usize,
    segment: &Segment,
    used: Option<Buffer>,
) -> Result<(usize, Option<(Buffer, usize)>)> {
    let Content::Sealed(footer) = &segment.content else { return Ok((number, None)) };
    let tier = tiers.iter().find(|t| t.name() == segment.tier).expect("its tier is there");
    let bytes = u64::from(footer.entry_bytes);
    // Some more than this one needs.
    let fresh = || {
        tier.device()
            .map(|device| device.buffer((bytes.next_multiple_of(BUFFER_BYTES) + BUFFER_BYTES) as usize))
    };
    let buffer = match used.filter(|used| used.capacity() as u64 >= bytes + BUFFER_BYTES) {
        Some(used) => used,
        None => fresh()?,
    };
    let summary = tier.read_into(segment.slot, footer.start, bytes, Some(buffer)).await?;
    Ok::<_, Error>((number, Some(summary)))
}

fn place(packing: &Packing, segment: &Segment, entry: &Entry) -> u64 {
    let location = Location {
        tier: segment.tier,
        slot: segment.slot,
        offset: entry.offset,
        class: class_of(u64::from(entry.bytes)),
    };
    let granules = u64::from(entry.bytes).div_ceil(packing.granule_bytes);
    let tombstone = if entry.kind == Kind::Tombstone { TOMBSTONE } else { 0 };
    packing.pack(location) | tombstone | granules << LENGTH_SHIFT
}
