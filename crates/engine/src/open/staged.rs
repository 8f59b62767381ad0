//! Writes the records that the last process left in the staging file to a segment, and adds them to the index.

use esker_device::WriteMode;
use esker_log::{Entry, Kind, Location, OpenSegment, Stream};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::open::recover::StagedRecord;
use crate::segments::accounting::Origin;
use crate::segments::buffers::{Backing, MemoryPool};
use crate::segments::limit::FRAME_BYTES;
use crate::segments::staging::Staged;
use crate::segments::writer::{SegmentWriter, Summary};

/// Writes records in the order of their sequence numbers, and adds the newest record of each key to the index.
/// `opened_at`: every sequence number up to it is published.
///
/// The power may fail meanwhile. Records are therefore written in their order, older versions included, and each batch
/// in one frame: any prefix is a state that a lane could have left.
pub(super) async fn write(
    catalog: &Catalog,
    opened_at: u64,
    staged: &[Staged],
    records: &[StagedRecord],
) -> Result<()> {
    if !records.iter().any(|record| record.is_newest) {
        return Ok(());
    }
    let space = &*catalog.space;
    let tier = space.first_tier();
    let writer = SegmentWriter::new(space, tier, Origin::Recovered);
    // `opened_at` must be below every superseded version written here, because otherwise the tombstone that hides such a
    // version, possibly in another segment, could be dropped while the version is still on the medium.
    let oldest = records.iter().find(|record| !record.is_newest && !planted(Bug::StagedOpenedAtNewest));
    let opened_at = oldest.map_or(opened_at, |record| record.entry.sequence - 1);
    // Segment buffers are released once written, so the pool needs no limit.
    let pool = MemoryPool::new(Backing::Anonymous, tier.shape().segment_bytes as usize, usize::MAX);
    let view = |record: &StagedRecord| staged[record.piece].record(&record.entry, &space.secret);
    let frame_bytes = u64::from(FRAME_BYTES.max(tier.shape().unit_bytes));
    let mut output: Option<OpenSegment> = None;
    let mut places = Vec::new();
    for batch in records.chunk_by(|record, _| view(record).batch_goes_on && !planted(Bug::StagedBatchSplit)) {
        let padded = batch.iter().map(|record| tier.shape().padded(record.entry.bytes as usize)).sum();
        if let Some(open) = &mut output
            && open.open_frame_bytes_with(batch.len(), padded) > frame_bytes
        {
            // Before the frame extends into another write unit, which would be mostly padding.
            write_frame(writer, open).await?;
        }
        if let Some(full) = output.take_if(|open| !open.has_room(batch.len(), padded)) {
            seal(writer, full).await?;
        }
        let open = match &mut output {
            Some(open) => open,
            None => {
                let opened = space.open_segment(tier, Stream::RELOCATED[0], &pool, 0, opened_at).await?;
                output.insert(opened.ok_or_else(|| space.full_error(space.live_bytes()))?.0)
            }
        };
        for record in batch.iter().filter(|record| record.is_newest || !planted(Bug::StagedNewestAlone)) {
            let offset = open.append(&view(record).to_record(), record.entry.key_hash);
            if record.is_newest {
                let entry = Entry { offset, ..record.entry };
                places.push((entry, space.location(tier.name(), open.name().slot, &entry)));
            }
        }
    }
    if let Some(open) = output {
        seal(writer, open).await?;
    }
    tracing::info!(records = places.len(), "recovered records from the staging file");
    places.into_iter().for_each(|(entry, location)| take_in(catalog, entry, location));
    Ok(())
}

/// Writes the open frame of a segment, if it is not empty.
async fn write_frame(writer: SegmentWriter<'_>, open: &mut OpenSegment) -> Result<()> {
    let Some(frame) = open.close_frame(0) else { return Ok(()) };
    let (slot, buffer) = (open.name().slot, open.memory().buffer());
    writer.write_frame(slot, buffer, &frame, WriteMode::Plain).await.map(drop)
}

/// Writes the last frame and the summary of a segment, durably.
async fn seal(writer: SegmentWriter<'_>, mut open: OpenSegment) -> Result<()> {
    write_frame(writer, &mut open).await?;
    writer.tier().device()?.flush().await.map_err(Error::from)?;
    let segment = open.name().segment;
    writer.seal(Summary::of(&open), || segment).await
}

fn take_in(catalog: &Catalog, entry: Entry, location: Location) {
    let tier = catalog.space.tier(location.tier);
    let padded = tier.shape().padded(entry.bytes as usize) as i64;
    if entry.kind == Kind::Tombstone {
        tier.add_tombstones(location.slot, padded);
    } else {
        catalog.space.add_live(location, padded);
        catalog.expansions.note(&entry);
        catalog.index.load(entry.key_hash, catalog.pointer(location));
    }
}
