//! Copying what is needed out of a victim.
//!
//! The order is the safety of it, and each step must happen before the next, or else a crash or a reader finds nothing:
//!
//! 1. the copies are written;
//! 2. they are durable;
//! 3. the index is swung from the old place to the new one, where the old one is still current;
//! 4. the victim is freed, durably;
//! 5. its slot is used again.
//!
//! [`copy_needed`] does 1; the caller does the rest.

use std::future::Future;

use esker_device::Buffer;
use esker_log::{ClosedFrame, Damage, Entry, OpenSegment, RecordView, Secret, SegmentShape};

use crate::plan::plan_reads;

/// A segment to be emptied.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Its number.
    pub segment: u64,
    /// Its slot.
    pub slot: u32,
    /// Its tier's shape.
    pub shape: SegmentShape,
}

/// A record and the place that it was copied to.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The record in the victim.
    pub entry: Entry,
    /// Slot of the copy.
    pub slot: u32,
    /// Offset of the copy.
    pub offset: u32,
}

/// What was copied.
#[derive(Debug, Default)]
pub struct Relocated {
    /// Records and their new places.
    pub moves: Vec<Move>,
    /// Records that are needed but damaged: the victim must stay, so that reading them is an error.
    pub damaged: Vec<(Entry, Damage)>,
}

/// What relocation asks of the store.
pub trait Host: Sync {
    /// Why the host could not do something.
    type Error: Send;

    /// Whether the record is current, or a tombstone that is still needed.
    fn is_needed(&self, victim: &Victim, entry: &Entry) -> bool;

    /// Bytes of the victim, from memory where they still are there; the second part says where in the buffer `offset` is.
    fn read(
        &self,
        victim: &Victim,
        offset: u32,
        bytes: u32,
    ) -> impl Future<Output = Result<(Buffer, usize), Self::Error>> + Send;

    /// Offset below which the output is durable.
    fn durable_through(&self, output: &OpenSegment) -> u32;

    /// An empty segment for the copies.
    fn open_output(&self) -> impl Future<Output = Result<OpenSegment, Self::Error>> + Send;

    /// Writes a closed frame of the output.
    fn write_frame(
        &self,
        output: &OpenSegment,
        frame: ClosedFrame,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Seals a full output.
    fn seal_output(&self, output: OpenSegment) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Copies the needed records of a victim to the output, which is opened and sealed as need be. Everything that is told to
/// have been copied is written when this returns, also if `open_output` failed; after another failure the moves must not
/// be used. Nothing is flushed.
pub async fn copy_needed<H: Host>(
    host: &H,
    secret: &Secret,
    victim: &Victim,
    entries: &[Entry],
    output: &mut Option<OpenSegment>,
    frame_bytes: u32,
) -> (Relocated, Result<(), H::Error>) {
    let mut relocated = Relocated::default();
    let mut ended = copy(host, secret, victim, entries, output, frame_bytes, &mut relocated).await;
    if let Some(open) = output
        && let Err(error) = close(host, open).await
    {
        relocated.moves.clear();
        ended = ended.and(Err(error));
    }
    (relocated, ended)
}

async fn copy<H: Host>(
    host: &H,
    secret: &Secret,
    victim: &Victim,
    entries: &[Entry],
    output: &mut Option<OpenSegment>,
    frame_bytes: u32,
    relocated: &mut Relocated,
) -> Result<(), H::Error> {
    let needed = entries.iter().filter(|e| host.is_needed(victim, e)).copied();
    for span in plan_reads(needed) {
        let (buffer, at) = host.read(victim, span.offset, span.bytes).await?;
        for entry in span.entries {
            let identity = secret.identity(victim.segment, entry.offset);
            let from = at + (entry.offset - span.offset) as usize;
            let parsed = RecordView::parse(&buffer[from..from + entry.bytes as usize], &identity)
                .and_then(|record| record.verify_value(secret).map(|()| record));
            let record = match parsed {
                Ok(record) => record.to_record(),
                Err(damage) => {
                    relocated.damaged.push((entry, damage));
                    continue;
                }
            };
            let padded = victim.shape.padded(record.bytes());
            // Closed before it would run over into another write unit, which would be mostly padding.
            if let Some(open) = output
                && open.open_frame_bytes() + padded > u64::from(frame_bytes)
            {
                close(host, open).await?;
            }
            if let Some(open) = output
                && !open.has_room(1, padded)
            {
                close(host, open).await?;
                let full = output.take().expect("it is open");
                host.seal_output(full).await?;
            }
            if output.is_none() {
                *output = Some(host.open_output().await?);
            }
            let open = output.as_mut().expect("it was opened above");
            let offset = open.append(&record, entry.digest);
            relocated.moves.push(Move { entry, slot: open.name().slot, offset });
        }
    }
    Ok(())
}

async fn close<H: Host>(host: &H, open: &mut OpenSegment) -> Result<(), H::Error> {
    match open.close_frame(host.durable_through(open)) {
        Some(frame) => host.write_frame(open, frame).await,
        None => Ok(()),
    }
}
