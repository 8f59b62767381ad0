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

use esker_device::{Appender, BUFFER_ALIGNMENT, Buffer, SegmentBuffer};
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
    /// Slots of the outputs that were sealed, or were to be.
    pub sealed: Vec<u32>,
}

/// An open segment that receives copies.
pub struct Output {
    /// The segment.
    pub segment: OpenSegment,
    /// Offset below which it is durable.
    pub durable_through: u32,
}

/// Open segments that receive copies, by write stream.
pub type Outputs = BTreeMap<Stream, Output>;

/// The victims, and the form of their copies.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Secret of the store.
    pub secret: &'a Secret,
    /// The victims, with the entries of records that may be needed.
    pub victims: &'a [(Victim, EntryList)],
    /// Shape of the segments that receive copies.
    pub shape: SegmentShape,
    /// Maximum length of a frame of copies in bytes, unless a single record is longer.
    pub frame_bytes: u32,
}

/// The records of the victims.
pub trait Source: Sync {
    /// Error of reading.
    type Error: Send;

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
}

/// Result of opening an output.
pub enum Opening {
    /// The empty segment.
    Opened(Box<OpenSegment>),
    /// No slot is available beside the open outputs; there is one if they are sealed.
    NotBesideOthers,
    /// No slot is available.
    NoSlot,
}

/// The segments that receive copies.
pub trait Target: Sync {
    /// Error of writing.
    type Error: Send;

    /// Opens an empty segment for copies, with memory for at least `bytes`, beside `others` open outputs for collected
    /// records.
    fn open(
        &self,
        stream: Stream,
        bytes: usize,
        others: usize,
    ) -> impl Future<Output = Result<Opening, Self::Error>> + Send;

    /// Writes a closed frame of an output from the memory that holds it.
    fn write_frame(
        &self,
        output: SegmentName,
        memory: Arc<SegmentBuffer>,
        frame: ClosedFrame,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Seals a full output.
    fn seal(&self, output: OpenSegment) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// The memory for the frames of an output cannot be allocated.
#[derive(Debug)]
pub struct NoMemory {
    /// Bytes of the memory.
    pub bytes: usize,
    /// Error of the operating system.
    pub cause: std::io::Error,
}

/// Allocates at least `bytes` of memory for the frames of an output.
///
/// # Errors
/// If the operating system provides none.
pub fn frame_memory(bytes: usize) -> Result<Appender, NoMemory> {
    let bytes = bytes.next_multiple_of(BUFFER_ALIGNMENT);
    SegmentBuffer::anonymous(bytes).map_err(|cause| NoMemory { bytes, cause })
}

/// Failure of [`copy_needed`].
#[derive(Debug)]
pub struct Failed<E> {
    /// Index of the victim being copied at the failure.
    pub victim: usize,
    /// The underlying error.
    pub error: E,
    /// Work done before the failure. The index must not be swung to the copies, because their frames may still be open.
    pub done: Relocated,
}

impl<E> Failed<E> {
    /// Creates a failure without copies, for one before the first copy or whose copies do not matter.
    pub fn at(victim: usize, error: E) -> Failed<E> {
        Failed { victim, error, done: Relocated::default() }
    }
}

/// Copies the needed records of victims to the outputs, opening and sealing outputs as required. All reported copies
/// are written when this returns `Ok`; none is flushed.
///
/// Takes several victims at once, because each call closes frames that are not full.
///
/// # Errors
/// Those of reading and writing. The outputs may contain copies that are not reported.
pub async fn copy_needed<E: Send + From<NoMemory>, S: Source<Error = E>, T: Target<Error = E>>(
    inputs: Inputs<'_>,
    source: &S,
    target: &T,
    outputs: &mut Outputs,
) -> Result<Relocated, Failed<E>> {
    let relocated = Relocated::default();
    let mut copier = Copier { inputs, source, target, outputs, relocated, writing: None, spare: None };
    let copied = copier.copy_all().await;
    // Waits for the write in flight even after an error, because otherwise the output could be sealed while one of its
    // frames is unwritten. If that write fails, nothing may be written behind it.
    let written = copier.written().await;
    let done = copier.relocated;
    match (copied, written) {
        (_, Err(error)) => {
            Err(Failed { victim: 0, error, done: Relocated { sealed: done.sealed, ..Relocated::default() } })
        }
        (Err((victim, error)), _) => Err(Failed { victim, error, done }),
        (Ok(()), Ok(())) => Ok(done),
    }
}

/// A frame write in flight.
type Writing<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

struct Copier<'a, S, T, E> {
    inputs: Inputs<'a>,
    source: &'a S,
    target: &'a T,
    outputs: &'a mut Outputs,
    relocated: Relocated,
    /// The frame being written while the next one is filled. One at a time, so that frames of an output are written in
    /// order.
    writing: Option<Writing<'a, E>>,
    /// The memory that an output used before its present one, for reuse.
    spare: Option<Appender>,
}

impl<E: Send + From<NoMemory>, S: Source<Error = E>, T: Target<Error = E>> Copier<'_, S, T, E> {
    /// Copies the needed records of all victims, and closes the frames. An error has the index of its victim.
    async fn copy_all(&mut self) -> Result<(), (usize, E)> {
        for (number, (victim, entries)) in self.inputs.victims.iter().enumerate() {
            if !self.copy_victim(number, victim, entries).await.map_err(|error| (number, error))? {
                self.relocated.out_of_room_at = Some(number);
                break;
            }
        }
        let open: Vec<Stream> = self.outputs.keys().copied().collect();
        for stream in open {
            self.close(stream).await.map_err(|error| (0, error))?;
        }
        Ok(())
    }

    /// Copies the needed records of one victim. Returns false if there is no space for all of them.
    async fn copy_victim(&mut self, number: usize, victim: &Victim, entries: &EntryList) -> Result<bool, E> {
        let (source, secret) = (self.source, self.inputs.secret);
        let needed = entries.iter().filter(|e| source.need(victim, e) != Need::Nothing);
        let read = |span: Span| async move {
            let read = source.read(victim, span.offset, span.bytes).await;
            read.map(|(buffer, at)| (span, buffer, at))
        };
        // The next reads are in flight while one is copied.
        let mut reads =
            std::pin::pin!(stream::iter(plan_reads(needed)).map(read).buffered(source.reads_at_once()));
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
                let record = match source.need(victim, &entry) {
                    Need::Nothing => continue,
                    Need::Record => view.to_record(),
                    Need::Tombstone => Record::tombstone(view.keyspace, view.key, view.sequence),
                };
                if !self.copy(number, entry, &record, source.place(victim, &view)).await? {
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
    ) -> Result<bool, E> {
        let Some(stream) = self.make_room(record, wanted).await? else { return Ok(false) };
        let output = &mut self.outputs.get_mut(&stream).expect("there is room in it").segment;
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
    async fn make_room(&mut self, record: &Record<'_>, wanted: Stream) -> Result<Option<Stream>, E> {
        let padded = self.inputs.shape.padded(record.bytes());
        if self.outputs.contains_key(&wanted) && !self.fits(wanted, padded).await? {
            self.seal(wanted).await?;
        }
        loop {
            let makes_way = !self.outputs.contains_key(&wanted) && self.open(wanted, padded).await?;
            let others: Vec<Stream> =
                self.outputs.keys().copied().filter(|&stream| stream != wanted).collect();
            for stream in std::iter::once(wanted).chain(others) {
                if self.outputs.contains_key(&stream) && self.fits(stream, padded).await? {
                    return Ok(Some(stream));
                }
            }
            // The open outputs prevent another from being opened: seals the fullest one.
            let fullest = self.outputs.iter().min_by_key(|(_, output)| output.segment.room_bytes());
            let Some(fullest) = fullest.map(|(&stream, _)| stream).filter(|_| makes_way) else {
                return Ok(None);
            };
            self.seal(fullest).await?;
        }
    }

    /// Opens an output, if a slot is available. Returns true if one would be if the open outputs were sealed.
    async fn open(&mut self, stream: Stream, padded: u64) -> Result<bool, E> {
        let others = self.outputs.keys().filter(|stream| Stream::RELOCATED.contains(stream)).count();
        Ok(match self.target.open(stream, self.memory_bytes(padded), others).await? {
            Opening::Opened(segment) => {
                self.outputs.insert(stream, Output { segment: *segment, durable_through: 0 });
                false
            }
            Opening::NotBesideOthers => true,
            Opening::NoSlot => false,
        })
    }

    async fn seal(&mut self, stream: Stream) -> Result<(), E> {
        self.written().await?;
        let full = self.outputs.remove(&stream).expect("it is open").segment;
        self.relocated.sealed.push(full.name().slot);
        self.target.seal(full).await
    }

    /// Returns true if a record fits in an output. Closes the output's frame and renews its memory if necessary.
    async fn fits(&mut self, stream: Stream, padded: u64) -> Result<bool, E> {
        let output = self.output(stream);
        // Close the frame before it extends into another write unit, which would be mostly padding.
        let is_full = output.open_frame_bytes_with(1, padded) > u64::from(self.inputs.frame_bytes);
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
    fn renew_memory(&mut self, stream: Stream, bytes: usize) -> Result<(), E> {
        // Memory allocated for one large record is not kept.
        let suits = |memory: &Appender| (bytes..=2 * bytes).contains(&memory.capacity());
        let output = &mut self.outputs.get_mut(&stream).expect("it is open").segment;
        if suits(output.memory()) && output.reuse_memory() {
            return Ok(());
        }
        // A write still uses the present memory.
        let spare = self.spare.take().filter(suits).and_then(|memory| memory.recycle().ok());
        let memory = match spare {
            Some(memory) => memory,
            None => frame_memory(bytes)?,
        };
        self.spare = Some(output.replace_memory(memory));
        Ok(())
    }

    fn output(&self, stream: Stream) -> &OpenSegment {
        &self.outputs[&stream].segment
    }

    /// Closes the open frame of an output, if there is one, and starts writing it.
    async fn close(&mut self, stream: Stream) -> Result<(), E> {
        let Output { segment, durable_through } = self.outputs.get_mut(&stream).expect("it is open");
        let Some(frame) = segment.close_frame(*durable_through) else { return Ok(()) };
        let (name, memory) = (segment.name(), segment.memory().buffer());
        self.written().await?;
        let target = self.target;
        let mut write: Writing<'_, E> = Box::pin(target.write_frame(name, memory, frame));
        match poll!(&mut write) {
            Poll::Ready(done) => done,
            Poll::Pending if self.source.reads_at_once() > 1 => {
                self.writing = Some(write);
                Ok(())
            }
            Poll::Pending => write.await,
        }
    }

    /// Waits until the frame in flight, if any, is written.
    async fn written(&mut self) -> Result<(), E> {
        match self.writing.take() {
            Some(write) => write.await,
            None => Ok(()),
        }
    }

    /// Returns the bytes of memory for a frame that holds a record of this length.
    fn memory_bytes(&self, padded: u64) -> usize {
        let unit = u64::from(self.inputs.shape.unit_bytes);
        (u64::from(self.inputs.frame_bytes).max(padded) + unit).next_multiple_of(unit) as usize
    }
}
