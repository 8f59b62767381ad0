//! Opening a store after anything: which segments there are, which records are in them, which version of a key is the
//! newest.
//!
//! 1. **Slots.** The start and the end of every used slot are read: free, sealed, or unsealed.
//! 2. **Unsealed segments** are read whole and scanned frame by frame.
//! 3. **Staged records**, which the last process left in memory, are added.
//! 4. **Entries** of all summaries and scans are dealt into partitions by key digest, as many at a time as memory allows, and
//!    each partition is sorted: the highest sequence number of a key wins, wherever it lies.
//!
//! Nothing is written here, so a crash in it changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use esker_device::Runtime;
use esker_index::{Index, KeyHash, Pointer};
use esker_log::{
    Entry, FOOTER_BYTES, Footer, FrameHeader, Kind, Location, Packing, Secret, SegmentScan, SlotStart,
    Stream, Superblock, Tier as TierName, class_of, scan_segment, slot_start,
};
use futures_util::future::try_join_all;
use futures_util::stream::{self, FuturesOrdered, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::staging::Staged;
use crate::tier::{SlotState, Tier};

/// Reads in flight.
const DEPTH: usize = 64;
const PARTITIONS: usize = 256;

/// What was found in a store, and what has to be done before it can be written to.
pub(crate) struct Recovered {
    /// Segments without a summary, to be sealed with these entries.
    pub(crate) unsealed: Vec<Unsealed>,
    /// Records of the staging file that won, in the order of their sequence numbers.
    pub(crate) staged: Vec<StagedWinner>,
    pub(crate) max_sequence: u64,
    pub(crate) max_segment: u64,
    pub(crate) segments: u64,
    pub(crate) metadata_bytes: u64,
}

pub(crate) struct Unsealed {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) stream: Stream,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tail: u32,
}

pub(crate) struct StagedWinner {
    pub(crate) piece: usize,
    pub(crate) entry: Entry,
}

/// What recovery works with.
pub(crate) struct Scene<'a> {
    pub(crate) runtime: &'a Arc<dyn Runtime>,
    pub(crate) tiers: Vec<(&'a Arc<Tier>, &'a Superblock)>,
    pub(crate) secret: Secret,
    pub(crate) packing: Packing,
    pub(crate) index: &'a Arc<Index>,
    pub(crate) staged: &'a [Staged],
    pub(crate) accept_loss: bool,
    /// Memory for entries.
    pub(crate) memory_bytes: u64,
}

enum Content {
    Sealed(Footer),
    Scanned(SegmentScan, Stream),
}

struct Segment {
    tier: TierName,
    slot: u32,
    segment: u64,
    opened_at: u64,
    content: Content,
}

/// An entry on its way into the index: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claimant {
    hash: KeyHash,
    sequence: u64,
    /// 40 bits of packed location, 1 of kind (a tombstone), 23 of length in granules; or the number of a staged record.
    place: u64,
}

const TOMBSTONE: u64 = 1 << 40;
const LENGTH_SHIFT: u32 = 41;
/// No location has all bits set: such places are staged records.
const STAGED: u64 = u64::MAX << 32;

impl Scene<'_> {
    fn tier(&self, name: TierName) -> &Arc<Tier> {
        let found = self.tiers.iter().find(|(tier, _)| tier.name() == name);
        found.expect("segments lie on tiers of the store").0
    }

    /// Finds everything, fills the index and the slots.
    pub(crate) async fn recover(&self) -> Result<Recovered> {
        let began = self.runtime.now();
        let mut segments = Vec::new();
        for (tier, superblock) in &self.tiers {
            segments.extend(self.find_segments(tier, superblock).await?);
        }
        let mut segments = self.scan_unsealed(segments).await?;
        self.refuse_loss(&segments)?;
        segments.sort_by_key(|s| s.segment);
        let max_segment =
            segments.iter().map(|s| s.segment).chain(self.staged.iter().map(|s| s.segment)).max();
        for s in &segments {
            let used = match &s.content {
                Content::Sealed(footer) => footer.tail,
                Content::Scanned(scan, _) => scan.tail,
            };
            self.tier(s.tier).occupy(s.slot, s.segment, SlotState::Sealed, s.opened_at);
            self.tier(s.tier).slot(s.slot).set_used(used);
        }
        let segments = Arc::new(segments);
        let (staged, max_sequence) = self.load(&segments, began).await?;
        let segments = Arc::try_unwrap(segments).ok().expect("the loaders have ended");
        let count = segments.len() as u64;
        let metadata_bytes = segments.iter().map(|s| self.metadata_bytes(s)).sum();
        let unsealed = segments.into_iter().filter_map(|s| match s.content {
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
        Ok(Recovered {
            unsealed: unsealed.collect(),
            staged,
            max_sequence,
            max_segment: max_segment.unwrap_or(0),
            segments: count,
            metadata_bytes,
        })
    }

    /// What had to be read of a segment.
    fn metadata_bytes(&self, segment: &Segment) -> u64 {
        let shape = self.tier(segment.tier).shape();
        match &segment.content {
            Content::Sealed(footer) => u64::from(shape.unit_bytes + shape.segment_bytes - footer.start),
            Content::Scanned(..) => shape.segment_bytes.into(),
        }
    }

    /// 1. What the slots of a tier hold.
    async fn find_segments(&self, tier: &Arc<Tier>, superblock: &Superblock) -> Result<Vec<Found>> {
        let device = tier.device()?;
        let on_device =
            device.geometry().bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes;
        let used = u64::from(superblock.used_slots).min(on_device).min(tier.slots().len() as u64) as u32;
        let segment_bytes = tier.shape().segment_bytes;
        let look = |slot: u32| async move {
            let (first, at) = tier.read(slot, 0, esker_log::FRAME_HEADER_BYTES as u64).await?;
            let start = slot_start(&first[at..], &self.secret);
            let (last, at) =
                tier.read(slot, segment_bytes - FOOTER_BYTES as u32, FOOTER_BYTES as u64).await?;
            let end = &last[at..];
            let footer = Footer::parse(end, &self.secret, segment_bytes);
            let freed = match slot_start(end, &self.secret) {
                SlotStart::Free(freed) => freed,
                _ => None,
            };
            Ok::<_, Error>((slot, start, footer, freed))
        };
        let looked: Vec<_> = stream::iter(0..used).map(look).buffer_unordered(DEPTH).try_collect().await?;
        let mut free = BTreeSet::new();
        let mut found = Vec::new();
        for (slot, start, footer, freed_at_end) in looked {
            let tier = tier.name();
            match (start, footer) {
                (SlotStart::Frame(first), _) if freed_at_end == Some(first.segment) => {
                    // It was being freed; everything in it that counts was durable elsewhere.
                    free.insert(slot);
                }
                (SlotStart::Frame(first), footer) => {
                    let footer = footer.filter(|f| f.segment == first.segment);
                    found.push(Found { tier, slot, first: Some(first), footer, after: 0 });
                }
                // A start that was lost: the end tells of a segment that came after the one that was freed.
                (SlotStart::Free(freed), Some(footer)) if freed.is_none_or(|f| footer.segment > f) => {
                    found.push(Found { tier, slot, first: None, footer: Some(footer), after: 0 });
                }
                (SlotStart::Free(_), _) => drop(free.insert(slot)),
                (SlotStart::Unknown, footer) => {
                    found.push(Found { tier, slot, first: None, footer, after: freed_at_end.unwrap_or(0) });
                }
            }
        }
        tier.restore_allocation(used, free);
        Ok(found)
    }

    /// 2. Reads what has no usable summary.
    async fn scan_unsealed(&self, found: Vec<Found>) -> Result<Vec<Segment>> {
        let newest_of = |stream: Stream| {
            let number = |f: &Found| match (f.first, f.footer) {
                (Some(first), _) if first.stream == stream => Some(first.segment),
                (_, Some(footer)) if footer.stream == stream => Some(footer.segment),
                _ => None,
            };
            found.iter().filter_map(number).max().unwrap_or(0)
        };
        let newest = [Stream::LANE, Stream::LARGE].map(newest_of);
        let mut segments = Vec::new();
        for f in found {
            let tier = self.tier(f.tier);
            let opened_at = f.first.map_or(0, |first| first.opened_at);
            if let Some(footer) = f.footer
                && self.read_summary(tier, f.slot, &footer).await?.is_some()
            {
                let content = Content::Sealed(footer);
                segments.push(Segment {
                    tier: f.tier,
                    slot: f.slot,
                    segment: footer.segment,
                    opened_at,
                    content,
                });
                continue;
            }
            let bytes = read_whole(tier, f.slot).await?;
            let shape = tier.shape();
            let named = f.first.map(|h| (h.segment, h.stream)).or(f.footer.map(|f| (f.segment, f.stream)));
            // Without its start and its end, a later frame may still say who it was.
            let unit = shape.unit_bytes as usize;
            let any = || {
                let headers = (0..bytes.len()).step_by(unit);
                let parse = |at: usize| FrameHeader::parse(&bytes[at..], &self.secret, at as u32);
                headers.filter_map(parse).find(|h| h.segment > f.after)
            };
            let Some((segment, stream)) = named.or_else(|| any().map(|h| (h.segment, h.stream))) else {
                // Never ours: foreign bytes that were there before.
                tier.give_back_slot(f.slot);
                continue;
            };
            let superseded = match stream {
                Stream::LANE => segment < newest[0],
                Stream::LARGE => segment < newest[1],
                _ => false,
            };
            let durable = f.footer.is_some() || f.first.is_none() || superseded;
            // What lies behind the tail of a sealed segment was given up when it was sealed.
            let end = f.footer.map_or(bytes.len(), |footer| (footer.tail as usize).min(bytes.len()));
            let scan = scan_segment(&bytes[..end], &self.secret, shape, segment, durable);
            if scan.entries.is_empty() && scan.lost.is_empty() {
                tier.give_back_slot(f.slot);
                continue;
            }
            let content = Content::Scanned(scan, stream);
            segments.push(Segment { tier: f.tier, slot: f.slot, segment, opened_at, content });
        }
        Ok(segments)
    }

    fn refuse_loss(&self, segments: &[Segment]) -> Result<()> {
        for s in segments {
            if let Content::Scanned(scan, _) = &s.content
                && let Some(range) = scan.lost.first()
            {
                let what = format!(
                    "{} bytes on the {} tier cannot be read and the keys in them not be named",
                    range.len(),
                    s.tier.name()
                );
                if !self.accept_loss {
                    let what = format!("{what}; open with accept_loss to go on without them");
                    return Err(Error::Corrupt {
                        key: None,
                        segment: s.segment,
                        offset: range.start.into(),
                        what,
                    });
                }
                tracing::error!(segment = s.segment, offset = range.start, "{what}; accepted");
            }
        }
        Ok(())
    }

    async fn read_summary(&self, tier: &Tier, slot: u32, footer: &Footer) -> Result<Option<Vec<Entry>>> {
        let (buffer, at) = tier.read(slot, footer.start, u64::from(footer.entry_bytes)).await?;
        Ok(footer.entries(&buffer[at..], &self.secret))
    }

    /// 4. Deals the entries out, finds the newest of each key, and fills index and slots.
    async fn load(&self, segments: &Arc<Vec<Segment>>, began: Duration) -> Result<(Vec<StagedWinner>, u64)> {
        let entries: u64 = segments
            .iter()
            .map(|s| match &s.content {
                Content::Sealed(footer) => u64::from(footer.entries),
                Content::Scanned(scan, _) => scan.entries.len() as u64,
            })
            .sum();
        let bytes = entries * std::mem::size_of::<Claimant>() as u64;
        let passes = (bytes.div_ceil(self.memory_bytes.max(1)) as usize).clamp(1, PARTITIONS);
        let workers = self.runtime.parallelism().max(1);
        let mut staged_winners = Vec::new();
        let mut max_sequence = self.tiers.iter().map(|(_, s)| s.cleared_through).max().unwrap_or(0);
        for pass in 0..passes {
            let range = pass * PARTITIONS / passes..(pass + 1) * PARTITIONS / passes;
            let dealt: Vec<Mutex<Vec<Claimant>>> = range.clone().map(|_| Mutex::default()).collect();
            let dealt = Arc::new(dealt);
            let mut dealers = Vec::new();
            for worker in 0..workers {
                let tiers = self.tiers.iter().map(|(tier, _)| Arc::clone(tier)).collect();
                let dealer = Dealer {
                    tiers,
                    secret: self.secret,
                    packing: self.packing,
                    first: range.start,
                    dealt: dealt.clone(),
                    progress: (worker == 0).then(|| (self.runtime.clone(), began, pass, passes)),
                };
                let segments = segments.clone();
                dealers.push(run(self.runtime, async move { dealer.deal(&segments, worker, workers).await }));
            }
            for highest in try_join_all(dealers).await? {
                max_sequence = max_sequence.max(highest);
            }
            for (piece, staged) in self.staged.iter().enumerate() {
                for (number, entry) in staged.entries.iter().enumerate() {
                    max_sequence = max_sequence.max(entry.sequence);
                    let hash = KeyHash { slot: entry.digest.slot, check: entry.digest.check };
                    let place = STAGED | (piece as u64) << 27 | number as u64;
                    if let Some(partition) = partition_of(&hash).checked_sub(range.start)
                        && let Some(partition) = dealt.get(partition)
                    {
                        partition.lock().push(Claimant { hash, sequence: entry.sequence, place });
                    }
                }
            }
            let mut loaders = Vec::new();
            for worker in 0..workers {
                let loader = Loader {
                    tiers: self.tiers.iter().map(|(tier, _)| Arc::clone(tier)).collect(),
                    packing: self.packing,
                    index: self.index.clone(),
                    cleared_through: self.tiers.iter().map(|(_, s)| s.cleared_through).max().unwrap_or(0),
                    dealt: dealt.clone(),
                };
                loaders.push(run(self.runtime, async move { Ok(loader.load(worker, workers)) }));
            }
            for place in try_join_all(loaders).await?.into_iter().flatten() {
                let (piece, number) = ((place & !STAGED) >> 27, place & ((1 << 27) - 1));
                let entry = self.staged[piece as usize].entries[number as usize];
                staged_winners.push(StagedWinner { piece: piece as usize, entry });
            }
        }
        staged_winners.sort_by_key(|w| w.entry.sequence);
        Ok((staged_winners, max_sequence))
    }
}

struct Found {
    tier: TierName,
    slot: u32,
    first: Option<FrameHeader>,
    footer: Option<Footer>,
    /// Frames up to this segment number are leftovers of what was freed.
    after: u64,
}

/// Runs a piece of work on the runtime and hands back what came of it.
async fn run<T: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    runtime.spawn(
        "recover",
        Box::pin(async move {
            let _ = send.send(work.await);
        }),
    );
    receive
        .await
        .unwrap_or_else(|_| Err(Error::Closed { reason: "the runtime ended during recovery".into() }))
}

fn partition_of(hash: &KeyHash) -> usize {
    (hash.check >> 56) as usize
}

struct Dealer {
    tiers: Vec<Arc<Tier>>,
    secret: Secret,
    packing: Packing,
    /// First partition of this pass.
    first: usize,
    dealt: Arc<Vec<Mutex<Vec<Claimant>>>>,
    progress: Option<(Arc<dyn Runtime>, Duration, usize, usize)>,
}

impl Dealer {
    /// Deals every `workers`-th segment; returns the highest sequence number met.
    async fn deal(&self, segments: &[Segment], worker: usize, workers: usize) -> Result<u64> {
        let mut highest = 0;
        let mut sorted: Vec<Vec<Claimant>> = vec![Vec::new(); self.dealt.len()];
        let mine: Vec<&Segment> = segments.iter().skip(worker).step_by(workers).collect();
        // The next summaries are being read while one is dealt.
        let mut reads = FuturesOrdered::new();
        let mut begun = mine.iter().copied();
        reads.extend(begun.by_ref().take(8).map(|segment| self.read(segment)));
        let mut done = 0;
        let mut told = Duration::ZERO;
        while let Some(entries) = reads.next().await {
            let (segment, entries) = (mine[done], entries?);
            reads.extend(begun.next().map(|segment| self.read(segment)));
            for entry in &entries {
                highest = highest.max(entry.sequence);
                let claimant = self.claimant(segment, entry);
                if let Some(partition) = partition_of(&claimant.hash).checked_sub(self.first)
                    && let Some(partition) = sorted.get_mut(partition)
                {
                    partition.push(claimant);
                }
            }
            done += 1;
            if let Some((runtime, began, pass, passes)) = &self.progress {
                let elapsed = runtime.now() - *began;
                if elapsed > told + Duration::from_secs(1) {
                    told = elapsed;
                    let percent = (100 * pass + 100 * done / mine.len()) / passes;
                    tracing::info!(percent, seconds = elapsed.as_secs(), "recovering: reading summaries");
                }
            }
        }
        for (partition, claimants) in sorted.into_iter().enumerate() {
            self.dealt[partition].lock().extend(claimants);
        }
        Ok(highest)
    }

    async fn read(&self, segment: &Segment) -> Result<Vec<Entry>> {
        match &segment.content {
            Content::Scanned(scan, _) => Ok(scan.entries.clone()),
            Content::Sealed(footer) => {
                let tier = self.tiers.iter().find(|t| t.name() == segment.tier).expect("its tier is there");
                let (buffer, at) =
                    tier.read(segment.slot, footer.start, u64::from(footer.entry_bytes)).await?;
                footer.entries(&buffer[at..], &self.secret).ok_or_else(|| Error::Corrupt {
                    key: None,
                    segment: segment.segment,
                    offset: footer.start.into(),
                    what: "a summary that verified a moment ago no longer does".into(),
                })
            }
        }
    }

    fn claimant(&self, segment: &Segment, entry: &Entry) -> Claimant {
        let location = Location {
            tier: segment.tier,
            slot: segment.slot,
            offset: entry.offset,
            class: class_of(u64::from(entry.bytes)),
        };
        let granules = u64::from(entry.bytes).div_ceil(self.packing.granule_bytes);
        let tombstone = if entry.kind == Kind::Tombstone { TOMBSTONE } else { 0 };
        Claimant {
            hash: KeyHash { slot: entry.digest.slot, check: entry.digest.check },
            sequence: entry.sequence,
            place: self.packing.pack(location) | tombstone | granules << LENGTH_SHIFT,
        }
    }
}

struct Loader {
    tiers: Vec<Arc<Tier>>,
    packing: Packing,
    index: Arc<Index>,
    cleared_through: u64,
    dealt: Arc<Vec<Mutex<Vec<Claimant>>>>,
}

impl Loader {
    /// Loads every `workers`-th partition; returns the staged records that won.
    fn load(&self, worker: usize, workers: usize) -> Vec<u64> {
        let mut staged = Vec::new();
        for partition in self.dealt.iter().skip(worker).step_by(workers) {
            let mut claimants = std::mem::take(&mut *partition.lock());
            claimants.sort_unstable_by(|a, b| {
                let key = |c: &Claimant| (c.hash.slot, c.hash.check);
                key(a).cmp(&key(b)).then(b.sequence.cmp(&a.sequence)).then(a.place.cmp(&b.place))
            });
            let mut last: Option<KeyHash> = None;
            for claimant in &claimants {
                if last == Some(claimant.hash) {
                    continue;
                }
                last = Some(claimant.hash);
                if claimant.sequence <= self.cleared_through {
                    continue;
                }
                if claimant.place & STAGED == STAGED {
                    staged.push(claimant.place);
                    continue;
                }
                let packed = claimant.place & (TOMBSTONE - 1);
                let location = self.packing.unpack(packed);
                let bytes = (claimant.place >> LENGTH_SHIFT) * self.packing.granule_bytes;
                let tier = self.tiers.iter().find(|t| t.name() == location.tier).expect("its tier is there");
                tier.add_live(location.slot, bytes as i64);
                if claimant.place & TOMBSTONE == 0 {
                    let pointer = Pointer::new(packed).expect("a record never begins at offset 0");
                    self.index.load(claimant.hash, pointer);
                }
            }
        }
        staged
    }
}

/// All bytes of a segment.
async fn read_whole(tier: &Tier, slot: u32) -> Result<Vec<u8>> {
    let segment_bytes = tier.shape().segment_bytes;
    let piece_bytes = segment_bytes.min(1 << 20);
    let pieces = (0..segment_bytes).step_by(piece_bytes as usize);
    let reads: Vec<_> = stream::iter(pieces)
        .map(|at| async move { tier.read(slot, at, u64::from(piece_bytes)).await })
        .buffered(8)
        .try_collect()
        .await?;
    Ok(reads.iter().flat_map(|(buffer, at)| &buffer[*at..]).copied().collect())
}
