//! Verification of the data on the devices: the summary of each segment, and every current record.
//!
//! Records that no key leads to are not verified, because damage in them has no effect. While a segment is read, its
//! records may be overwritten or moved, and the segment may be freed. A checksum mismatch therefore counts as damage
//! only if the record is still current, and fails a second time.

use esker_gc::{Span, plan_reads};
use esker_log::{Claim, Damage, Entry, EntryList, RecordView, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::catalog::records::Damaged;
use crate::catalog::unidentified::UnreadableSegment;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;

/// Maximum number of damages that are reported individually.
const TOLD: usize = 1000;

/// Result of a verification of a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Segments verified.
    pub segments: u64,
    /// Records read, damaged or not.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Number of damages: records, summaries, copies of superblocks.
    pub damages: u64,
    /// The first thousand damages, each with the key if it is known.
    pub damaged: Vec<Error>,
}

impl Verification {
    /// Returns true if no damage was found.
    pub fn is_sound(&self) -> bool {
        self.damages == 0
    }

    fn add(&mut self, damaged: Vec<Error>) {
        self.damages += damaged.len() as u64;
        let room = TOLD - self.damaged.len();
        self.damaged.extend(damaged.into_iter().take(room));
    }
}

/// Verifies the whole store.
///
/// # Errors
/// `Closed`.
pub(crate) async fn verify(space: &Space, catalog: &Catalog) -> Result<Verification> {
    space.health.check_open()?;
    let (mut all, mut unreadable) = (Verification::default(), Vec::new());
    for (tier, slot) in sealed_segments(space) {
        let mut segment = SegmentVerification::begin(space, catalog, tier, slot).await?;
        while segment.read_next().await?.is_some() {}
        let verdict = segment.verdict;
        unreadable.extend(verdict.unreadable);
        all.segments += 1;
        all.records += verdict.records;
        all.bytes += verdict.bytes;
        all.add(verdict.damaged);
    }
    all.add(catalog.report_unreadable(unreadable).await);
    all.add(space.superblocks.damaged_copies(space.tiers()).await?);
    Ok(all)
}

/// Returns the segments to verify, in the order of their slots.
pub(crate) fn sealed_segments(space: &Space) -> impl Iterator<Item = (TierName, u32)> + Send {
    space.tiers().flat_map(|tier| {
        let slots = tier.slots().in_use().filter(|(_, slot)| is_sealed(slot.state()));
        slots.map(|(at, _)| (tier.name(), at))
    })
}

/// Returns true if the segment in a slot of this state is to be verified. A victim is about to be freed, and relocation
/// verifies it.
fn is_sealed(state: SlotState) -> bool {
    matches!(state, SlotState::Sealed | SlotState::Damaged)
        && (state == SlotState::Sealed || !planted(Bug::KnownDamageNotVerified))
}

/// Result of the verification of one segment.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Records read, damaged or not.
    pub(crate) records: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// The damages, each with the key if it is known.
    pub(crate) damaged: Vec<Error>,
    /// The segment, if its entries are unreadable. See [`Catalog::report_unreadable`].
    pub(crate) unreadable: Option<UnreadableSegment>,
}

/// A segment that is being verified, read by read.
pub(crate) struct SegmentVerification<'a> {
    space: &'a Space,
    catalog: &'a Catalog,
    tier: TierName,
    slot: u32,
    segment: u64,
    /// Reads that are left.
    spans: Box<dyn Iterator<Item = Span> + Send + Sync + 'a>,
    pub(crate) verdict: Verdict,
}

impl<'a> SegmentVerification<'a> {
    /// Begins with the summary of the segment in a slot. A segment that is open or being freed yields no findings.
    ///
    /// # Errors
    /// `Closed`; a failed read is a finding.
    pub(crate) async fn begin(
        space: &'a Space,
        catalog: &'a Catalog,
        tier: TierName,
        slot: u32,
    ) -> Result<SegmentVerification<'a>> {
        let segment = space.tier(tier).slot(slot).segment();
        let (spans, verdict): (Box<dyn Iterator<Item = Span> + Send + Sync>, _) =
            (Box::new(std::iter::empty()), Verdict::default());
        let mut this = SegmentVerification { space, catalog, tier, slot, segment, spans, verdict };
        if !this.is_there() {
            return Ok(this);
        }
        let damage = match space.read_entries(space.tier(tier), slot).await {
            Ok(Some(entries)) => {
                this.plan(entries);
                return Ok(this);
            }
            Ok(None) => this.summary_is_damaged(),
            Err(error) if error.is_of_reading() => error,
            Err(error) => return Err(error),
        };
        // The frames may still have all entries.
        match space.read_entries_or_scan(space.tier(tier), slot).await {
            Ok(Some(entries)) => {
                this.verdict.damaged.extend(this.is_there().then_some(damage));
                this.plan(entries);
            }
            Err(error) if !error.is_of_reading() => return Err(error),
            Ok(None) | Err(_) if this.is_there() => {
                let (at, segment, error) = ((tier, slot), this.segment, Some(damage));
                this.verdict.unreadable = Some(UnreadableSegment { at, segment, error });
            }
            Ok(None) | Err(_) => {}
        }
        Ok(this)
    }

    /// Plans the reads of the current records.
    fn plan(&mut self, entries: EntryList) {
        let (catalog, tier, slot) = (self.catalog, self.tier, self.slot);
        self.space.note_readable((tier, slot), self.segment);
        // An upper bound: the read of a summary counts towards the scrub's rate too.
        self.verdict.bytes = (entries.len() * esker_log::MAX_ENTRY_BYTES) as u64;
        let current = entries.into_iter().filter(move |entry| catalog.is_current(tier, slot, entry));
        let mut spans = plan_reads(current).peekable();
        // The first read is planned here, so that a segment without current records needs no call of `read_next`.
        spans.peek();
        self.spans = Box::new(spans);
    }

    /// Makes the next read. Returns its length in bytes; `None` if no read is left.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) async fn read_next(&mut self) -> Result<Option<u64>> {
        let Some(span) = self.spans.next() else { return Ok(None) };
        self.read_span(&span).await?;
        Ok(Some(span.bytes.into()))
    }

    /// Returns true if the segment is still in its slot, sealed.
    fn is_there(&self) -> bool {
        let slot = self.space.tier(self.tier).slot(self.slot);
        is_sealed(slot.state()) && slot.segment() == self.segment && self.segment != 0
    }

    /// Returns true if a record of the segment is current.
    fn is_needed(&self, entry: &Entry) -> bool {
        self.catalog.is_current(self.tier, self.slot, entry) && self.is_there()
    }

    fn report(&self, entry: &Entry, key: Option<&[u8]>) {
        self.space.report_damage(entry.key_hash.keyspace(), key, (self.tier, self.slot));
    }

    fn summary_is_damaged(&self) -> Error {
        let what = "the summary does not match its checksum".to_owned();
        let offset = self.space.tier(self.tier).shape().segment_bytes.into();
        Error::Corrupt { key: None, segment: self.segment, offset, what }
    }

    async fn read_span(&mut self, span: &Span) -> Result<()> {
        self.verdict.bytes += u64::from(span.bytes);
        let read =
            self.space.tier(self.tier).read_background(self.slot, span.offset, span.bytes.into()).await;
        let (buffer, at) = match read {
            Ok(read) => read,
            Err(error) if error.is_of_reading() => {
                for entry in span.entries.iter().filter(|entry| self.is_needed(entry)) {
                    self.report(entry, None);
                }
                self.verdict.damaged.push(error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in &span.entries {
            self.verdict.records += 1;
            let from = at + (entry.offset - span.offset) as usize;
            if self.verify(entry, &buffer[from..from + entry.bytes as usize]).is_err() {
                let damage = self.verify_again(entry).await?;
                self.verdict.damaged.extend(damage);
            }
        }
        Ok(())
    }

    /// Verifies a record. On failure, returns the damage, and the key if it is known.
    fn verify(&self, entry: &Entry, bytes: &[u8]) -> std::result::Result<(), (Damage, Option<Vec<u8>>)> {
        let identity = self.space.secret.identity(self.segment, entry.offset);
        // A claimed key is accepted if the summary confirms its digest.
        let digest = |key: &[u8]| self.space.secret.key_hash(entry.key_hash.keyspace(), key);
        let key = || Claim::key(bytes).filter(|key| digest(key) == entry.key_hash);
        let record = RecordView::parse(bytes, &identity);
        let verified = record.and_then(|record| record.verify_value(&self.space.secret));
        verified.map_err(|damage| (damage, key().map(<[u8]>::to_vec)))
    }

    /// Reads a record that failed verification again. Returns `None` if it passes now, or is no longer current.
    async fn verify_again(&self, entry: &Entry) -> Result<Option<Error>> {
        let tier = self.space.tier(self.tier);
        let found = match tier.read_background(self.slot, entry.offset, entry.bytes.into()).await {
            Ok((buffer, at)) => self.verify(entry, &buffer[at..at + entry.bytes as usize]),
            Err(error) if error.is_of_reading() => {
                if self.is_needed(entry) {
                    self.report(entry, None);
                }
                return Ok(Some(error));
            }
            Err(error) => return Err(error),
        };
        let Err((damage, key)) = found else { return Ok(None) };
        let is_needed = self.is_needed(entry);
        if is_needed {
            self.report(entry, key.as_deref());
        }
        let (segment, offset) = (self.segment, entry.offset);
        let damaged = Damaged { damage, key, claimed_key: None, segment, offset };
        let is_needed = is_needed || planted(Bug::MovedTakenForDamage);
        Ok(is_needed.then(|| damaged.into_error(None)))
    }
}
