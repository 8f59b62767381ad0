//! Copies the needed records out of a victim.
//!
//! Each step must complete before the next begins, because otherwise a crash or a reader finds no valid record:
//!
//! 1. write the copies;
//! 2. make the copies durable;
//! 3. swing the index from the old location to the new one, where the old one is still current;
//! 4. free the victim, durably;
//! 5. reuse its slot.
//!
//! [`copy_needed`] does step 1; the caller does the others.

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use esker_device::{Appender, Buffer, SegmentBuffer};
use esker_log::{
    ClosedFrame, Damage, Entry, EntryList, Kind, OpenSegment, Record, RecordView, Secret, SegmentName,
    SegmentShape, Stream,
};
use futures_util::poll;
use futures_util::stream::{self, StreamExt};

use crate::plan::{Span, plan_reads};

/// A segment to relocate.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Segment number.
    pub segment: u64,
    /// Slot.
    pub slot: u32,
    /// Shape of the tier's segments.
    pub shape: SegmentShape,
    /// Write stream that the segment belongs to.
    pub stream: Stream,
    /// Number of records written to it, needed or not.
    pub records: usize,
}

/// The part of a record that must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: the record is dropped.
    Nothing,
    /// The whole record.
    Record,
    /// Only a tombstone: the record has expired, and an older version of its key may still be in the log.
    Tombstone,
}

/// A record and the location of its copy.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// Index of the victim that held the record.
    pub victim: usize,
    /// The record in the victim.
    pub entry: Entry,
    /// Kind of the copy, which may be a tombstone.
    pub kind: Kind,
    /// Slot of the copy.
    pub slot: u32,
    /// Offset of the copy.
    pub offset: u32,
    /// Length of the copy in bytes, including padding.
    pub bytes: u32,
}

/// Copied records and their new locations, at about 31 bytes each.
#[derive(Debug, Default)]
pub struct Moves {
    /// Index of each victim, and its records that were copied.
    copied: Vec<(usize, EntryList)>,
    /// Locations of the copies, in the order of the records.
    copies: Vec<Copied>,
}

/// Location and kind of a copy.
#[derive(Clone, Copy, Debug)]
struct Copied {
    slot: u32,
    offset: u32,
    bytes: u32,
    kind: Kind,
}

impl Moves {
    /// Returns the number of copies.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Returns true if nothing was copied.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Iterates over the copies in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = Move> {
        let records = self.copied.iter().flat_map(|(victim, list)| list.iter().map(|entry| (*victim, entry)));
        records.zip(&self.copies).map(|((victim, entry), copied)| {
            let Copied { slot, offset, bytes, kind } = *copied;
            Move { victim, entry, kind, slot, offset, bytes }
        })
    }

    fn push(&mut self, copy: Move) {
        let Move { victim, entry, kind, slot, offset, bytes } = copy;
        if self.copied.last().is_none_or(|(last, _)| *last != victim) {
            self.copied.push((victim, EntryList::new()));
        }
        let (_, list) = self.copied.last_mut().expect("it was added");
        list.push(entry);
        self.copies.push(Copied { slot, offset, bytes, kind });
    }
}

/// Result of [`copy_needed`].
#[derive(Debug, Default)]
pub struct Relocated {
    /// Copied records and their new locations.
    pub moves: Moves,
    /// Needed records that are damaged, with the index of their victim. Such a victim must be kept, so that reading the
    /// record returns an error.
    pub damaged: Vec<(usize, Entry, Damage)>,
    /// Index of the victim at which no space was left for copies. Some needed records of this victim, and all of the
    /// later victims, are in the victims only.
    pub out_of_room_at: Option<usize>,
}

/// Open segments that receive copies, by write stream.
pub type Outputs = BTreeMap<Stream, OpenSegment>;

/// The services that relocation requires from the store.
pub trait Host: Sync {
    /// Error of a host operation.
    type Error: Send;

    /// Shape of the segments that receive copies.
    fn shape(&self) -> SegmentShape;

    /// Returns the part of a record that must be kept.
    fn need(&self, victim: &Victim, entry: &Entry) -> Need;

    /// Returns the write stream for a record.
    fn place(&self, victim: &Victim, record: &RecordView<'_>) -> Stream;

    /// Number of reads in flight. If more than one, a frame may be written at the same time.
    fn reads_at_once(&self) -> usize;

    /// Reads bytes of the victim, from memory if they are still buffered. Returns the buffer and the position of
    /// `offset` in it.
    fn read(
        &self,
        victim: &Victim,
        offset: u32,
        bytes: u32,
    ) -> impl Future<Output = Result<(Buffer, usize), Self::Error>> + Send;

    /// Returns the offset below which an output is durable.
    fn durable_through(&self, output: &OpenSegment) -> u32;

    /// Opens an empty segment for copies, with memory for at least `bytes`. Returns `None` if no slot is available.
    fn open_output(
        &self,
        stream: Stream,
        bytes: usize,
    ) -> impl Future<Output = Result<Option<OpenSegment>, Self::Error>> + Send;

    /// Returns true if a segment could be opened if no output were open.
    fn could_open(&self) -> bool;

    /// Allocates at least `bytes` of memory for the frames of an output.
    fn memory(&self, bytes: usize) -> Result<Appender, Self::Error>;

    /// Writes a closed frame of an output from the memory that holds it.
    fn write_frame(
        &self,
        output: SegmentName,
        memory: Arc<SegmentBuffer>,
        frame: ClosedFrame,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Seals a full output.
    fn seal_output(&self, output: OpenSegment) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Failure of [`copy_needed`].
#[derive(Debug)]
pub struct Failed<E> {
    /// Index of the victim being copied at the failure.
    pub victim: usize,
    /// The underlying error.
    pub error: E,
    /// Copies made before the failure. The index must not be swung to them, because their frames may still be open.
    pub moves: Moves,
}

impl<E> Failed<E> {
    /// Creates a failure without copies, for one before the first copy or whose copies do not matter.
    pub fn at(victim: usize, error: E) -> Failed<E> {
        Failed { victim, error, moves: Moves::default() }
    }
}

/// Copies the needed records of victims to the outputs, opening and sealing outputs as required. All reported copies
/// are written when this returns `Ok`; none is flushed.
///
/// Takes several victims at once, because each call closes frames that are not full.
pub async fn copy_needed<H: Host>(
    host: &H,
    secret: &Secret,
    victims: &[(Victim, EntryList)],
    outputs: &mut Outputs,
    frame_bytes: u32,
) -> Result<Relocated, Failed<H::Error>> {
    let relocated = Relocated::default();
    let mut copier = Copier { host, outputs, frame_bytes, relocated, writing: None, spare: None };
    let copied = copier.copy_all(secret, victims).await;
    // Waits for the write in flight even after an error, because otherwise the output could be sealed while one of its
    // frames is unwritten. If that write fails, nothing may be written behind it.
    copier.written().await.map_err(|error| Failed::at(0, error))?;
    match copied {
        Ok(()) => Ok(copier.relocated),
        Err(failed) => Err(Failed { moves: copier.relocated.moves, ..failed }),
    }
}

/// A frame write in flight.
type Writing<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

struct Copier<'a, H: Host> {
    host: &'a H,
    outputs: &'a mut Outputs,
    frame_bytes: u32,
    relocated: Relocated,
    /// The frame being written while the next one is filled. One at a time, so that frames of an output are written in
    /// order.
    writing: Option<Writing<'a, H::Error>>,
    /// The memory that an output used before its present one, for reuse.
    spare: Option<Appender>,
}

impl<H: Host> Copier<'_, H> {
    /// Copies the needed records of all victims, and closes the frames.
    async fn copy_all(
        &mut self,
        secret: &Secret,
        victims: &[(Victim, EntryList)],
    ) -> Result<(), Failed<H::Error>> {
        for (number, (victim, entries)) in victims.iter().enumerate() {
            let all = self.copy_victim(secret, number, victim, entries).await;
            if !all.map_err(|error| Failed::at(number, error))? {
                self.relocated.out_of_room_at = Some(number);
                break;
            }
        }
        let open: Vec<Stream> = self.outputs.keys().copied().collect();
        for stream in open {
            self.close(stream).await.map_err(|error| Failed::at(0, error))?;
        }
        Ok(())
    }

    /// Copies the needed records of one victim. Returns false if there is no space for all of them.
    async fn copy_victim(
        &mut self,
        secret: &Secret,
        number: usize,
        victim: &Victim,
        entries: &EntryList,
    ) -> Result<bool, H::Error> {
        let host = self.host;
        let needed = entries.iter().filter(|e| host.need(victim, e) != Need::Nothing);
        let read = |span: Span| async move {
            let read = host.read(victim, span.offset, span.bytes).await;
            read.map(|(buffer, at)| (span, buffer, at))
        };
        // The next reads are in flight while one is copied.
        let mut reads =
            std::pin::pin!(stream::iter(plan_reads(needed)).map(read).buffered(host.reads_at_once()));
        while let Some(read) = reads.next().await {
            let (span, buffer, at) = read?;
            for entry in span.entries {
                let identity = secret.identity(victim.segment, entry.offset);
                let from = at + (entry.offset - span.offset) as usize;
                let parsed = RecordView::parse(&buffer[from..from + entry.bytes as usize], &identity)
                    .and_then(|record| record.verify_value(secret).map(|()| record));
                let view = match parsed {
                    Ok(view) => view,
                    Err(damage) => {
                        self.relocated.damaged.push((number, entry, damage));
                        continue;
                    }
                };
                // Asks again, because the record may have been overwritten or have expired since the read was planned.
                let record = match host.need(victim, &entry) {
                    Need::Nothing => continue,
                    Need::Record => view.to_record(),
                    Need::Tombstone => Record::tombstone(view.keyspace, view.key, view.sequence),
                };
                if !self.copy(number, entry, &record, host.place(victim, &view)).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Copies one record. Returns false if no output has space for it and none can be opened.
    async fn copy(
        &mut self,
        victim: usize,
        entry: Entry,
        record: &Record<'_>,
        wanted: Stream,
    ) -> Result<bool, H::Error> {
        let Some(stream) = self.make_room(record, wanted).await? else { return Ok(false) };
        let output = self.outputs.get_mut(&stream).expect("there is room in it");
        let padded = output.shape().padded(record.bytes());
        let offset = output.append(record, entry.key_hash);
        self.relocated.moves.push(Move {
            victim,
            entry,
            kind: record.kind,
            slot: output.name().slot,
            offset,
            bytes: padded as u32,
        });
        Ok(true)
    }

    /// Makes space for a record in the output of the wanted write stream or, if no segment can be opened, in any
    /// output. Returns the write stream that has the space.
    async fn make_room(&mut self, record: &Record<'_>, wanted: Stream) -> Result<Option<Stream>, H::Error> {
        let padded = self.host.shape().padded(record.bytes());
        if self.outputs.contains_key(&wanted) && !self.fits(wanted, padded).await? {
            self.written().await?;
            let full = self.outputs.remove(&wanted).expect("it is open");
            self.host.seal_output(full).await?;
        }
        loop {
            if !self.outputs.contains_key(&wanted)
                && let Some(output) = self.host.open_output(wanted, self.memory_bytes(padded)).await?
            {
                self.outputs.insert(wanted, output);
            }
            let others: Vec<Stream> =
                self.outputs.keys().copied().filter(|&stream| stream != wanted).collect();
            for stream in std::iter::once(wanted).chain(others) {
                if self.outputs.contains_key(&stream) && self.fits(stream, padded).await? {
                    return Ok(Some(stream));
                }
            }
            // The open outputs prevent another from being opened: seals the fullest one.
            let fullest = self.outputs.iter().min_by_key(|(_, output)| output.room_bytes());
            let Some(fullest) = fullest.map(|(&stream, _)| stream).filter(|_| self.host.could_open()) else {
                return Ok(None);
            };
            self.written().await?;
            let full = self.outputs.remove(&fullest).expect("it is open");
            self.host.seal_output(full).await?;
        }
    }

    /// Returns true if a record fits in an output. Closes the output's frame and renews its memory if necessary.
    async fn fits(&mut self, stream: Stream, padded: u64) -> Result<bool, H::Error> {
        let output = self.output(stream);
        // Close the frame before it extends into another write unit, which would be mostly padding.
        let is_full = output.open_frame_bytes_with(1, padded) > u64::from(self.frame_bytes);
        if is_full || !self.output(stream).memory_has_room(1, padded) {
            self.close(stream).await?;
        }
        if !self.output(stream).has_room(1, padded) {
            self.close(stream).await?;
            return Ok(false);
        }
        if !self.output(stream).memory_has_room(1, padded) {
            self.renew_memory(stream, self.memory_bytes(padded))?;
        }
        Ok(true)
    }

    /// Provides at least `bytes` of memory for the next frame of an output.
    fn renew_memory(&mut self, stream: Stream, bytes: usize) -> Result<(), H::Error> {
        // Memory allocated for one large record is not kept.
        let suits = |memory: &Appender| (bytes..=2 * bytes).contains(&memory.capacity());
        let output = self.outputs.get_mut(&stream).expect("it is open");
        if suits(output.memory()) && output.reuse_memory() {
            return Ok(());
        }
        // A write still uses the present memory.
        let spare = self.spare.take().filter(suits).and_then(|memory| memory.recycle().ok());
        let memory = match spare {
            Some(memory) => memory,
            None => self.host.memory(bytes)?,
        };
        self.spare = Some(output.replace_memory(memory));
        Ok(())
    }

    fn output(&self, stream: Stream) -> &OpenSegment {
        &self.outputs[&stream]
    }

    /// Closes the open frame of an output, if there is one, and starts writing it.
    async fn close(&mut self, stream: Stream) -> Result<(), H::Error> {
        let host = self.host;
        let output = self.outputs.get_mut(&stream).expect("it is open");
        let durable_through = host.durable_through(output);
        let Some(frame) = output.close_frame(durable_through) else { return Ok(()) };
        let (name, memory) = (output.name(), output.memory().buffer());
        self.written().await?;
        let mut write: Writing<'_, H::Error> = Box::pin(host.write_frame(name, memory, frame));
        match poll!(&mut write) {
            Poll::Ready(done) => done,
            Poll::Pending if host.reads_at_once() > 1 => {
                self.writing = Some(write);
                Ok(())
            }
            Poll::Pending => write.await,
        }
    }

    /// Waits until the frame in flight, if any, is written.
    async fn written(&mut self) -> Result<(), H::Error> {
        match self.writing.take() {
            Some(write) => write.await,
            None => Ok(()),
        }
    }

    /// Returns the bytes of memory for a frame that holds a record of this length.
    fn memory_bytes(&self, padded: u64) -> usize {
        let unit = u64::from(self.host.shape().unit_bytes);
        (u64::from(self.frame_bytes).max(padded) + unit).next_multiple_of(unit) as usize
    }
}
