//! Loads the entries of all segments into the shards of the index.
//!
//! Each worker collects a batch of entries for every shard, small enough to stay in its processor's cache, and puts a
//! batch into the index when it is worth the lock and the cache misses. Summaries are read meanwhile. Entries that
//! cannot be put into the index (tombstones, and entries whose index slot is taken) stay in the worker's partition, for
//! `resolve`.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use esker_device::{Buffer, Runtime};
use esker_index::{Indexes, Pointer};
use esker_log::{Cleared, Entry, Packing, Secret};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::candidate::{Candidate, Live};
use super::context::{Content, RecoveryContext, Segment};

use crate::base::error::Result;
use crate::catalog::expansions::Expansions;
use crate::open::progress::Progress;
use crate::open::run::run;
use crate::segments::staging::Staged;
use crate::segments::tier::Tier;

/// Bytes of summaries that a worker has in flight, and the minimum and maximum number of them.
const AHEAD_BYTES: u64 = 3 << 20;
const AHEAD: RangeInclusive<u64> = 4..=16;
/// Summary buffers are multiples of this many bytes, so that they fit the next summary too.
const BUFFER_BYTES: u64 = 64 << 10;
/// Maximum number of entries of a shard that are put into the index at once. The batches of all shards take 1.9 MiB,
/// about the size of the second-level cache.
const BATCH_MAX: usize = 48;
/// Approximate minimum length of a summary entry, in bytes. Bounds the number of entries.
const ENTRY_BYTES: usize = 8;

/// Entries that a worker could not put into the index, and its counts.
#[derive(Default)]
pub(super) struct Partition {
    /// Tombstones, and entries whose index slot is taken.
    pub(super) left: Vec<Candidate>,
    pub(super) live: Live,
    /// Highest sequence number seen.
    pub(super) highest: u64,
    /// Earliest expiry seen after [`RecoveryContext::known_ms`].
    pub(super) next_expiry_ms: Option<u64>,
    /// Segments with a damaged summary.
    pub(super) damaged: Vec<usize>,
    /// True if `left` exceeded the memory limit; the worker stopped then.
    pub(super) is_full: bool,
}

impl Partition {
    /// Notes the expiry of a put, if it is after `known_ms`.
    #[inline]
    fn note_expiry(&mut self, entry: &Entry, known_ms: u64) {
        if let Some(at_ms) = entry.expires_at_ms.filter(|&at_ms| at_ms > known_ms) {
            self.next_expiry_ms = Some(self.next_expiry_ms.map_or(at_ms, |next_ms| next_ms.min(at_ms)));
        }
    }
}

/// One pass of loading, with the basis for progress reports.
#[derive(Clone)]
pub(super) struct Pass {
    /// The shards of this pass.
    pub(super) shards: Range<usize>,
    /// Maximum number of candidates left per worker.
    pub(super) most_left: usize,
    pub(super) done: f64,
    pub(super) share: f64,
}

impl RecoveryContext<'_> {
    /// Step 3. Loads the entries of all segments that belong to these shards. Returns one partition per worker.
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
                batches: vec![(0, Candidate::NOBODY); pass.shards.len() * batch],
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

    /// Returns the partition of the staged records. A staged record gets into the index only once it is written to a
    /// segment.
    pub(super) fn load_staged(&self, staged: &[Staged], shards: &Range<usize>) -> Partition {
        let mut partition = Partition::default();
        for (piece, staged) in staged.iter().enumerate() {
            for (number, entry) in staged.entries.iter().enumerate() {
                partition.highest = partition.highest.max(entry.sequence);
                let hash = entry.key_hash;
                let shard = Indexes::shard_of(self.index.stored_hash(&hash));
                if shards.contains(&shard) && !self.cleared.covers(&hash, entry.sequence) {
                    partition.note_expiry(entry, self.known_ms);
                    partition.left.push(Candidate::of_staged(piece, number, entry));
                }
            }
        }
        partition
    }
}

/// Returns the number of summaries that a worker reads concurrently, and the buffer size of the largest; 0 if there is
/// none.
pub(super) fn ahead(segments: &[Segment]) -> (usize, u64) {
    let summaries = segments.iter().filter_map(|segment| match &segment.content {
        Content::Sealed(footer) => Some(u64::from(footer.entry_bytes) + 2 * BUFFER_BYTES),
        Content::Scanned(..) => None,
    });
    let largest = summaries.max().unwrap_or(0);
    ((AHEAD_BYTES / largest.max(1)).clamp(*AHEAD.start(), *AHEAD.end()) as usize, largest)
}

/// Returns the batch size per shard: at most the average number of entries per shard, for a small store.
fn batch(segments: &[Segment], shards: usize) -> usize {
    let entries = |segment: &Segment| match &segment.content {
        Content::Scanned(scan, _) => scan.entries.len(),
        Content::Sealed(footer) => footer.entry_bytes as usize / ENTRY_BYTES,
    };
    let all: usize = segments.iter().map(entries).sum();
    (all / shards + 1).min(BATCH_MAX)
}

struct Loader {
    tiers: Vec<Arc<Tier>>,
    secret: Secret,
    packing: Packing,
    index: Arc<Indexes>,
    expansions: Arc<Expansions>,
    cleared: Cleared,
    known_ms: u64,
    pass: Pass,
    /// Set for the worker that reports progress.
    runtime: Option<Arc<dyn Runtime>>,
    progress: Progress,
    /// Batch size per shard.
    batch: usize,
    /// Per shard of the pass, room for a batch: entries with the lower half of their stored hashes.
    batches: Vec<(u32, Candidate)>,
    counts: Vec<u8>,
    /// A shard and a batch of it that is put into the index next; its cache lines are being prefetched.
    next: (usize, Vec<(u32, Candidate)>),
    /// Empty vector that is reused for the next batch.
    spare: Vec<(u32, Candidate)>,
    /// The part of a batch that is being put into the index.
    keys: Vec<(u32, Pointer)>,
    partition: Partition,
}

impl Loader {
    /// Loads every `workers`-th segment, newest first. Entries that hold an index slot against older versions are then
    /// in few segments, unless the whole store was overwritten, and only the summaries of those segments are read
    /// again.
    async fn load<'s>(&mut self, segments: &'s [Segment], worker: usize, workers: usize) -> Result<()> {
        let mine: Vec<(usize, &Segment)> =
            segments.iter().enumerate().rev().skip(worker).step_by(workers).collect();
        let mine = if planted(Bug::OldestLoadedFirst) { mine.into_iter().rev().collect() } else { mine };
        let tiers = self.tiers.clone();
        // A segment whose summary is unreadable is scanned, as if the summary were damaged; but not in later passes,
        // because results of the first pass depend on it.
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
        // The next summaries are read while one is loaded.
        let mut reads = FuturesOrdered::new();
        let mut begun = mine.iter().copied();
        reads.extend(begun.by_ref().take(ahead(segments).0).map(|one| read(one, None)));
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
            self.tell(done as f64 / mine.len() as f64);
        }
        (0..self.counts.len()).for_each(|shard| self.hand_in(shard));
        let (shard, mut last) = std::mem::take(&mut self.next);
        self.put_in(shard, &mut last);
        self.partition.is_full = self.partition.left.len() > self.pass.most_left;
        Ok(())
    }

    /// Loads the entries of a segment.
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
                    // No record begins at offset 0. A forged summary can have a valid checksum, so this is checked.
                    0 => is_possible = false,
                    _ => live += self.put(segment, &entry),
                };
                // Entries already loaded from a damaged summary do no harm, because loading restarts.
                if footer.for_each_entry(&buffer[*at..], &secret, put).is_none() || !is_possible {
                    self.partition.damaged.push(number);
                }
            }
            (Content::Sealed(_), None) => self.partition.damaged.push(number),
        }
        self.partition.live.add(segment.tier, segment.slot, live, false);
    }

    /// Adds an entry to the batch of its shard. Returns the live bytes that it adds to its segment.
    #[inline]
    fn put(&mut self, segment: &Segment, entry: &Entry) -> i64 {
        self.partition.highest = self.partition.highest.max(entry.sequence);
        let candidate = Candidate::new(&self.packing, segment, entry);
        let hash = candidate.hash();
        let stored = self.index.stored_hash(&hash);
        let shard = Indexes::shard_of(stored).wrapping_sub(self.pass.shards.start);
        // A clear covers all versions of a key up to its sequence number, so that dropping them cannot revive an older
        // one.
        if shard >= self.counts.len() || self.cleared.covers(&hash, entry.sequence) {
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
        candidate.padded_bytes(&self.packing)
    }

    /// Hands in the batch of a shard: prefetches the cache lines that it needs, and puts the previously handed-in batch
    /// into the index.
    fn hand_in(&mut self, shard: usize) {
        let count = usize::from(std::mem::take(&mut self.counts[shard]));
        let of_index = self.pass.shards.start + shard;
        let mut batch = std::mem::replace(&mut self.next.1, std::mem::take(&mut self.spare));
        self.next.1.extend_from_slice(&self.batches[shard * self.batch..][..count]);
        for (stored, candidate) in &self.next.1 {
            self.index.prefetch_new(candidate.hash().keyspace(), of_index, *stored);
        }
        let earlier = std::mem::replace(&mut self.next.0, of_index);
        self.put_in(earlier, &mut batch);
        batch.clear();
        self.spare = batch;
    }

    /// Puts entries of a shard into the indexes of their keyspaces.
    fn put_in(&mut self, shard: usize, batch: &mut [(u32, Candidate)]) {
        let keyspace = |(_, candidate): &(u32, Candidate)| candidate.hash().keyspace();
        if !batch.is_sorted_by_key(keyspace) {
            batch.sort_unstable_by_key(keyspace);
        }
        let (partition, packing) = (&mut self.partition, &self.packing);
        for batch in batch.chunk_by(|a, b| keyspace(a) == keyspace(b)) {
            self.keys.clear();
            self.keys.extend(batch.iter().map(|(stored, candidate)| (*stored, candidate.pointer())));
            self.index.load_new(keyspace(&batch[0]), shard, &self.keys, |position| {
                let candidate = batch[position].1;
                partition.live.count(packing, &candidate, -1);
                partition.left.push(candidate);
            });
        }
    }

    fn tell(&self, part: f64) {
        let Some(runtime) = &self.runtime else { return };
        let part = self.pass.done + part * self.pass.share;
        if let Some(at) = self.progress.set(part, runtime.now()) {
            tracing::info!(
                percent = at.percent,
                records = at.all,
                remaining_s = at.remaining.map(|left| left.as_secs()),
                "recovering: reading summaries"
            );
        }
    }
}

/// Reads the summary of a sealed segment, into a used buffer if that is large enough. Returns no buffer for a segment
/// that was scanned.
pub(super) async fn read(
    tiers: &[Arc<Tier>],
    number: usize,
    segment: &Segment,
    used: Option<Buffer>,
) -> Result<(usize, Option<(Buffer, usize)>)> {
    let Content::Sealed(footer) = &segment.content else { return Ok((number, None)) };
    let tier =
        tiers.iter().find(|t| t.name() == segment.tier).expect("the segment lies on a tier of the store");
    let bytes = u64::from(footer.entry_bytes);
    // Larger than this summary needs, to fit later ones too.
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
