//! Loading the entries of all segments into the shards of the index.
//!
//! Each worker collects a few entries for every shard, so few that they stay in its cache, and puts those of a shard into
//! the index when they are enough to be worth the lock and the misses. Reading goes on meanwhile. What cannot be
//! put in, because it is a tombstone or another entry has the slot, it keeps in its partition, for `resolve`.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Buffer, Runtime};
use esker_index::{Indexes, KeyHash, Pointer};
use esker_log::{Cleared, Entry, Packing, Secret};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::candidate::{Address, Candidate, Live};
use super::context::{Content, RecoveryContext, Segment};

use crate::base::error::Result;
use crate::catalog::expansions::Expansions;
use crate::open::progress::Progress;
use crate::open::run::run;
use crate::segments::staging::Staged;
use crate::segments::tier::Tier;

/// Summaries that a worker reads at a time: as many as take so many bytes, but at least and at most so many.
const AHEAD_BYTES: u64 = 3 << 20;
const AHEAD: RangeInclusive<u64> = 4..=16;
/// Buffers for summaries are multiples of this, so that they fit the next one too.
const BUFFER_BYTES: u64 = 64 << 10;
/// Entries of a shard that are put into the index at once, at most. Those of all shards take 1.9 MiB, about what
/// the cache of the second level has.
const BATCH_MAX: usize = 48;
/// What an entry of a summary takes at least, roughly: from it follows how many there can be.
const ENTRY_BYTES: usize = 8;

/// What a worker could not put into the index, and what it counted.
#[derive(Default)]
pub(super) struct Partition {
    /// Tombstones, and entries whose place in the index is taken.
    pub(super) left: Vec<Candidate>,
    pub(super) live: Live,
    /// Highest sequence number met.
    pub(super) highest: u64,
    /// The earliest expiry met that is later than [`RecoveryContext::known_ms`].
    pub(super) next_expiry_ms: Option<u64>,
    /// Segments whose summary does not verify.
    pub(super) damaged: Vec<usize>,
    /// Whether more was left than memory allows: then the worker stopped.
    pub(super) is_full: bool,
}

impl Partition {
    /// Notes when a put expires, if that is after `known_ms`.
    #[inline]
    fn note_expiry(&mut self, entry: &Entry, known_ms: u64) {
        if let Some(at_ms) = entry.expires_at_ms.filter(|&at_ms| at_ms > known_ms) {
            self.next_expiry_ms = Some(self.next_expiry_ms.map_or(at_ms, |next_ms| next_ms.min(at_ms)));
        }
    }
}

/// What is loaded, and what a worker tells whoever waits for the store.
#[derive(Clone)]
pub(super) struct Pass {
    /// The shards of this pass.
    pub(super) shards: Range<usize>,
    /// How many candidates may be left by each worker.
    pub(super) most_left: usize,
    pub(super) began: Duration,
    pub(super) done: f64,
    pub(super) share: f64,
}

impl RecoveryContext<'_> {
    /// Step 3. Loads the entries of all segments that belong to these shards, a partition for each worker.
    pub(super) async fn load_entries(
        &self,
        segments: &Arc<Vec<Segment>>,
        pass: &Pass,
    ) -> Result<Vec<Partition>> {
        let workers = self.runtime.parallelism().max(1);
        let batch = batch(segments, workers * pass.shards.len());
        let loaders = (0..workers).map(|worker| {
            let mut loader = Loader {
                tiers: self.tiers.iter().map(|(tier, _)| Arc::clone(tier)).collect(),
                secret: self.secret,
                packing: self.packing,
                index: self.index.clone(),
                expansions: self.expansions.clone(),
                cleared: self.cleared,
                known_ms: self.known_ms,
                pass: pass.clone(),
                runtime: (worker == 0).then(|| self.runtime.clone()),
                progress: self.progress.clone(),
                batch,
                batches: vec![NOBODY; pass.shards.len() * batch],
                counts: vec![0; pass.shards.len()],
                next: (0, Vec::new()),
                spare: Vec::new(),
                keys: Vec::new(),
                partition: Partition { live: self.no_live(), ..Partition::default() },
            };
            let segments = segments.clone();
            run(self.runtime, async move {
                loader.load(&segments, worker, workers).await?;
                Ok(loader.partition)
            })
        });
        try_join_all(loaders).await
    }

    /// The partition of the staged records. None of them is in the index before it is written to a segment.
    pub(super) fn load_staged(&self, staged: &[Staged], shards: &Range<usize>) -> Partition {
        let mut partition = Partition::default();
        for (piece, staged) in staged.iter().enumerate() {
            for (number, entry) in staged.entries.iter().enumerate() {
                partition.highest = partition.highest.max(entry.sequence);
                let hash = entry.key_hash;
                let shard = Indexes::shard_of(self.index.stored_hash(&hash));
                if shards.contains(&shard) && !self.cleared.covers(&hash, entry.sequence) {
                    partition.note_expiry(entry, self.known_ms);
                    let place = Address::of_staged(piece, number);
                    partition.left.push(Candidate { hash, sequence: entry.sequence, place });
                }
            }
        }
        partition
    }
}

/// How many summaries a worker reads at a time, and what the largest of them takes; 0 if there is none.
pub(super) fn ahead(segments: &[Segment]) -> (usize, u64) {
    let summaries = segments.iter().filter_map(|segment| match &segment.content {
        Content::Sealed(footer) => Some(u64::from(footer.entry_bytes) + 2 * BUFFER_BYTES),
        Content::Scanned(..) => None,
    });
    let largest = summaries.max().unwrap_or(0);
    ((AHEAD_BYTES / largest.max(1)).clamp(*AHEAD.start(), *AHEAD.end()) as usize, largest)
}

/// How many entries are collected for each of so many shards: of a small store no more than there can be, on average.
fn batch(segments: &[Segment], shards: usize) -> usize {
    let entries = |segment: &Segment| match &segment.content {
        Content::Scanned(scan, _) => scan.entries.len(),
        Content::Sealed(footer) => footer.entry_bytes as usize / ENTRY_BYTES,
    };
    let all: usize = segments.iter().map(entries).sum();
    (all / shards + 1).min(BATCH_MAX)
}

/// What unused places in batches hold.
const NOBODY: (u32, Candidate) =
    (0, Candidate { hash: KeyHash { slot: 0, check: 0 }, sequence: 0, place: Address::NOWHERE });

struct Loader {
    tiers: Vec<Arc<Tier>>,
    secret: Secret,
    packing: Packing,
    index: Arc<Indexes>,
    expansions: Arc<Expansions>,
    cleared: Cleared,
    known_ms: u64,
    pass: Pass,
    /// For the one who tells how far it is.
    runtime: Option<Arc<dyn Runtime>>,
    progress: Progress,
    /// Entries of a shard that are put into the index at once.
    batch: usize,
    /// For each shard of the pass room for a batch: entries with the lower half of their stored hashes.
    batches: Vec<(u32, Candidate)>,
    counts: Vec<u8>,
    /// A shard, and entries of it whose cache lines are on their way: they are put into the index next.
    next: (usize, Vec<(u32, Candidate)>),
    /// Empty: memory for the next ones.
    spare: Vec<(u32, Candidate)>,
    /// Of a batch, what is put into the index.
    keys: Vec<(u32, Pointer)>,
    partition: Partition,
}

impl Loader {
    /// Loads every `workers`-th segment, the newest first: then what holds the place of an older version lies in few segments,
    /// unless all of them were written over, and the summaries of those alone are read again.
    async fn load<'s>(&mut self, segments: &'s [Segment], worker: usize, workers: usize) -> Result<()> {
        let mine: Vec<(usize, &Segment)> =
            segments.iter().enumerate().rev().skip(worker).step_by(workers).collect();
        let mine = if planted(Bug::OldestLoadedFirst) { mine.into_iter().rev().collect() } else { mine };
        let tiers = self.tiers.clone();
        // The segment of a summary that cannot be read is scanned, as if it were damaged; but not once others rely on it.
        let may_scan = self.pass.shards.start == 0;
        let tiers = &tiers;
        let read =
            async |(number, segment): (usize, &'s Segment), used| match read(tiers, number, segment, used)
                .await
            {
                Err(error) if may_scan && error.is_of_reading() => {
                    tracing::error!(segment = segment.segment, %error, "a summary cannot be read");
                    Ok((number, None))
                }
                read => read,
            };
        // The next summaries are being read while one is loaded.
        let mut reads = FuturesOrdered::new();
        let mut begun = mine.iter().copied();
        reads.extend(begun.by_ref().take(ahead(segments).0).map(|one| read(one, None)));
        let mut told = Duration::ZERO;
        let mut done = 0;
        while let Some(one) = reads.next().await {
            let (number, summary) = one?;
            self.take(number, &segments[number], summary.as_ref());
            self.partition.is_full = self.partition.left.len() > self.pass.most_left;
            if self.partition.is_full {
                return Ok(());
            }
            let used = summary.map(|(buffer, _)| buffer);
            reads.extend(begun.next().map(|one| read(one, used)));
            done += 1;
            self.tell(&mut told, done as f64 / mine.len() as f64);
        }
        (0..self.counts.len()).for_each(|shard| self.hand_in(shard));
        let (shard, mut last) = std::mem::take(&mut self.next);
        self.put_in(shard, &mut last);
        self.partition.is_full = self.partition.left.len() > self.pass.most_left;
        Ok(())
    }

    /// Loads a segment.
    fn take(&mut self, number: usize, segment: &Segment, summary: Option<&(Buffer, usize)>) {
        let mut live = 0;
        match (&segment.content, summary) {
            (Content::Scanned(scan, _), _) => {
                scan.entries.iter().for_each(|entry| live += self.put(segment, entry));
            }
            (Content::Sealed(footer), Some((buffer, at))) => {
                let secret = self.secret;
                let mut is_possible = true;
                let put = |entry: Entry| match entry.offset {
                    // No record begins there; whoever makes up a summary can make its checksum too.
                    0 => is_possible = false,
                    _ => live += self.put(segment, &entry),
                };
                // What was loaded of a damaged one does not matter: loading begins again.
                if footer.for_each_entry(&buffer[*at..], &secret, put).is_none() || !is_possible {
                    self.partition.damaged.push(number);
                }
            }
            (Content::Sealed(_), None) => self.partition.damaged.push(number),
        }
        self.partition.live.add(segment.tier, segment.slot, live, false);
    }

    /// Puts an entry where the others of its shard are; returns by how much it adds to the segment's live bytes.
    #[inline]
    fn put(&mut self, segment: &Segment, entry: &Entry) -> i64 {
        self.partition.highest = self.partition.highest.max(entry.sequence);
        let candidate = Candidate::new(&self.packing, segment, entry);
        let stored = self.index.stored_hash(&candidate.hash);
        let shard = Indexes::shard_of(stored).wrapping_sub(self.pass.shards.start);
        // All versions of a key are cleared up to a number, or the newest is not.
        if shard >= self.counts.len() || self.cleared.covers(&candidate.hash, entry.sequence) {
            return 0;
        }
        if !planted(Bug::ExpansionNotLoaded) {
            self.expansions.note(entry);
        }
        if !candidate.place.is_put() {
            self.partition.left.push(candidate);
            return 0;
        }
        self.partition.note_expiry(entry, self.known_ms);
        let count = usize::from(self.counts[shard]);
        self.batches[shard * self.batch + count] = (stored as u32, candidate);
        self.counts[shard] += 1;
        if count + 1 == self.batch {
            self.hand_in(shard);
        }
        candidate.place.padded_bytes(&self.packing)
    }

    /// Has the entries that were collected for a shard put into the index, while the cache lines that they need are on their
    /// way: those that were handed in before are put in now.
    fn hand_in(&mut self, shard: usize) {
        let count = usize::from(std::mem::take(&mut self.counts[shard]));
        let of_index = self.pass.shards.start + shard;
        let mut batch = std::mem::replace(&mut self.next.1, std::mem::take(&mut self.spare));
        self.next.1.extend_from_slice(&self.batches[shard * self.batch..][..count]);
        for (stored, candidate) in &self.next.1 {
            self.index.prefetch_new(candidate.hash.keyspace(), of_index, *stored);
        }
        let earlier = std::mem::replace(&mut self.next.0, of_index);
        self.put_in(earlier, &mut batch);
        batch.clear();
        self.spare = batch;
    }

    /// Puts entries of a shard into the indexes of their keyspaces.
    fn put_in(&mut self, shard: usize, batch: &mut [(u32, Candidate)]) {
        let keyspace = |(_, candidate): &(u32, Candidate)| candidate.hash.keyspace();
        if !batch.is_sorted_by_key(keyspace) {
            batch.sort_unstable_by_key(keyspace);
        }
        let (partition, packing) = (&mut self.partition, &self.packing);
        for batch in batch.chunk_by(|a, b| keyspace(a) == keyspace(b)) {
            self.keys.clear();
            self.keys.extend(batch.iter().map(|(stored, candidate)| (*stored, candidate.pointer())));
            self.index.load_new(keyspace(&batch[0]), shard, &self.keys, |position| {
                let candidate = batch[position].1;
                partition.live.count(packing, candidate.place, -1);
                partition.left.push(candidate);
            });
        }
    }

    fn tell(&self, told: &mut Duration, part: f64) {
        let Some(runtime) = &self.runtime else { return };
        self.progress.set(self.pass.done + part * self.pass.share);
        let elapsed = runtime.now().saturating_sub(self.pass.began);
        if elapsed > *told + Duration::from_secs(1) {
            *told = elapsed;
            tracing::info!(
                percent = self.progress.percent(),
                seconds = elapsed.as_secs(),
                "recovering: reading summaries"
            );
        }
    }
}

/// Reads the summary of a sealed segment, if it can into a buffer that was used before. None where the device does not give it.
pub(super) async fn read(
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
    Ok((number, Some(tier.read_into(segment.slot, footer.start, bytes, Some(buffer)).await?)))
}
